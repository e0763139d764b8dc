package kafka

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// TransactionBackoff is the interval of retries while the broker finishes the previous transaction.
const TransactionBackoff = 5 * time.Millisecond

// TransactionalID returns the transactional id of an owner's worker.
func TransactionalID(c Config, owner string) string {
	return FencePrefix(c) + owner
}

// RoleTransactionalID is TransactionalID of another role than the scheduler; empty: the scheduler.
func RoleTransactionalID(c Config, role, owner string) string {
	if role == "" {
		return TransactionalID(c, owner)
	}
	return string(c.Namespace) + role + "." + owner
}

// FencePrefix is the prefix of the transactional ids that a new owner of a partition may fence.
func FencePrefix(c Config) string { return string(c.Namespace) + "scheduler." }

// IsCompacted reports whether a topic is compacted: only the last record of each key is kept.
func IsCompacted(ns events.Namespace, topic string) bool {
	return topic == ns.Snapshots() || topic == ns.Definitions()
}

package kafka

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// transactionBackoff is the interval of retries while the broker finishes the previous transaction.
const transactionBackoff = 5 * time.Millisecond

// TransactionalID returns the transactional id of an owner's worker.
func TransactionalID(c Config, owner string) string {
	return fencePrefix(c) + owner
}

// fencePrefix is the prefix of the transactional ids that a new owner of a partition may fence.
func fencePrefix(c Config) string { return string(c.Namespace) + "scheduler." }

// compacted reports whether a topic is compacted: only the last record of each key is kept.
func compacted(ns events.Namespace, topic string) bool {
	return topic == ns.Snapshots() || topic == ns.Definitions()
}

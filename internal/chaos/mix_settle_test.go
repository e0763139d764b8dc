package chaos

import (
	"context"
	"time"
)

// settleWithin bounds the end of transactions that no producer continues: their timeout, and the interval of 1 s at
// which the broker looks for timed-out transactions.
const settleWithin = mixTransaction + 5*time.Second

// settle must be called before a node is killed. After a kill, a single node of Apache Kafka (4.3.1) takes itself for
// the leader of all partitions until the controller, in the same process, fences the previous broker. Then no partition
// has a leader. The transaction coordinator takes the partitions for deleted: it skips their markers and writes that
// the transaction is complete. Consumers with read_committed then block forever. With three nodes, another node leads.
//
// A log of this failure has PrepareAbort with 12 partitions, CompleteAbort half a second later, and no marker in any
// partition. The broker logs "these partitions are likely deleted already and hence can be skipped".
//
// So on a single node, settle first kills the schedulers and keeps them stopped until release is called. The node may
// be killed only when no transaction is open. If one stays open, because a duplicate or an extra member continues it,
// ok is false and no scheduler is held.
func (m *mix) settle(ctx context.Context) (ok bool, held []*slot, release func()) {
	if m.site.kind != oneKafka {
		return true, nil, func() {}
	}
	for _, s := range m.platform.slots {
		if s.spec.Kind == schedulerChild {
			s.mu.Lock()
			s.kill(true)
			held = append(held, s)
		}
	}
	release = func() {
		for _, s := range held {
			s.down = false
			s.mu.Unlock()
		}
	}
	m.logEvent("no scheduler, until no transaction is open")
	broker := m.site.broker(m.ns)
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		open, err := broker.OpenTransactions(ctx)
		if err == nil && len(open) == 0 {
			return true, held, release
		}
		if !sleep(ctx, drainLook) {
			m.logEvent("transactions %q stay open (%v): the broker isn't killed", open, err)
			release()
			return false, nil, nil
		}
	}
}

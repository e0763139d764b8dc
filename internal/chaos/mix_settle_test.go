package chaos

import (
	"context"
	"time"
)

// settleWithin is how long transactions may take to end once nobody goes on with
// them: their timeout, and the second in which the broker looks for what has timed
// out.
const settleWithin = mixTransaction + 5*time.Second

// settle is called before a node is killed. A single node of Apache Kafka (4.3.1)
// that comes back after a kill believes itself the leader of everything until the
// controller, which is the same process, gives up the broker that it was before.
// Then no partition has a leader, and the coordinator takes those for deleted:
// it skips their markers, and writes that the transaction is complete. Readers of
// committed records stand there for ever. (Measured: PrepareAbort with twelve
// partitions, half a second later CompleteAbort, and no marker in any log; the
// broker said "these partitions are likely deleted already and hence can be
// skipped".) Where there are three nodes another leads.
//
// So on a single node the schedulers are killed first and stay away until
// release is called, and the node only goes when no transaction is under way. ok
// is false, and nothing is held, if that doesn't come to be: a twin or a guest
// goes on.
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

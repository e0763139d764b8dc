package groupmember

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// Gate is the inbox gate of a worker. The client's goroutines pause newly assigned partitions, so the balancer's
// lock guards it: no assignment can change while it is held.
type Gate struct {
	balancer *Balancer
	topics   []string // the inboxes
	gate     *inboxgate.Gate
}

// NewGate returns the gate of the member that a balancer serves. topics are its inboxes.
func NewGate(b *Balancer, topics []string) *Gate {
	return &Gate{b, topics, inboxgate.New(GatedClient{func() *kgo.Client { return b.client }})}
}

// forEachInbox calls fn for partitions of topics and their added partitions. The caller holds the lock.
func (g *Gate) forEachInbox(topics []string, ps []int32, fn func(inboxgate.Inbox)) {
	for topic, all := range g.balancer.withAddedPartitions(topics, ps...) {
		for _, p := range all {
			fn(inboxgate.Inbox{Topic: topic, Partition: p})
		}
	}
}

// PauseAssigned pauses newly assigned partitions before any of their records can be fetched. The caller holds the lock.
func (g *Gate) PauseAssigned(added []int32) {
	g.forEachInbox(g.topics, added, func(in inboxgate.Inbox) { g.gate.PauseOnly(in, inboxgate.PausedForRestore) })
}

// Pause pauses an inbox of a partition if it is still owned under the assignment.
func (g *Gate) Pause(p int32, assignment uint64, topic string, why inboxgate.Reason, until time.Time) {
	g.balancer.whileOwned(p, assignment, func(*kgo.Client) {
		g.forEachInbox([]string{topic}, []int32{p}, func(in inboxgate.Inbox) { g.gate.Pause(in, why, until) })
	})
}

// Resume ends a reason for inboxes of a partition; no topics: all. It reports whether the partition is still owned
// under the assignment.
func (g *Gate) Resume(p int32, assignment uint64, why inboxgate.Reason, topics []string) bool {
	if len(topics) == 0 {
		topics = g.topics
	}
	return g.balancer.whileOwned(p, assignment, func(*kgo.Client) {
		g.forEachInbox(topics, []int32{p}, func(in inboxgate.Inbox) { g.gate.Resume(in, why) })
	})
}

// WithGate calls fn with the gate, whatever is assigned.
func (g *Gate) WithGate(fn func(*inboxgate.Gate)) {
	g.balancer.WithClient(func(*kgo.Client) { fn(g.gate) })
}

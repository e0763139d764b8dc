package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// gatedClient is a client as an inbox gate uses it. Nothing else pauses or resumes a client that fetches
// (forbidigo, in .golangci.yml).
type gatedClient struct{ client func() *kgo.Client }

// Pause implements inboxgate.Client.
func (c gatedClient) Pause(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.client().PauseFetchTopics(in.Topic)
		return
	}
	c.client().PauseFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}

// Resume implements inboxgate.Client.
func (c gatedClient) Resume(in inboxgate.Inbox) {
	if in.Partition == inboxgate.AllPartitions {
		c.client().ResumeFetchTopics(in.Topic)
		return
	}
	c.client().ResumeFetchPartitions(map[string][]int32{in.Topic: {in.Partition}})
}

// inbox is the partition as an inbox gate names it.
func (at topicPartition) inbox() inboxgate.Inbox {
	return inboxgate.Inbox{Topic: at.topic, Partition: at.partition}
}

// workerGate is the gate of a worker. The client's goroutines pause what is assigned, so the balancer's lock
// guards it, under which an assignment can't change.
type workerGate struct {
	balancer *Balancer
	topics   []string // the inboxes
	gate     *inboxgate.Gate
}

func newWorkerGate(b *Balancer, topics []string) *workerGate {
	return &workerGate{b, topics, inboxgate.New(gatedClient{func() *kgo.Client { return b.client }})}
}

// inboxes calls fn for topics of partitions, and for what was added to them. The caller holds the lock.
func (g *workerGate) forEachInbox(topics []string, ps []int32, fn func(inboxgate.Inbox)) {
	for topic, all := range g.balancer.withAddedPartitions(topics, ps...) {
		for _, p := range all {
			fn(inboxgate.Inbox{Topic: topic, Partition: p})
		}
	}
}

// assigned pauses partitions that came, before anything of them can be fetched. The caller holds the lock.
func (g *workerGate) pauseAssigned(added []int32) {
	g.forEachInbox(g.topics, added, func(in inboxgate.Inbox) { g.gate.PauseOnly(in, inboxgate.PausedForRestore) })
}

// pause pauses an inbox of a partition in an assignment.
func (g *workerGate) pause(p int32, assignment uint64, topic string, why inboxgate.Reason, until time.Time) {
	g.balancer.whileOwned(p, assignment, func(*kgo.Client) {
		g.forEachInbox([]string{topic}, []int32{p}, func(in inboxgate.Inbox) { g.gate.Pause(in, why, until) })
	})
}

// resume ends a reason for inboxes of a partition in an assignment, and reports whether that still is.
func (g *workerGate) resume(p int32, assignment uint64, why inboxgate.Reason, topics []string) bool {
	if len(topics) == 0 {
		topics = g.topics
	}
	return g.balancer.whileOwned(p, assignment, func(*kgo.Client) {
		g.forEachInbox(topics, []int32{p}, func(in inboxgate.Inbox) { g.gate.Resume(in, why) })
	})
}

// locked calls fn with the gate, whoever owns what.
func (g *workerGate) withGate(fn func(*inboxgate.Gate)) {
	g.balancer.withClient(func(*kgo.Client) { fn(g.gate) })
}

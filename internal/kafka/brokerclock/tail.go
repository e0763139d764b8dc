package brokerclock

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

// A record that an earlier answer's log end excludes is at most as old as the request of that answer. Up to
// tailAgeExact the record sets the clock: the error is no greater. Up to tailAgeMax it only shows whether the clock is
// possible.
const (
	tailAgeExact = 50 * time.Millisecond
	tailAgeMax   = time.Second
)

// Tail corrects a Clock with records that one client reads at the tail of its partitions. Elsewhere a record's age
// is the reader's lag, not a difference of clocks.
//
// Not every last record of a log is suitable: it may be a day old when a process starts, and a process that was stopped
// or disconnected finds what was written meanwhile. So only those records count that the log didn't have when its end
// was last returned, by an answer to a fetch sent a moment before. They are no older than that fetch. tailAgeExact is
// short because an overloaded agent would otherwise count the time that requests wait for a fetch and in its client as
// a difference of clocks, and reply too late. If records are too rare for this, writes set the clock (Writes).
//
// For fetches of the client it is a hook of the client. Code that sends its own fetches passes the time of its request.
type Tail struct {
	clock     *Clock // nil: there is no clock to correct
	namespace events.Namespace

	mu      sync.Mutex
	logEnds map[topicPartition]LogEnd
	// fetchSent is, by node, when the last answered fetch was sent.
	fetchSent map[int32]time.Time
}

type topicPartition struct {
	topic     string
	partition int32
}

// LogEnd is the high watermark of a log, and the earliest time at which it can have been requested.
type LogEnd struct {
	Offset int64
	Asked  time.Time
}

// NewTail returns a Tail that corrects a clock with records of a namespace's topics: only they have LogAppendTime. With
// a nil clock it does nothing.
func NewTail(c *Clock, ns events.Namespace) *Tail {
	return &Tail{clock: c, namespace: ns, logEnds: map[topicPartition]LogEnd{}, fetchSent: map[int32]time.Time{}}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (t *Tail) OnBrokerE2E(node kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if t.clock == nil || key != int16(kmsg.Fetch) {
		return
	}
	sent := t.clock.processNow().Add(-e2e.DurationE2E())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fetchSent[node.NodeID] = sent; e2e.Err() != nil {
		delete(t.fetchSent, node.NodeID)
	}
}

// earliestRequest returns the earliest time at which the answers of a poll can have been requested. Answers don't name
// their node, so it is the oldest fetch of all nodes. A node without a fetch for windowLength doesn't count.
func (t *Tail) earliestRequest(local time.Time) time.Time {
	first := local
	for node, sent := range t.fetchSent {
		if local.Sub(sent) > windowLength {
			delete(t.fetchSent, node)
		} else if sent.Before(first) {
			first = sent
		}
	}
	return first
}

// Observe corrects the clock with the records of a poll.
func (t *Tail) Observe(fetches kgo.Fetches) {
	if t.clock == nil {
		return
	}
	local := t.clock.processNow()
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.earliestRequest(local)
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		n := len(fp.Records)
		for n > 0 && fp.Records[n-1].Attrs.IsControl() {
			n-- // a marker's timestamp is its coordinator's
		}
		if n == 0 || !t.namespace.Owns(fp.Topic) {
			return
		}
		last := fp.Records[n-1]
		t.observeRecord(topicPartition{fp.Topic, fp.Partition}, last.Offset, last.Timestamp, LogEnd{fp.HighWatermark, asked}, local)
	})
}

// ObserveLast corrects the clock with the last record of an answer that arrived at local.
func (t *Tail) ObserveLast(last *events.Record, end LogEnd, local time.Time) {
	if t.clock == nil || !t.namespace.Owns(last.Topic) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeRecord(topicPartition{last.Topic, last.Partition}, last.Offset, last.Time, end, local)
}

// observeRecord corrects the clock with a partition's last record and updates its log end. The caller holds t.mu.
func (t *Tail) observeRecord(at topicPartition, offset int64, written time.Time, told LogEnd, local time.Time) {
	end, here := t.logEnds[at]
	t.logEnds[at] = LogEnd{max(end.Offset, told.Offset), told.Asked}
	// The record must be the log's last, or be followed by a transaction marker only.
	if !here || offset < end.Offset || offset+2 < told.Offset {
		return
	}
	switch age := local.Sub(end.Asked); {
	case age <= tailAgeExact:
		t.clock.Observe(written, local)
	case age <= tailAgeMax:
		t.clock.correctIfImpossible(written, end.Asked, local)
	}
}

// Forget removes the log ends of newly assigned partitions: the client didn't read them while another member owned
// them.
func (t *Tail) Forget(ps []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range ps {
		for at := range t.logEnds {
			if at.partition == p {
				delete(t.logEnds, at)
			}
		}
	}
}

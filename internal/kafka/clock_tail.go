package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

// A record is at most as old as the answer that told the end of its log before it came, by
// when that was asked for: up to tailAgeExact ago it tells the time, and a clock is off by no
// more; up to tailAgeMax ago, only whether the clock can be right.
const (
	tailAgeExact = 50 * time.Millisecond
	tailAgeMax   = time.Second
)

// tailClock corrects a Clock by what one client reads at the tail of its
// partitions: elsewhere a record's age is the reader's lag, not a difference of
// clocks. The last record of a log is at the tail, too, and may be a day old when
// a process starts; and a process that was stopped, or whose network was, finds
// what came meanwhile. So only those records count that the log did not hold yet
// when its end was last told, by an answer to a fetch that was sent a moment
// before: they are no older than that fetch. When all within a second told the time, an
// agent that was offered more than it could do took the time that its requests waited to
// be asked for, and then in its client, for a difference of clocks, and replied a fifth of
// a second late. Where too few come so soon after another, what is written tells the time
// (writtenClock).
//
// Where the client fetches it is a hook of the client's; who fetches by itself knows when
// it asked.
type tailClock struct {
	mu      sync.Mutex
	process func() time.Time // nil: no clock is corrected
	logEnds map[topicPartition]tailEnd
	// sent is when the last fetch that a node has answered was sent.
	fetchSent map[int32]time.Time
}

// tailEnd is the high watermark of a log, and when it was asked for at the
// earliest.
type tailEnd struct {
	offset int64
	asked  time.Time
}

// of makes it that of a client.
func (t *tailClock) attach(c Config) *tailClock {
	if c.Clock != nil {
		t.process, t.logEnds, t.fetchSent = c.Clock.processNow, map[topicPartition]tailEnd{}, map[int32]time.Time{}
	}
	return t
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (t *tailClock) OnBrokerE2E(node kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if t.process == nil || key != int16(kmsg.Fetch) {
		return
	}
	sent := t.process().Add(-e2e.DurationE2E())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fetchSent[node.NodeID] = sent; e2e.Err() != nil {
		delete(t.fetchSent, node.NodeID)
	}
}

// asked is when the answers that a poll brings at an instant were asked for, at
// the earliest: by the node that was asked first, since they don't say whose they
// are. A node that nobody asks any more doesn't count.
func (t *tailClock) earliestRequest(local time.Time) time.Time {
	first := local
	for node, sent := range t.fetchSent {
		if local.Sub(sent) > clockWindow {
			delete(t.fetchSent, node)
		} else if sent.Before(first) {
			first = sent
		}
	}
	return first
}

type topicPartition struct {
	topic     string
	partition int32
}

// observe corrects the clock of c by what a poll brought. Only topics of the
// namespace are LogAppendTime.
func (t *tailClock) observe(c Config, fetches kgo.Fetches) {
	if t.process == nil {
		return
	}
	local := t.process()
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.earliestRequest(local)
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		n := len(fp.Records)
		for n > 0 && fp.Records[n-1].Attrs.IsControl() {
			n-- // a marker's timestamp is its coordinator's
		}
		if n == 0 || !c.Namespace.Owns(fp.Topic) {
			return
		}
		last := fp.Records[n-1]
		t.observeRecord(c, topicPartition{fp.Topic, fp.Partition}, last.Offset, last.Timestamp, tailEnd{fp.HighWatermark, asked}, local)
	})
}

// observeLast corrects the clock of c by the last record of an answer that came at local.
func (t *tailClock) observeLast(c Config, last *events.Record, end tailEnd, local time.Time) {
	if t.process == nil || !c.Namespace.Owns(last.Topic) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeRecord(c, topicPartition{last.Topic, last.Partition}, last.Offset, last.Time, end, local)
}

// last is called with t.mu.
func (t *tailClock) observeRecord(c Config, at topicPartition, offset int64, written time.Time, told tailEnd, local time.Time) {
	end, here := t.logEnds[at]
	t.logEnds[at] = tailEnd{max(end.offset, told.offset), told.asked}
	// A transaction's marker may follow the last record.
	if !here || offset < end.offset || offset+2 < told.offset {
		return
	}
	switch age := local.Sub(end.asked); {
	case age <= tailAgeExact:
		c.Clock.Observe(written, local)
	case age <= tailAgeMax:
		c.Clock.correctIfImpossible(written, end.asked, local)
	}
}

// forget is called when partitions come anew: the client was not there while
// they were another's.
func (t *tailClock) forget(ps []int32) {
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

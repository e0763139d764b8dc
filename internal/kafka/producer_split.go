package kafka

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// A broker compares max.message.bytes with the size of a batch and refuses the whole batch. The client then fails every
// record of the batch, although each of them may fit. The Java client splits such a batch; this one doesn't. So this
// package bounds what is in flight to a topic that refused a batch:
//
//   - A topic starts without a bound. After it refuses a batch it is narrow: new records wait, and once nothing is in
//     flight the refused records are sent again, before the others.
//   - While a topic is narrow, the records in flight to it have at most max.message.bytes in total, uncompressed. So no
//     batch can exceed it. If the topic's configuration can't be read (that needs DESCRIBE_CONFIGS), one record is in
//     flight at a time.
//   - A record that is refused while it is alone in flight is too large itself.
//
// A topic is narrow for narrowFor. Then the bound is removed, because the topic's configuration may have changed.

const (
	// BatchBytesMax is the client's own limit of a batch, before compression. Kafka's default of max.message.bytes is
	// slightly larger.
	BatchBytesMax = 1_000_012
	// BatchOverhead, recordOverhead and headerOverhead are bounds in bytes: of a batch without its records, of a record
	// without its key, value and headers, and of a header without its key and value.
	BatchOverhead  = 61
	recordOverhead = 40
	headerOverhead = 10

	narrowFor            = 10 * time.Minute
	describeTopicTimeout = 2 * time.Second
)

// TooLargeError says that a topic doesn't accept a record, even alone in its batch.
type TooLargeError struct {
	Topic string
	// Bytes is the size of the record with its headers, before compression.
	Bytes int
	// Max is the largest batch that the topic accepts; 0: unknown.
	Max int
	Err error
}

func (e *TooLargeError) Error() string {
	if e.Max == 0 {
		return fmt.Sprintf("write to %s: the record is too large, it has %d bytes; the topic's max.message.bytes is less: %v", e.Topic, e.Bytes, e.Err)
	}
	return fmt.Sprintf("write to %s: the record is too large, it has %d bytes; the topic takes at most %d (max.message.bytes)", e.Topic, e.Bytes, e.Max)
}

// Unwrap returns the error of the broker or the client.
func (e *TooLargeError) Unwrap() error { return e.Err }

// TooLarge returns Bytes and Max, for callers that match the error by its methods.
func (e *TooLargeError) TooLarge() (bytes, most int) { return e.Bytes, e.Max }

// RecordBytesMin and RecordBytesMax bound the size of a record in a batch, before compression.
func RecordBytesMin(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

func RecordBytesMax(r *events.Record) int {
	return RecordBytesMin(r) + recordOverhead + headerOverhead*len(r.Headers)
}

// TopicMaxMessageBytes requests a topic's max.message.bytes; 0: unknown.
func TopicMaxMessageBytes(ctx context.Context, cl *kgo.Client, topic string) int {
	ctx, cancel := context.WithTimeout(ctx, describeTopicTimeout)
	defer cancel()
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return 0
	}
	c, err := configs.On(topic, nil)
	if err != nil || c.Err != nil {
		return 0
	}
	for _, kv := range c.Configs {
		if kv.Key == "max.message.bytes" {
			if n, err := strconv.Atoi(kv.MaybeValue()); err == nil {
				return n
			}
		}
	}
	return 0
}

// pendingRecord is a record that was not answered yet.
type pendingRecord struct {
	record events.Record
	done   func(events.Record, error)
	bytes  int  // upper bound of its size in a batch
	alone  bool // sent as the only record in flight to its topic
}

// splitTopic is a splitter's state of a topic. It has three states: without a bound; narrow and draining, until nothing
// is in flight; narrow, with a bound of bytes in flight.
type splitTopic struct {
	name     string
	inFlight int
	bytes    int // size of the records in flight, while the topic is narrow

	narrow   bool
	until    time.Time // end of narrow
	maxBytes int       // max.message.bytes; 0: not known
	// draining: nothing is sent until every record in flight has a result and max.message.bytes was requested.
	draining bool
	// limitDoubtful: the topic refused records that fit into MaxBytes.
	limitDoubtful bool
	refused       []*pendingRecord // to be sent again: refused, or written after such a record of its key
	queue         []*pendingRecord
	pumping       bool // one goroutine sends at a time, to keep the order
}

// splitter bounds the records in flight to topics that refused a batch. It is safe for concurrent use.
type splitter struct {
	produce  func(*pendingRecord)                        // hands a record to the client
	maxBytes func(ctx context.Context, topic string) int // max.message.bytes; 0: not known
	life     context.Context

	mu     sync.Mutex
	topics map[string]*splitTopic
}

// send sends a record, or queues it if its topic is narrow.
func (p *splitter) send(s *pendingRecord) {
	p.mu.Lock()
	t := p.topic(s.record.Topic)
	if t.narrow {
		t.queue = append(t.queue, s)
		p.mu.Unlock()
		p.pump(t)
		return
	}
	t.inFlight++
	p.mu.Unlock()
	p.produce(s)
}

func (p *splitter) topic(name string) *splitTopic {
	t := p.topics[name]
	if t != nil && t.narrow && t.idle() && time.Now().After(t.until) {
		t = nil
	}
	if t == nil {
		t = &splitTopic{name: name}
		p.topics[name] = t
	}
	return t
}

func (t *splitTopic) idle() bool {
	return t.inFlight == 0 && !t.draining && !t.pumping && len(t.queue) == 0
}

// pump sends queued records as far as the bound permits.
func (p *splitter) pump(t *splitTopic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.pumping {
		return
	}
	t.pumping = true
	for s := t.next(); s != nil; s = t.next() {
		p.mu.Unlock()
		p.produce(s)
		p.mu.Lock()
	}
	t.pumping = false
}

// next removes the next queued record if it fits into the bound; nil: none does.
func (t *splitTopic) next() *pendingRecord {
	if t.draining || len(t.queue) == 0 {
		return nil
	}
	s := t.queue[0]
	if t.inFlight > 0 && BatchOverhead+t.bytes+s.bytes > t.maxBytes {
		return nil
	}
	t.queue = t.queue[1:]
	s.alone = t.inFlight == 0 && BatchOverhead+s.bytes > t.maxBytes
	t.inFlight++
	t.bytes += s.bytes
	return s
}

// onProduced processes the result of a record. It reports whether the result is final; else the record is sent again.
// Results of a partition arrive in the order of sending.
func (p *splitter) onProduced(s *pendingRecord, err error) (final bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[s.record.Topic]
	t.inFlight--
	if t.narrow {
		t.bytes = max(0, t.bytes-s.bytes)
	}
	final = true
	switch {
	case IsTooLarge(err) && !s.alone && RecordBytesMin(&s.record) <= BatchBytesMax:
		p.narrow(t)
		t.refused, final = append(t.refused, s), false
	case err == nil && t.draining && t.hasRefused(s.record.Key):
		// An earlier record of the key is sent again after this one. So this one is repeated too: the last record of
		// the key in the log is then the last that was sent.
		t.refused, final = append(t.refused, s), false
	}
	switch {
	case t.draining && t.inFlight == 0:
		go p.resend(t)
	case len(t.queue) > 0:
		go p.pump(t) // the client's goroutine must not wait for the client
	case !t.narrow && t.inFlight == 0:
		delete(p.topics, t.name)
	}
	return final
}

// narrow makes a topic narrow and drains it.
func (p *splitter) narrow(t *splitTopic) {
	if !t.narrow { // also remove idle topics whose time is over; they may be deleted
		now := time.Now()
		maps.DeleteFunc(p.topics, func(_ string, other *splitTopic) bool { return other.narrow && other.idle() && now.After(other.until) })
	}
	t.limitDoubtful = t.limitDoubtful || t.narrow && !t.draining
	t.narrow, t.draining, t.until = true, true, time.Now().Add(narrowFor)
}

// hasRefused reports whether a record of the key is to be sent again.
func (t *splitTopic) hasRefused(key []byte) bool {
	for _, s := range t.refused {
		if string(s.record.Key) == string(key) {
			return true
		}
	}
	return false
}

// resend ends the draining: it queues the refused records before the others and sends with the new bound.
func (p *splitter) resend(t *splitTopic) {
	most := p.maxBytes(p.life, t.name)
	p.mu.Lock()
	if t.limitDoubtful && most >= t.maxBytes {
		most = 0
	}
	t.limitDoubtful = false
	t.queue = append(t.refused, t.queue...)
	t.refused, t.bytes, t.maxBytes, t.draining = nil, 0, most, false
	p.mu.Unlock()
	p.pump(t)
}

// limit returns the topic's known max.message.bytes; 0: unknown.
func (p *splitter) limit(topic string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.topics[topic]; t != nil {
		return t.maxBytes
	}
	return 0
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// A broker checks max.message.bytes against a batch and refuses the whole batch. The client
// then fails every record in it, although each of them may fit. The Java client splits such a
// batch; this one doesn't. So what is in flight to a topic that refused a batch is bounded:
//
//   - A topic starts unbounded. After it refuses a batch it is narrow: new records wait, and
//     once nothing is in flight the refused ones are sent again, before the others.
//   - While a topic is narrow, all that is in flight to it has at most its max.message.bytes,
//     uncompressed. Then no batch can have more. If the topic's settings can't be read (that
//     needs the right DESCRIBE_CONFIGS), one record is in flight at a time.
//   - A record that is refused while it is alone in flight is too large itself.
//
// A topic is narrow for narrowFor. Then it is tried without a bound again, for its settings
// may have changed.

const (
	// batchBytesMax is the client's own bound of a batch, before compression. Kafka's default of
	// max.message.bytes is a little more.
	batchBytesMax = 1_000_012
	// batchOverhead is what a batch has besides its records, recordOverhead at most what a record has
	// besides its key, value and headers, and headerOverhead what a header has.
	batchOverhead  = 61
	recordOverhead = 40
	headerOverhead = 10

	narrowFor            = 10 * time.Minute
	describeTopicTimeout = 2 * time.Second
)

// TooLargeError says that a topic does not take a record, although the record was alone in
// its batch.
type TooLargeError struct {
	Topic string
	// Bytes of the record, with its headers, before compression.
	Bytes int
	// Most is what the topic takes as one batch; 0: it is not known.
	Max int
	Err error
}

func (e *TooLargeError) Error() string {
	if e.Max == 0 {
		return fmt.Sprintf("write to %s: the record is too large, it has %d bytes; the topic's max.message.bytes is less: %v", e.Topic, e.Bytes, e.Err)
	}
	return fmt.Sprintf("write to %s: the record is too large, it has %d bytes; the topic takes at most %d (max.message.bytes)", e.Topic, e.Bytes, e.Max)
}

// Unwrap is what the broker or the client said.
func (e *TooLargeError) Unwrap() error { return e.Err }

// TooLarge is Bytes and Most, for callers that know the error by its methods.
func (e *TooLargeError) TooLarge() (bytes, most int) { return e.Bytes, e.Max }

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// recordBytesMin and recordBytesMax bound what a record takes in a batch.
func recordBytesMin(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

func recordBytesMax(r *events.Record) int {
	return recordBytesMin(r) + recordOverhead + headerOverhead*len(r.Headers)
}

// maxMessageBytes asks what a topic takes as one batch; 0: that can't be found out.
func maxMessageBytes(ctx context.Context, cl *kgo.Client, topic string) int {
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

// sending is a record on its way.
type pendingRecord struct {
	record events.Record
	done   func(events.Record, error)
	bytes  int  // at most
	alone  bool // nothing else was in flight to its topic
}

// splitTopic is what a splitter knows of a topic.
type splitTopic struct {
	name     string
	inFlight int
	bytes    int // of what is in flight, while the topic is narrow

	narrow   bool
	until    time.Time // it is narrow
	maxBytes int       // max.message.bytes; 0: not known
	// holding: nothing is sent until the answers of all in flight are there and most was asked for.
	draining bool
	// doubted: it refused what most should allow.
	limitDoubtful bool
	refused       []*pendingRecord // refused in a batch, or sent after such a record of the same key
	queue         []*pendingRecord
	pumping       bool // one goroutine hands over at a time, for the order
}

// splitter bounds what is in flight to topics that refused a batch. It is safe for concurrent
// use.
type splitter struct {
	produce  func(*pendingRecord)                        // to the client
	maxBytes func(ctx context.Context, topic string) int // max.message.bytes; 0: not known
	life     context.Context

	mu     sync.Mutex
	topics map[string]*splitTopic
}

// send hands a record over, or has it wait where its topic is narrow.
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

// pump hands over what may go.
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

// next takes from the queue what may be in flight beside the rest.
func (t *splitTopic) next() *pendingRecord {
	if t.draining || len(t.queue) == 0 {
		return nil
	}
	s := t.queue[0]
	if t.inFlight > 0 && batchOverhead+t.bytes+s.bytes > t.maxBytes {
		return nil
	}
	t.queue = t.queue[1:]
	s.alone = t.inFlight == 0 && batchOverhead+s.bytes > t.maxBytes
	t.inFlight++
	t.bytes += s.bytes
	return s
}

// answered is for what became of a record that was handed over. It reports whether that is the
// caller's answer: else the record is sent again. Those of one partition come in the order in
// which they were sent.
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
	case isTooLarge(err) && !s.alone && recordBytesMin(&s.record) <= batchBytesMax:
		p.narrow(t)
		t.refused, final = append(t.refused, s), false
	case err == nil && t.draining && t.hasRefused(s.record.Key):
		// One of its key goes after it: it is sent again, so that the last one that a reader
		// finds is the last that was sent.
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

// narrow has a topic wait for what is in flight.
func (p *splitter) narrow(t *splitTopic) {
	if !t.narrow { // not those of a time long ago, of topics that may be gone
		now := time.Now()
		maps.DeleteFunc(p.topics, func(_ string, other *splitTopic) bool { return other.narrow && other.idle() && now.After(other.until) })
	}
	t.limitDoubtful = t.limitDoubtful || t.narrow && !t.draining
	t.narrow, t.draining, t.until = true, true, time.Now().Add(narrowFor)
}

// waitsFor reports whether one of a key is to be sent again.
func (t *splitTopic) hasRefused(key []byte) bool {
	for _, s := range t.refused {
		if string(s.record.Key) == string(key) {
			return true
		}
	}
	return false
}

// release sends again what was refused, and then the rest.
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

// bound is what a topic takes, as far as is known.
func (p *splitter) limit(topic string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.topics[topic]; t != nil {
		return t.maxBytes
	}
	return 0
}

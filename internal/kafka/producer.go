package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
)

const (
	// DefaultDeliveryTimeout is how long a record waits for its acknowledgement.
	DefaultDeliveryTimeout = 30 * time.Second

	producerBufferRecords = 8192
	// unknownTopicRetries times metadataMinAge is how long a topic may be missing: brokers learn of a new topic with a
	// delay. The client's default of metadataMinAge, 5 s, would make each retry that slow.
	unknownTopicRetries = 3
	metadataMinAge      = 100 * time.Millisecond
	produceRequestShare = 3 // this many sequential requests fit into a delivery timeout
)

// Producer writes records outside of transactions. They are acknowledged by all in-sync replicas, idempotent within the
// client's own retries, and ordered within a partition. A batch that its topic refuses as too large is split. Only a
// record that is too large by itself fails, with a *TooLargeError. Records that were sent after one of a split batch
// under the same key may be written twice. It is safe for concurrent use.
type Producer struct {
	cl        *kgo.Client
	cfg       Config
	written   *brokerclock.Writes
	recreated recreatedTopics
	// slots are held by records without a result, also those that the splitter keeps. With the client's own bound, the
	// produce call would block on the record's context, and a context that ends could fail other callers' records: see
	// Send.
	slots    *semaphore.Weighted
	splitter splitter
	end      context.CancelFunc
}

// OpenProducer returns a producer; it connects when it is first used.
func OpenProducer(c Config) (*Producer, error) { return OpenProducerWithin(c, DefaultDeliveryTimeout) }

// OpenProducerWithin is OpenProducer with another delivery timeout. When a record has waited this long, it and all records
// that wait for the same partition fail. Whether the broker has written them is then unknown.
func OpenProducerWithin(c Config, deliveryTimeout time.Duration) (*Producer, error) {
	if deliveryTimeout < time.Second {
		return nil, fmt.Errorf("open producer: delivery timeout %v is below 1s, less than a broker's failover takes; raise it", deliveryTimeout)
	}
	cl, err := kgo.NewClient(append(c.ClientOptions(), append(ProduceOptions(),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		kgo.ProduceRequestTimeout(max(time.Second, deliveryTimeout/produceRequestShare)),
		// Without it the timeout would not apply to records that may be in flight. If their broker has died, that is
		// all of them: they would wait for ever.
		kgo.AllowIdempotentProduceCancellation(),
	)...)...)
	if err != nil {
		return nil, fmt.Errorf("open producer: %w", err)
	}
	p := &Producer{cl: cl, cfg: c, written: brokerclock.NewWrites(c.Clock, c.Namespace, cl), slots: semaphore.NewWeighted(producerBufferRecords)}
	life, end := context.WithCancel(context.Background())
	p.end = end
	p.splitter = splitter{produce: p.produce, life: life, topics: map[string]*splitTopic{},
		maxBytes: func(ctx context.Context, topic string) int { return TopicMaxMessageBytes(ctx, cl, topic) }}
	return p, nil
}

// ProduceOptions are the options of every client that produces.
func ProduceOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(PartitionByKeyOrExplicit()),
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
		// Records that wait for an acknowledgement form batches without a linger.
		kgo.ProducerLinger(0),
		// More than slots admit: the client frees a record's place only some time after the record's callback has freed
		// its slot.
		kgo.MaxBufferedRecords(2 * producerBufferRecords),
		kgo.UnknownTopicRetries(unknownTopicRetries),
		kgo.MetadataMinAge(metadataMinAge),
	}
}

// PartitionByKeyOrExplicit returns a partitioner that uses a record's partition, or events.Partition of its key if the
// partition is negative.
func PartitionByKeyOrExplicit() kgo.Partitioner {
	return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, n int) int {
			if r.Partition >= 0 {
				return int(r.Partition)
			}
			return int(events.Partition(r.Key, int32(n)))
		}
	})
}

// Send writes records and returns when all are acknowledged, or else the first error. A negative Partition is chosen by
// the key. Records are not written atomically: after an error some may have been. If ctx ends, Send returns at once.
// Records that were not handed to the client yet are then not written; others may still be. Send doesn't cancel those,
// because the client would fail other callers' records with them.
func (p *Producer) Send(ctx context.Context, rs ...events.Record) error {
	results := make(chan error, len(rs))
	for i := range rs {
		p.SendAsync(ctx, rs[i], func(_ events.Record, err error) { results <- err })
	}
	var first error
	for range rs {
		select {
		case err := <-results:
			if err != nil && first == nil {
				first = err
			}
		case <-ctx.Done():
			if first != nil {
				return first
			}
			return fmt.Errorf("write %d records to %s: not acknowledged in time, they may still be written: %w", len(rs), rs[0].Topic, ctx.Err())
		}
	}
	return first
}

// SendAsync hands a record over. It calls done once: with the record, whose Partition, Offset and Time the broker
// assigned, or with an error. It blocks only while the buffer is full, and no longer than ctx lasts; once the record is
// handed over, ctx has no effect. done runs on the client's goroutine and must not block.
func (p *Producer) SendAsync(ctx context.Context, r events.Record, done func(events.Record, error)) {
	if err := ctx.Err(); err != nil {
		done(r, fmt.Errorf("write to %s: not attempted: %w", r.Topic, err))
		return
	}
	if err := p.slots.Acquire(ctx, 1); err != nil {
		done(r, fmt.Errorf("write to %s: not attempted, %d records wait already: %w", r.Topic, producerBufferRecords, err))
		return
	}
	p.splitter.send(&pendingRecord{record: r, done: done, bytes: RecordBytesMax(&r)})
}

// produce hands a record to the client.
func (p *Producer) produce(s *pendingRecord) {
	topic := s.record.Topic
	number, ok := p.recreated.generation(topic)
	if !ok {
		p.complete(s, nil, fmt.Errorf("write to %s: not attempted: it was deleted and recreated; try again", topic))
		return
	}
	sent := p.cfg.Clock.ProcessNow()
	p.cl.TryProduce(context.Background(), ToKgo(&s.record), func(kr *kgo.Record, err error) {
		if IsRecreated(err) {
			p.recreated.forget(p.cl, topic, number)
		}
		if err == nil {
			p.written.Observe(kr, sent)
		}
		p.complete(s, kr, err)
	})
}

// complete processes the result of a record. It calls done unless the splitter sends the record again.
func (p *Producer) complete(s *pendingRecord, kr *kgo.Record, err error) {
	if !p.splitter.onProduced(s, err) {
		return
	}
	defer p.slots.Release(1)
	r := s.record
	switch {
	case err == nil:
		r.Partition, r.Offset, r.Time = kr.Partition, kr.Offset, kr.Timestamp
		s.done(r, nil)
	case kr == nil: // the error is complete: it comes from produce itself
		s.done(r, err)
	case IsTooLarge(err):
		most := p.splitter.limit(r.Topic)
		if RecordBytesMin(&r) > BatchBytesMax && (most == 0 || most > BatchBytesMax) {
			most = BatchBytesMax
		}
		s.done(r, &TooLargeError{Topic: r.Topic, Bytes: RecordBytesMin(&r), Max: most, Err: err})
	default:
		s.done(r, WriteError(r.Topic, err))
	}
}

// Flush waits until each record that was handed over has its result, and done has returned. Records that are handed
// over meanwhile wait for it.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.slots.Acquire(ctx, producerBufferRecords); err != nil {
		return fmt.Errorf("flush producer: %w", err)
	}
	p.slots.Release(producerBufferRecords)
	return nil
}

// Close closes the producer. Records that are still buffered fail, so callers flush first.
func (p *Producer) Close() {
	p.end()
	p.cl.Close()
}

var (
	// ErrNoTopic is wrapped by errors about a topic that doesn't exist.
	ErrNoTopic = errors.New("no such topic")
	// ErrNotAcknowledged is wrapped if a record was not acknowledged within its delivery timeout.
	ErrNotAcknowledged = errors.New("not acknowledged in time, it may still be written")
)

// WriteError returns the error of a record that wasn't written to a topic, with what to do.
func WriteError(topic string, err error) error {
	switch {
	case IsTopicMissing(err):
		return fmt.Errorf("write to %s: %w; create it, for a topic of Waybill with `waybill topics create`", topic, ErrNoTopic)
	case IsTooLarge(err):
		return fmt.Errorf("write to %s: record too large: %w", topic, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("write to %s: not permitted; grant WRITE and DESCRIBE on it: %w", topic, err)
	case errors.Is(err, kgo.ErrRecordTimeout):
		return fmt.Errorf("write to %s: %w; check that the brokers are up and in sync: %w", topic, ErrNotAcknowledged, err)
	}
	return fmt.Errorf("write to %s: %w", topic, err)
}

// SendOne appends a record, and returns it as acknowledged, with partition, offset and time. If ctx ends first, the
// record may still be appended: the client retries for DefaultDeliveryTimeout.
func (p *Producer) SendOne(ctx context.Context, r events.Record) (events.Record, error) {
	type ack struct {
		r   events.Record
		err error
	}
	acks := make(chan ack, 1)
	p.SendAsync(ctx, r, func(r events.Record, err error) { acks <- ack{r, err} })
	select {
	case a := <-acks:
		return a.r, a.err
	case <-ctx.Done():
		return events.Record{}, ctx.Err()
	}
}

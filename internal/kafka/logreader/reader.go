package logreader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	readerMaxWait  = 250 * time.Millisecond
	readerBackoff  = 100 * time.Millisecond
	readerMaxBytes = 4 << 20
	// readerMissingTries times readerBackoff is how long a topic may be unknown to a broker before it counts
	// as deleted: new metadata takes time to spread.
	readerMissingTries = 20
	// readerCorruptTries fetches of a batch with a wrong checksum show that it wasn't corrupted in transit.
	readerCorruptTries = 4
	// emptyFetchesMax fetches without a record, below the last stable offset, mean that compaction left
	// nothing there.
	emptyFetchesMax = 3
)

// reader reads committed records of one partition in order and knows its exact position. A consumer client
// doesn't: it silently skips transaction markers and batches that compaction emptied. Its records don't show
// whether it has reached the end, and a caller that waits for the record before the end could wait forever.
// Not for concurrent use.
type reader struct {
	cl       *kgo.Client
	at       kafka.TopicPartition
	bytesMax int32 // bound of a fetch
	// compacted: compaction may have removed records. empty counts the last fetches without records below the
	// last stable offset.
	compacted bool
	empty     int

	leader      int32
	topicID     [16]byte
	leaderKnown bool
	batches     *batchReader // the last response; it owns the position

	// lastErr is the retriable error of the last call of next, or nil. missing counts the last calls that found
	// no topic.
	lastErr error
	missing int

	// tell, which may be nil, receives corrupt batches. strict: the reader doesn't wait for them to become readable. It
	// skips them if tell is set, and otherwise fails. Without strict it retries, because another replica may have an
	// intact copy, and calls tell at tries whose number is a power of 2.
	tell    func(*CorruptError)
	strict  bool
	corrupt int // number of consecutive calls that found corruption
}

// newReader returns a reader that begins at an offset. With reuse, the records that next returns, with keys, values and
// headers, are valid until its next call.
func newReader(cl *kgo.Client, topic string, partition int32, from int64, reuse bool) *reader {
	return &reader{cl: cl, at: kafka.TopicPartition{Topic: topic, Partition: partition}, bytesMax: readerMaxBytes, batches: newBatchReader(topic, partition, from, reuse)}
}

// position is the next offset to read.
func (r *reader) position() int64 { return r.batches.position }

// seek sets the next offset to read.
func (r *reader) seek(offset int64) { r.batches.seek(offset) }

// next returns the next records and advances the position. It returns none after readerMaxWait at the end of the
// partition, and after a retriable error, which lastErr then holds: call it again until ctx ends. Errors that it
// returns are final.
func (r *reader) next(ctx context.Context) ([]events.Record, error) {
	records, err := r.readChunk(ctx)
	if err == nil {
		r.lastErr, r.missing, r.corrupt = nil, 0, 0
		return records, nil
	}
	r.empty = 0
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if d, is := errors.AsType[*CorruptError](err); is {
		switch r.corrupt++; {
		case r.corrupt < readerCorruptTries:
		case r.strict:
			return nil, r.skipBatch(d)
		case r.tell != nil && r.corrupt&(r.corrupt-1) == 0:
			r.tell(d)
		}
	}
	err = fmt.Errorf("read %s/%d at %d: %w", r.at.Topic, r.at.Partition, r.position(), err)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		r.missing++
	}
	switch {
	case r.missing > readerMissingTries:
		return nil, fmt.Errorf("%w; it was deleted, or the cluster has lost its data: `waybill topics create` creates it again, without its records", err)
	case kafka.IsFinal(err):
		return nil, err
	}
	r.lastErr, r.leaderKnown = err, false
	return nil, backoff.Sleep(ctx, readerBackoff)
}

// skipBatch continues after a corrupt batch if tell is set; otherwise it returns the error.
func (r *reader) skipBatch(d *CorruptError) error {
	if r.tell == nil || d.Next <= r.position() {
		return d
	}
	r.tell(d)
	r.seek(d.Next)
	r.corrupt = 0
	return nil
}

// readChunk returns the next records of the last response, or fetches another.
func (r *reader) readChunk(ctx context.Context) ([]events.Record, error) {
	for fetched := false; ; fetched = true {
		before := r.position()
		records, err := r.batches.next()
		switch {
		case len(records) > 0 || err != nil || r.position() > before:
			return records, err
		case fetched:
			return nil, errors.New("the broker's response has no complete record batch at the position")
		}
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
		if len(r.batches.rest) == 0 {
			return nil, nil
		}
	}
}

// fetch requests records from the position on.
func (r *reader) fetch(ctx context.Context) error {
	if err := r.findLeader(ctx); err != nil {
		return err
	}
	request := newFetchRequest(readerMaxWait)
	request.add(r.at, r.topicID, r.position(), r.bytesMax)
	response, err := request.send(ctx, r.cl, r.leader)
	if err != nil {
		return err
	}
	fetched, err := response.partition(r.at, r.topicID)
	if err == nil {
		err = r.checkResponse(fetched, time.Duration(response.ThrottleMillis)*time.Millisecond)
	}
	if err != nil {
		return err
	}
	r.batches.contiguous = !r.compacted
	r.batches.startResponse(fetched)
	return r.skipEmpty(fetched)
}

// noDataError is a response without an error and without information about the partition. It must not be
// taken for the end of the log.
type noDataError struct {
	why   string
	pause time.Duration // the throttle time, which the client observes
}

func (e *noDataError) Error() string {
	if e.pause > 0 {
		return fmt.Sprintf("the broker %s, and throttles the client for %v: a quota is used up", e.why, e.pause)
	}
	return "the broker " + e.why
}

// checkResponse returns an error if a response without records may not be taken for the end of the log. p is nil if it
// left the partition out: Apache Kafka answers a throttled client without an error and without any partition (KIP-219).
// A reader that took this for the end of the log would skip all events of the partition.
func (r *reader) checkResponse(p *kmsg.FetchResponseTopicPartition, pause time.Duration) error {
	switch {
	case p == nil:
		return &noDataError{"omitted the partition from its answer", pause}
	case len(p.RecordBatches) > 0:
	case pause > 0:
		return &noDataError{"returned no records", pause}
	case p.PreferredReadReplica >= 0:
		return &noDataError{why: fmt.Sprintf("returned no records, and names broker %d as the replica to read from", p.PreferredReadReplica)}
	case p.LastStableOffset < r.position():
		// A new leader may not know the high watermark yet, and reports no error. Until it does it refuses only
		// ListOffsets (KIP-207).
		return &noDataError{why: fmt.Sprintf("has committed records below %d only", p.LastStableOffset)}
	}
	return nil
}

// skipEmpty checks a response without records. Transaction markers and aborted records do arrive as batches. So if
// committed records end further on, records were removed. Only compaction may do that; in other topics they are lost.
// The same holds for the offsets before a batch (batchReader.contiguous): a broker that has lost a segment returns the next one.
func (r *reader) skipEmpty(p *kmsg.FetchResponseTopicPartition) error {
	switch {
	case len(p.RecordBatches) > 0 || p.LastStableOffset <= r.position():
		r.empty = 0
	case !r.compacted:
		return &CorruptError{Topic: r.at.Topic, Partition: r.at.Partition, Offset: r.position(), Next: p.LastStableOffset, Gone: true}
	default:
		if r.empty++; r.empty == emptyFetchesMax {
			r.seek(p.LastStableOffset)
			r.empty = 0
		}
	}
	return nil
}

// findLeader looks up the partition's leader, unless it is known.
func (r *reader) findLeader(ctx context.Context) error {
	if r.leaderKnown {
		return nil
	}
	meta, err := kafka.Metadata(ctx, kadm.NewClient(r.cl), r.at.Topic)
	if err != nil {
		return err
	}
	t := meta.Topics[r.at.Topic]
	if t.Err != nil {
		return t.Err
	}
	p, ok := t.Partitions[r.at.Partition]
	switch {
	case !ok:
		return kerr.UnknownTopicOrPartition
	case p.Leader < 0:
		return kerr.LeaderNotAvailable
	case p.Err != nil && !kerr.IsRetriable(p.Err):
		return p.Err
	}
	r.leader, r.topicID, r.leaderKnown = p.Leader, [16]byte(t.ID), true
	return nil
}

// ReadCompacted calls fn with the committed records of a compacted topic, partition by partition, in offset order: of
// each partition of ends those in [start, end). An error of fn ends the read.
func ReadCompacted(ctx context.Context, cl *kgo.Client, topic string, starts, ends map[int32]int64, fn func(events.Record) error) error {
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		r := newReader(cl, topic, p, starts[p], false)
		r.compacted = true
		for r.position() < ends[p] {
			batch, err := r.next(ctx)
			if err != nil {
				return errors.Join(err, r.lastErr)
			}
			for _, record := range batch {
				if record.Offset >= ends[p] {
					break
				}
				if err := fn(record); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

package logreader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/listener"
)

const (
	// openTransactionGrace is how long the markers of a transaction may take before it counts as left open.
	openTransactionGrace = 500 * time.Millisecond
	// stableInterval is how often the last stable offset is requested while an open transaction holds it back.
	stableInterval = 25 * time.Millisecond
	// readAllPartitionsMax is how many partitions ReadAll reads concurrently.
	readAllPartitionsMax = 4
	// progressInterval is how often a long read reports its progress.
	progressInterval = time.Second
)

// OffsetRangeError says that a position is not in the log: the log was trimmed above it, or the position is from
// another log. The state that belongs to it must be rebuilt from a snapshot or from the start. Continuing at
// another offset would silently lose records.
type OffsetRangeError struct {
	Topic     string
	Partition int32
	Offset    int64
	// Start and End bound the log: [Start, End).
	Start, End int64
}

func (e *OffsetRangeError) Error() string {
	return fmt.Sprintf("topic %s partition %d: offset %d is not in the log, which holds [%d, %d)", e.Topic, e.Partition, e.Offset, e.Start, e.End)
}

// Permanent reports true: another client can't read the offset either. Either the state belongs to another log, or
// the log was truncated below it.
func (e *OffsetRangeError) Permanent() bool { return true }

// Ahead reports whether the position lies beyond the log's end: its owner has records that the log doesn't have.
func (e *OffsetRangeError) Ahead() bool { return e.Offset > e.End }

// RestoreListener observes a Restorer. Its functions may be called from
// several goroutines at once.
type RestoreListener struct {
	// Blocked: a transaction has been open below end for longer than the grace, so the records from stable on
	// can't be read yet. It is called again, with NotFenced, at intervals that double.
	Blocked func(topic string, partition int32, stable, end int64)
	// Fenced: a transactional id was fenced, and its transaction rolled back.
	Fenced func(transactionalID string)
	// NotFenced: the open transaction could not be found or fenced, or hangs (see HangingError). The read keeps
	// waiting for its end.
	NotFenced func(topic string, partition int32, err error)
	// Corrupt: records were changed after they were written, or are lost. The read retries them, because another
	// replica may have them, and reports them again at intervals that double.
	Corrupt func(*CorruptError)
	// Progress is called about every second of a read, which has reached next of end. trouble is why the read
	// is stuck at the moment, such as unavailable brokers or a used up quota; nil: it advances.
	Progress func(topic string, partition int32, next, end int64, trouble error)
}

// Restorer reads committed records of given partitions to their end. It is safe for concurrent use; all reads share one
// client.
type Restorer struct {
	cfg      kafka.Config
	listener *RestoreListener
	readOnly bool
	client   *kgo.Client
	admin    *kadm.Client

	// fencing has an element while an id is being fenced, and guards fenced and orphaned. It is a channel because
	// a caller must be able to give up waiting for the broker.
	fencing  chan struct{}
	fenced   map[producer]time.Time // when
	orphaned map[producer]time.Time // since when
}

// producer is one incarnation of a transactional id.
type producer struct {
	id    int64
	epoch int16
}

// OpenRestorer returns a Restorer. It connects when it is first used. The listener and its fields may be nil.
func OpenRestorer(cfg kafka.Config, l *RestoreListener) (*Restorer, error) {
	client, err := kgo.NewClient(append(cfg.ClientOptions(), kgo.MetadataMinAge(groupmember.MetadataAgeMin))...)
	if err != nil {
		return nil, fmt.Errorf("restorer: client: %w", err)
	}
	return &Restorer{cfg: cfg, listener: listener.Complete(l), client: client, admin: kadm.NewClient(client), fenced: map[producer]time.Time{}, orphaned: map[producer]time.Time{}, fencing: make(chan struct{}, 1)}, nil
}

// OpenReadOnlyRestorer is OpenRestorer for callers that take over no partition. Its reads fence no transaction. They
// end before a transaction that stays open for longer than half a second.
func OpenReadOnlyRestorer(cfg kafka.Config, listener *RestoreListener) (*Restorer, error) {
	r, err := OpenRestorer(cfg, listener)
	if err == nil {
		r.readOnly = true
	}
	return r, err
}

// Close ends all reads.
func (r *Restorer) Close() { r.client.Close() }

// EndOffsets returns the high watermarks of a topic's partitions.
func (r *Restorer) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := r.admin.ListEndOffsets(ctx, topic)
	return kafka.AllOffsets(topic, "end", listed, err)
}

// Read calls fn with the committed records of a partition in order, from offset from to the high watermark at the
// time of the call, and perhaps later ones. It returns the next offset to read, which is beyond the last record if
// transaction markers follow it.
//
// It reads to the high watermark, not to the last stable offset: the previous owner's positions may be committed
// before the markers of its last transaction are written. If a transaction stays open for longer than half a second,
// Read fences its transactional id, if that begins with the namespace and "scheduler.". It waits for transactions
// of other ids. A read-only Restorer stops there instead.
//
// Records, with keys, values and headers, are valid until fn returns.
//
// Read waits for unavailable partitions. If from is not in the log, the error is an *OffsetRangeError. An error
// of fn ends the read and is returned wrapped.
func (r *Restorer) Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error) {
	return r.read(ctx, newReader(r.client, topic, p, from, true), fn)
}

func (r *Restorer) read(ctx context.Context, in *reader, fn func([]events.Record) error) (next int64, err error) {
	topic, p, from := in.at.Topic, in.at.Partition, in.position()
	in.tell = r.listener.Corrupt
	start, end, err := r.awaitBounds(ctx, topic, p, from)
	if err != nil {
		return from, err
	}
	if from < start || from > end {
		return from, &OffsetRangeError{Topic: topic, Partition: p, Offset: from, Start: start, End: end}
	}
	s := r.newScan(in, end, fn)
	s.progress = r.listener.Progress
	waits := 0
	err = s.run(ctx, func(ctx context.Context) (giveUp bool) {
		if r.readOnly {
			return true
		}
		waits++
		r.endBlocking(ctx, topic, p, s.stable, end, waits&(waits-1) == 0)
		return false
	})
	return s.reader.position(), err
}

// ReadLast is Read of the last n offsets; all reports whether the log has no more. fn may keep the records. The
// error is Permanent if the topic can't be read at all.
func (r *Restorer) ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error) {
	start, end, err := r.awaitBounds(ctx, topic, p, 0)
	if err == nil {
		_, err = r.read(ctx, newReader(r.client, topic, p, max(start, end-n), false), fn)
	}
	for _, gone := range []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.TopicAuthorizationFailed} {
		if errors.Is(err, gone) {
			err = &unreadableError{err}
		}
	}
	return end-n <= start, err
}

// unreadableError is the error of a topic that doesn't exist or that the principal may not read.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// Permanent reports true: no other client can read it.
func (e *unreadableError) Permanent() bool { return true }

// awaitBounds is bounds, and waits while the partition is unavailable: a worker that restarted because of one
// partition would never continue with its others. Meanwhile Progress reports the position from.
func (r *Restorer) awaitBounds(ctx context.Context, topic string, p int32, from int64) (start, end int64, err error) {
	for toldAt := time.Now(); ; {
		start, end, err = r.bounds(ctx, topic, p)
		switch {
		case ctx.Err() != nil:
			return start, end, ctx.Err()
		case err == nil, kafka.IsFinal(err), errors.Is(err, kerr.UnknownTopicOrPartition):
			return start, end, err
		}
		if time.Since(toldAt) >= progressInterval {
			toldAt = time.Now()
			r.listener.Progress(topic, p, from, from+1, err) // the end isn't known; from+1 shows that records are left
		}
		_ = backoff.Sleep(ctx, readerBackoff)
	}
}

func (r *Restorer) bounds(ctx context.Context, topic string, p int32) (start, end int64, err error) {
	// The end first: a trim in between must not put the start above the end.
	for _, ask := range []struct {
		what string
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		to   *int64
	}{{"end", r.admin.ListEndOffsets, &end}, {"start", r.admin.ListStartOffsets, &start}} {
		if *ask.to, err = listOffset(ctx, ask.list, topic, p); err != nil {
			return 0, 0, fmt.Errorf("%s of topic %s partition %d: %w", ask.what, topic, p, err)
		}
	}
	return start, max(start, end), nil
}

func listOffset(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), topic string, p int32) (int64, error) {
	offsets, err := list(ctx, topic)
	o, ok := offsets.Lookup(topic, p)
	switch {
	case ok: // errors of other partitions don't matter
		return o.Offset, o.Err
	case err != nil:
		return 0, err
	}
	return 0, kerr.UnknownTopicOrPartition
}

// partitionScan is the state of one read of one partition.
type partitionScan struct {
	r      *Restorer
	reader *reader
	end    int64
	stable int64 // last stable offset, as known
	fn     func([]events.Record) error

	trimmed    func(partition int32, start int64)                                  // nil: trimmed records end the read
	progress   func(topic string, partition int32, next, end int64, trouble error) // nil: no reports
	reportedAt time.Time                                                           // of the last report, or the start
}

func (r *Restorer) newScan(in *reader, end int64, fn func([]events.Record) error) *partitionScan {
	in.compacted = kafka.IsCompacted(r.cfg.Namespace, in.at.Topic)
	return &partitionScan{r: r, reader: in, end: end, fn: fn}
}

// run reads to the end. While an open transaction holds it back it calls held after each openTransactionGrace,
// until held gives up.
func (s *partitionScan) run(ctx context.Context, held func(context.Context) (giveUp bool)) error {
	for s.reportedAt = time.Now(); s.reader.position() < s.end; s.reportProgress(s.reader.lastErr) {
		if s.reader.position() >= s.stable {
			gaveUp, err := s.awaitStable(ctx, held)
			if gaveUp || err != nil {
				return err
			}
		}
		records, err := s.reader.next(ctx)
		if err != nil {
			if err = s.rangeError(ctx, err); !s.skipTrimmed(err) {
				return err
			}
		}
		if len(records) > 0 {
			if err := s.fn(records); err != nil {
				return fmt.Errorf("take the records of %s/%d below %d: %w", s.reader.at.Topic, s.reader.at.Partition, s.reader.position(), err)
			}
		}
	}
	return nil
}

// reportProgress reports the read's position every progressInterval.
func (s *partitionScan) reportProgress(trouble error) {
	if s.progress == nil || time.Since(s.reportedAt) < progressInterval {
		return
	}
	s.reportedAt = time.Now()
	s.progress(s.reader.at.Topic, s.reader.at.Partition, s.reader.position(), max(s.end, s.reader.position()), trouble)
}

// rangeError adds the bounds of the log to an OFFSET_OUT_OF_RANGE error.
func (s *partitionScan) rangeError(ctx context.Context, err error) error {
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return err
	}
	start, end, boundsErr := s.r.bounds(ctx, s.reader.at.Topic, s.reader.at.Partition)
	if boundsErr != nil {
		return errors.Join(err, boundsErr)
	}
	return &OffsetRangeError{Topic: s.reader.at.Topic, Partition: s.reader.at.Partition, Offset: s.reader.position(), Start: start, End: end}
}

// skipTrimmed moves the read past records that were trimmed before it reached them, and reports whether it did.
func (s *partitionScan) skipTrimmed(err error) bool {
	gone, is := errors.AsType[*OffsetRangeError](err)
	if !is || s.trimmed == nil || gone.Start <= gone.Offset {
		return false
	}
	s.reader.seek(gone.Start)
	s.trimmed(gone.Partition, gone.Start)
	return true
}

// awaitStable waits until the last stable offset is above the position. It polls the offset instead of waiting in a
// fetch, which would block fetches of other partitions on the connection.
func (s *partitionScan) awaitStable(ctx context.Context, held func(context.Context) (giveUp bool)) (gaveUp bool, err error) {
	grace := time.NewTimer(openTransactionGrace)
	defer grace.Stop()
	again := time.NewTicker(stableInterval)
	defer again.Stop()
	for {
		stable, err := listOffset(ctx, s.r.admin.ListCommittedOffsets, s.reader.at.Topic, s.reader.at.Partition)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && kafka.IsFinal(err):
			return false, fmt.Errorf("stable offset of topic %s partition %d: %w", s.reader.at.Topic, s.reader.at.Partition, err)
		case err == nil:
			if s.stable = stable; s.reader.position() < stable {
				return false, nil
			}
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-grace.C:
			if err != nil { // without an answer nothing is known of a transaction
				s.reportProgress(err)
			} else if held(ctx) {
				return true, nil
			}
			grace.Reset(openTransactionGrace)
		case <-again.C:
		}
	}
}

// Range limits what ReadAll reads. The zero value reads everything.
type Range struct {
	// Partitions to read; nil: all.
	Partitions []int32
	// Since leaves out older records, by their timestamps; zero: none.
	Since time.Time
	// From leaves out the offsets below it in each partition.
	From int64
	// Offsets leaves out the offsets below it in the partitions that it has, instead of older records.
	Offsets map[int32]int64
	// Concurrent allows concurrent calls of fn for different partitions. The calls for one partition are
	// sequential.
	Concurrent bool
	// ReuseBuffers: records, with keys, values and headers, are valid until fn returns. It takes half of the
	// processor time, and little memory (BenchmarkReadLog).
	ReuseBuffers bool
	// Corrupt receives corrupt batches, in log order among the records that fn receives. Calls for several partitions
	// may be concurrent. Nil: corruption ends the read.
	Corrupt func(*CorruptError)
	// Blocked is called for a partition that can't be read to its end: an open transaction holds back the
	// committed records in [next, end). Calls for several partitions may be concurrent. It may be nil.
	Blocked func(partition int32, next, end int64)
	// Trimmed is called for a partition that was trimmed above the read's position. fn may have missed records below
	// start, where the read continues. Calls for several partitions may be concurrent. Nil: the read ends with an
	// *OffsetRangeError.
	Trimmed func(partition int32, start int64)
	// Unavailable is called, before the read begins, for each partition that is left out because its bounds are
	// unknown, such as a leaderless one. If Unavailable is nil, one such partition fails the read; if all are
	// unavailable, the read fails anyway.
	Unavailable func(partition int32)
}

func (in *Range) reader(cl *kgo.Client, topic string, p int32, from int64) *reader {
	r := newReader(cl, topic, p, from, in.ReuseBuffers)
	r.strict, r.tell = true, in.Corrupt
	return r
}

// concurrency is how many partitions are read concurrently.
func (in *Range) concurrency() int {
	if in.Concurrent {
		return max(readAllPartitionsMax, runtime.GOMAXPROCS(0))
	}
	return readAllPartitionsMax
}

// ReadAll calls fn with the committed records of a topic up to the current high watermarks, in order within a
// partition. It reads several partitions concurrently, but calls fn (see Range.Concurrent) and progress from one
// goroutine at a time. It returns the offset where it stopped in each partition. Records that
// aren't as they were written are a *CorruptError, or Range.Corrupt's.
//
// ReadAll fences nobody: it stops before a transaction that stays open for half a second, and calls Range.Blocked.
// progress, which may be nil, receives the number of offsets that are done and the total.
func (r *Restorer) ReadAll(ctx context.Context, topic string, in Range, fn func([]events.Record) error, progress func(done, total int64)) (map[int32]int64, error) {
	starts, ends, err := r.readBounds(ctx, topic, in)
	if err != nil {
		return nil, err
	}
	var (
		mu          sync.Mutex
		done, total int64
		reached     = make(map[int32]int64, len(ends))
	)
	// The first error ends all reads and is returned.
	readers, ctx := errgroup.WithContext(ctx)
	for p, end := range ends {
		total += max(0, end-starts[p])
	}
	report := func(n int64) {
		done += n
		if progress != nil {
			progress(min(done, total), total)
		}
	}
	readers.SetLimit(in.concurrency())
	for p, end := range ends {
		readers.Go(func() error {
			last := starts[p]
			s := r.newScan(in.reader(r.client, topic, p, last), end, nil)
			s.trimmed = in.Trimmed
			s.fn = func(rs []events.Record) error {
				mu.Lock()
				report(s.reader.position() - last)
				last = s.reader.position()
				if in.Concurrent {
					mu.Unlock()
					return fn(rs)
				}
				defer mu.Unlock()
				return fn(rs)
			}
			err := s.run(ctx, func(context.Context) bool {
				if in.Blocked != nil {
					in.Blocked(p, s.reader.position(), end)
				}
				return true
			})
			mu.Lock()
			defer mu.Unlock()
			report(max(0, s.reader.position()-last))
			reached[p] = s.reader.position()
			return err
		})
	}
	return reached, readers.Wait()
}

// readBounds returns the first offset and the end of the read for each partition.
func (r *Restorer) readBounds(ctx context.Context, topic string, in Range) (starts, ends map[int32]int64, err error) {
	wanted := func(which string, listed kadm.ListedOffsets, err error) (offsets map[int32]int64, _ error) {
		switch {
		case in.Unavailable != nil:
			offsets, err = kafka.KnownOffsets(topic, which, listed, err)
		case in.Partitions == nil:
			offsets, err = kafka.AllOffsets(topic, which, listed, err)
		default:
			offsets, err = kafka.OffsetsOfPartitions(topic, which, in.Partitions, listed, err)
		}
		if err != nil {
			err = LeaderlessError(ctx, r.admin, topic, in.Partitions, err)
		}
		return offsets, err
	}
	last, err := r.admin.ListEndOffsets(ctx, topic)
	if ends, err = wanted("end", last, err); err != nil {
		return nil, nil, err
	}
	var first kadm.ListedOffsets
	if in.Since.IsZero() {
		first, err = r.admin.ListStartOffsets(ctx, topic)
	} else {
		first, err = r.admin.ListOffsetsAfterMilli(ctx, in.Since.UnixMilli(), topic)
	}
	if starts, err = wanted("start", first, err); err != nil {
		return nil, nil, err
	}
	for p, start := range starts {
		starts[p] = max(start, in.From)
		if offset, has := in.Offsets[p]; has {
			starts[p] = max(offset, in.From)
		}
	}
	if in.Unavailable != nil {
		err = r.omitUnavailable(ctx, topic, in, starts, ends)
	}
	return starts, ends, err
}

// omitUnavailable removes the partitions that aren't wanted, and those with an unknown bound. It calls
// Range.Unavailable for the latter.
func (r *Restorer) omitUnavailable(ctx context.Context, topic string, in Range, starts, ends map[int32]int64) error {
	meta, err := kafka.Metadata(ctx, r.admin, topic)
	if err == nil {
		err = meta.Topics[topic].Err
	}
	if err != nil {
		return fmt.Errorf("look up topic %s: %w", topic, err)
	}
	for p := range meta.Topics[topic].Partitions {
		_, begins := starts[p]
		_, ended := ends[p]
		wanted := in.Partitions == nil || slices.Contains(in.Partitions, p)
		switch {
		case wanted && begins && ended:
			continue
		case wanted:
			in.Unavailable(p)
		}
		delete(starts, p)
		delete(ends, p)
	}
	return nil
}

package kafka

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
)

const (
	// openTransactionGrace is how long the end of a transaction may take to arrive
	// before it counts as left open.
	openTransactionGrace = 500 * time.Millisecond
	// stableInterval is how often the broker is asked for the last stable
	// offset while a transaction holds it back.
	stableInterval = 25 * time.Millisecond
	// readAllPartitionsMax is how many partitions ReadAll reads at once.
	readAllPartitionsMax = 4
	// progressInterval is how often it is told how far a long read is.
	progressInterval = time.Second
)

// OffsetRangeError says that a position is not in the log: the log was trimmed
// above it, or the position is from another log. What it belongs to must be
// rebuilt from a snapshot or from the start; going on elsewhere would lose
// records in silence.
type OffsetRangeError struct {
	Topic     string
	Partition int32
	Offset    int64
	// Start and End are what the log holds: [Start, End).
	Start, End int64
}

func (e *OffsetRangeError) Error() string {
	return fmt.Sprintf("topic %s partition %d: offset %d is not in the log, which holds [%d, %d)", e.Topic, e.Partition, e.Offset, e.Start, e.End)
}

// Permanent reports true: no other client finds what the log doesn't hold. Either
// the state is another log's, or the log was cut below it.
func (e *OffsetRangeError) Permanent() bool { return true }

// Ahead reports whether the position lies beyond the log's end: its owner has what the log doesn't have.
func (e *OffsetRangeError) Ahead() bool { return e.Offset > e.End }

// RestoreListener observes a Restorer. Its functions may be called from
// several goroutines at once.
type RestoreListener struct {
	// Blocked: a transaction has been open below end for longer than the
	// grace; the records from stable on can't be read yet. It is said again, with
	// NotFenced, at intervals that double.
	Blocked func(topic string, partition int32, stable, end int64)
	// Fenced: a transactional id was fenced, and its transaction rolled back.
	Fenced func(transactionalID string)
	// NotFenced: what is open could not be found or fenced, or hangs (see
	// HangingError); the read goes on waiting for it to end.
	NotFenced func(topic string, partition int32, err error)
	// Damaged: records aren't as they were written. The read goes on asking for them, for
	// another replica may have them, and says so again at intervals that double.
	Damaged func(*DamagedError)
	// Progress: a read has taken a second, since it began or since that was said last, and
	// has come to next of end. trouble is why it isn't going on at the moment: brokers that are
	// away, a quota that is used up; nil: it is.
	Progress func(topic string, partition int32, next, end int64, trouble error)
}

// Restorer reads committed records of given partitions to their end. Its
// methods may be called from many goroutines; they share one client.
type Restorer struct {
	cfg      Config
	listener RestoreListener
	readOnly bool
	client   *kgo.Client
	admin    *kadm.Client

	// fencing holds one while an id is being fenced, and guards what follows. No
	// mutex: who waits for it waits for an answer of the broker, and may give up.
	fencing  chan struct{}
	fenced   map[producer]time.Time // when
	orphaned map[producer]time.Time // since when
}

// producer is one incarnation of a transactional id.
type producer struct {
	id    int64
	epoch int16
}

// OpenRestorer connects when it is first used. The listener may be nil.
func OpenRestorer(cfg Config, listener *RestoreListener) (*Restorer, error) {
	client, err := kgo.NewClient(append(cfg.options(), kgo.MetadataMinAge(metadataAgeMin))...)
	if err != nil {
		return nil, fmt.Errorf("restorer: client: %w", err)
	}
	r := &Restorer{cfg: cfg, client: client, admin: kadm.NewClient(client), fenced: map[producer]time.Time{}, orphaned: map[producer]time.Time{}, fencing: make(chan struct{}, 1)}
	if listener != nil {
		r.listener = *listener
	}
	return r, nil
}

// OpenReadOnlyRestorer is OpenRestorer for who takes over nothing: its reads fence nobody, and end where a
// transaction stays open for longer than half a second.
func OpenReadOnlyRestorer(cfg Config, listener *RestoreListener) (*Restorer, error) {
	r, err := OpenRestorer(cfg, listener)
	if err == nil {
		r.readOnly = true
	}
	return r, err
}

// Close ends all reads.
func (r *Restorer) Close() { r.client.Close() }

// EndOffsets are the high watermarks of a topic's partitions.
func (r *Restorer) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := r.admin.ListEndOffsets(ctx, topic)
	return allOffsets(topic, "end", listed, err)
}

// Read gives fn the committed records of a partition, from offset from to the
// high watermark as it is now, in order, and perhaps some that came since. It
// returns the offset to read next, which is beyond the last record where
// transaction markers follow it.
//
// It reads to the high watermark, not to the last stable offset: the markers
// of the previous owner's last transaction may still be on their way when its
// positions are committed already. If a transaction stays open for longer than
// half a second, Read fences the transactional ids behind it that begin with
// the namespace and "scheduler.", and nobody else's: those it waits for. A bystander's
// read ends there.
//
// The records that fn is given, and all that they hold, are good until it returns.
//
// A partition that no broker leads, or of which the brokers don't say what it holds, is
// waited for. If from is not in the log, the error is an *OffsetRangeError. An error of
// fn ends the read and is returned as it is, wrapped.
func (r *Restorer) Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error) {
	return r.read(ctx, newReusingReader(r.client, topic, p, from), fn)
}

func (r *Restorer) read(ctx context.Context, in *reader, fn func([]events.Record) error) (next int64, err error) {
	topic, p, from := in.topic, in.partition, in.position()
	in.tell = r.listener.Damaged
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

// ReadLast is Read of the last n offsets, or of all where there are fewer, and
// says which; fn may keep the records. An error is Permanent where the topic can't be
// read at all.
func (r *Restorer) ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error) {
	start, end, err := r.awaitBounds(ctx, topic, p, 0)
	if err == nil {
		_, err = r.read(ctx, newReader(r.client, topic, p, max(start, end-n)), fn)
	}
	for _, gone := range []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.TopicAuthorizationFailed} {
		if errors.Is(err, gone) {
			err = &unreadableError{err}
		}
	}
	return end-n <= start, err
}

// unreadableError is of a topic that isn't there, or not for us.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// Permanent reports true: no other client can read it.
func (e *unreadableError) Permanent() bool { return true }

// awaitBounds is bounds, and waits while the cluster doesn't tell them, as of a partition that no
// broker leads: a worker that began anew for it would never go on with the others that it has.
// Meanwhile Progress is told that the read stands at from.
func (r *Restorer) awaitBounds(ctx context.Context, topic string, p int32, from int64) (start, end int64, err error) {
	for toldAt := time.Now(); ; {
		start, end, err = r.bounds(ctx, topic, p)
		switch {
		case ctx.Err() != nil:
			return start, end, ctx.Err()
		case err == nil, isFinal(err), errors.Is(err, kerr.UnknownTopicOrPartition):
			return start, end, err
		}
		if r.listener.Progress != nil && time.Since(toldAt) >= progressInterval {
			toldAt = time.Now()
			r.listener.Progress(topic, p, from, from+1, err) // there is something to do, nobody knows how much
		}
		select {
		case <-ctx.Done():
		case <-time.After(readerBackoff):
		}
	}
}

func (r *Restorer) bounds(ctx context.Context, topic string, p int32) (start, end int64, err error) {
	// The end first: a trim in between must not put the start above it.
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
	case ok: // whatever is wrong with other partitions
		return o.Offset, o.Err
	case err != nil:
		return 0, err
	}
	return 0, kerr.UnknownTopicOrPartition
}

// scan is one read of one partition.
type partitionScan struct {
	r      *Restorer
	reader *reader
	end    int64
	stable int64 // last stable offset, as known
	fn     func([]events.Record) error

	trimmed    func(partition int32, start int64)                                  // nil: that ends the read
	progress   func(topic string, partition int32, next, end int64, trouble error) // nil: nobody is told
	reportedAt time.Time                                                           // or began
}

func (r *Restorer) newScan(in *reader, end int64, fn func([]events.Record) error) *partitionScan {
	in.compacted = compacted(r.cfg.Namespace, in.topic)
	return &partitionScan{r: r, reader: in, end: end, fn: fn}
}

// run reads to the end. Where a transaction holds it back for longer than the
// grace it calls held, again after each further grace, until held gives up.
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
				return fmt.Errorf("take the records of %s/%d below %d: %w", s.reader.topic, s.reader.partition, s.reader.position(), err)
			}
		}
	}
	return nil
}

// tell says how far the read is, if that is due.
func (s *partitionScan) reportProgress(trouble error) {
	if s.progress == nil || time.Since(s.reportedAt) < progressInterval {
		return
	}
	s.reportedAt = time.Now()
	s.progress(s.reader.topic, s.reader.partition, s.reader.position(), max(s.end, s.reader.position()), trouble)
}

// ranged says where the log is, if an error is that we are not in it.
func (s *partitionScan) rangeError(ctx context.Context, err error) error {
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return err
	}
	start, end, boundsErr := s.r.bounds(ctx, s.reader.topic, s.reader.partition)
	if boundsErr != nil {
		return errors.Join(err, boundsErr)
	}
	return &OffsetRangeError{Topic: s.reader.topic, Partition: s.reader.partition, Offset: s.reader.position(), Start: start, End: end}
}

// skips reports whether the read goes on past what was trimmed before it came there.
func (s *partitionScan) skipTrimmed(err error) bool {
	gone, is := errors.AsType[*OffsetRangeError](err)
	if !is || s.trimmed == nil || gone.Start <= gone.Offset {
		return false
	}
	s.reader.seek(gone.Start)
	s.trimmed(gone.Partition, gone.Start)
	return true
}

// await waits until there is something stable to read. It asks for the offset
// instead of waiting in a fetch, which would block the fetches of the other
// partitions on the connection.
func (s *partitionScan) awaitStable(ctx context.Context, held func(context.Context) (giveUp bool)) (gaveUp bool, err error) {
	grace := time.NewTimer(openTransactionGrace)
	defer grace.Stop()
	again := time.NewTicker(stableInterval)
	defer again.Stop()
	for {
		stable, err := listOffset(ctx, s.r.admin.ListCommittedOffsets, s.reader.topic, s.reader.partition)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && isFinal(err):
			return false, fmt.Errorf("stable offset of topic %s partition %d: %w", s.reader.topic, s.reader.partition, err)
		case err == nil:
			if s.stable = stable; s.reader.position() < stable {
				return false, nil
			}
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-grace.C:
			if err != nil { // who doesn't answer says nothing of a transaction
				s.reportProgress(err)
			} else if held(ctx) {
				return true, nil
			}
			grace.Reset(openTransactionGrace)
		case <-again.C:
		}
	}
}

// Range narrows what ReadAll reads. The zero value is everything.
type Range struct {
	// Partitions to read; nil: all.
	Partitions []int32
	// Since leaves out what is older, by the records' timestamps; zero: none.
	Since time.Time
	// From leaves out what lies below it in each partition.
	From int64
	// Apart lets fn be called for several partitions at once: for one partition it
	// is one goroutine still.
	Concurrent bool
	// Lend: the records that fn is given, and all that they hold, are good until it
	// returns. It takes half of the processor time, and little memory (BenchmarkReadLog).
	ReuseBuffers bool
	// Damaged is told of records that aren't as they were written, and that fn isn't given,
	// in its place among them; several partitions' at once. nil: they end the read.
	Damaged func(*DamagedError)
	// Held is told of a partition that can't be read to its end: of what is committed there at next
	// and above, below end, a transaction that stays open holds back all. Several partitions' at
	// once; nil: nobody is told.
	Blocked func(partition int32, next, end int64)
	// Trimmed is told of a partition that was trimmed above where its read was: of what lay below start perhaps
	// not all was given, and the read goes on there. Several partitions' at once; nil: it is an *OffsetRangeError.
	Trimmed func(partition int32, start int64)
	// Away is told, before anything is read, of a partition that is left out because the cluster doesn't
	// say where it begins and ends, as of one that no broker leads. nil: one such ends the read, and so do
	// all.
	Unavailable func(partition int32)
}

func (in *Range) reader(cl *kgo.Client, topic string, p int32, from int64) *reader {
	r := newReader(cl, topic, p, from)
	if in.ReuseBuffers {
		r = newReusingReader(cl, topic, p, from)
	}
	r.strict, r.tell = true, in.Damaged
	return r
}

// atOnce is how many partitions are read at a time.
func (in *Range) concurrency() int {
	if in.Concurrent {
		return max(readAllPartitionsMax, runtime.GOMAXPROCS(0))
	}
	return readAllPartitionsMax
}

// ReadAll gives fn the committed records of a topic, up to the high watermarks
// as they are now, in order within a partition; several partitions are read
// at once, but fn (see Range.Apart) and progress are called by one goroutine at a time. It
// returns where it stopped in each partition: that is what the answer is as of. Records that
// aren't as they were written are a *DamagedError, or Range.Damaged's.
//
// ReadAll fences nobody: below a transaction that stays open it stops after
// half a second, which Range.Held is told. progress, which may be nil, is told how many offsets of all
// are done.
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
	// The first error ends all, and is the one that is returned.
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

// span is where each partition is to be read from and to.
func (r *Restorer) readBounds(ctx context.Context, topic string, in Range) (starts, ends map[int32]int64, err error) {
	wanted := func(which string, listed kadm.ListedOffsets, err error) (offsets map[int32]int64, _ error) {
		switch {
		case in.Unavailable != nil:
			offsets, err = knownOffsets(topic, which, listed, err)
		case in.Partitions == nil:
			offsets, err = allOffsets(topic, which, listed, err)
		default:
			offsets, err = offsetsOfPartitions(topic, which, in.Partitions, listed, err)
		}
		if err != nil {
			err = leaderlessError(ctx, r.admin, topic, in.Partitions, err)
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
	}
	if in.Unavailable != nil {
		err = r.omitUnavailable(ctx, topic, in, starts, ends)
	}
	return starts, ends, err
}

// leaveOut takes out the partitions that aren't wanted, and those of which one of the bounds isn't known, which
// Range.Away is told.
func (r *Restorer) omitUnavailable(ctx context.Context, topic string, in Range, starts, ends map[int32]int64) error {
	meta, err := metadata(ctx, r.admin, topic)
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

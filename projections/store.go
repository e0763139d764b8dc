package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
)

// The defaults of Options.
const (
	DefaultCacheBytes    = 64 << 20
	DefaultHotBytes      = 32 << 20
	DefaultMemtableBytes = 64 << 20
	DefaultFlushEvery    = 10 * time.Second
)

// Compaction can wait, since reads are few and mostly served from memory or the cache. Data that was just written
// should not be rewritten seconds later.
const (
	l0Compaction  = 16        // sorted runs in level 0 before it is compacted
	lbaseBytesMax = 256 << 20 // of the first level below
)

// MinMemtableBytes is the lower bound of MemtableBytes.
const MinMemtableBytes = 256 << 10

// memtablesKept is the number of memtables that Pebble keeps: the one that is written, and one that is being flushed or
// is kept for reuse. Pebble subtracts their size from the block cache. With no cache left, every lookup reads filters
// from the disk (BenchmarkUnknownTask: 5.9 us of CPU, 1.8 us with a cache).
const memtablesKept = 2

// unflushedMemtablesMax bounds the saved and unflushed data, in memtables. At the bound Save waits for a flush.
const unflushedMemtablesMax = 4

// neverStall exceeds every number of memtables and files, so that Pebble never stalls a write. A stalled write can't be
// cancelled if the flush that it waits for fails. Save waits instead, and can be cancelled.
const neverStall = 1 << 20

// bloomBitsPerKey gives one false positive in a hundred lookups of an unknown task.
const bloomBitsPerKey = 10

// FS is the file system of a store. Tests use one in memory that loses what wasn't synced.
type FS = vfs.FS

// Options are the settings of a store. The zero value has the defaults.
type Options struct {
	FS            FS            // nil: the file system of the operating system
	CacheBytes    int64         // block cache
	HotBytes      int           // bound of the open tasks, or rows, that views keep decoded, by their stored size
	MemtableBytes int           // at least MinMemtableBytes
	FlushEvery    time.Duration // how long saved data may wait for Run to flush it
	Snapshots     SnapshotOptions
	Listener      *Listener

	valueFiles int // 0: valueFilesReferred; tests set less
}

// Listener observes a store. Fields may be nil. Background and Fatal are called by Pebble's
// goroutines under its locks: they must return soon and not call the store.
type Listener struct {
	Saved   func(Saved)
	Flushed func(took time.Duration)
	// Snapshot is called once a snapshot of a partition of tasks was committed.
	Snapshot func(partition int32, of events.Snapshot)
	// Background receives errors of flushes and compactions, and errors that Pebble would only log.
	Background func(error)
	// Fatal receives the reason why the store stopped, once.
	Fatal func(error)
}

// Saved describes one Save.
type Saved struct {
	Partition int32
	Next      int64
	Entries   int // tasks, or events of timelines
	Bytes     int
}

// Store is one directory with one view of the partitions that its process reads. Its methods may be
// called from several goroutines. A view is for one goroutine.
type Store struct {
	dir string
	id  Identity
	o   Options
	db  *pebble.DB

	stopped      atomic.Pointer[stopReason]
	faulty       atomic.Bool                // the store has failed: no change reaches the disk any more
	lateFailure  atomic.Pointer[stopReason] // the first failure after the store had stopped
	decoded      atomic.Int64               // the value of MemoryUse.Decoded
	failed       chan struct{}              // closed when stopped is set
	pebbleClosed chan struct{}              // closed when Pebble is closed
	flushDue     chan struct{}              // capacity 1: a flush by size is due
	flushing     sync.Mutex

	mu             sync.Mutex
	users          int // calls inside Pebble
	closing        bool
	closeErr       error
	views          map[int32]bool // partitions with an open view
	saved          map[int32]mark
	flushed        map[int32]mark
	unflushedBytes int // of what was saved since the last flush

	flushesBegun, flushesEnded uint64 // flushes run one at a time
}

// stopReason is the reason why a store stopped.
type stopReason struct{ err error }

// mark is the state of a partition as of an offset.
type mark struct {
	next  int64
	state events.PartitionState
}

func (o *Options) setDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.HotBytes <= 0 {
		o.HotBytes = DefaultHotBytes
	}
	if o.MemtableBytes <= 0 {
		o.MemtableBytes = DefaultMemtableBytes
	}
	o.MemtableBytes = max(o.MemtableBytes, MinMemtableBytes)
	if o.FlushEvery <= 0 {
		o.FlushEvery = DefaultFlushEvery
	}
	if o.Listener == nil {
		o.Listener = &Listener{}
	}
	o.Snapshots.setDefaults()
}

// Open opens the store in dir, and creates it if there is none. It refuses a directory that belongs to another cluster,
// namespace, partition count or view, or has another format (ErrForeign), that another store has open (ErrInUse), or
// that can't be read (ErrCorrupt). Each error says what to do.
func Open(dir string, id Identity, o Options) (*Store, error) {
	o.setDefaults()
	if id.Format == 0 {
		id.Format = Format
	}
	if err := id.validate(); err != nil {
		return nil, fmt.Errorf("projections: open %s: %w", dir, err)
	}
	if err := makeDir(o.FS, dir); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, o.FS)
	if err != nil {
		return nil, fmt.Errorf("projections: lock %s: %w: %w: stop the other process that has it open, or give this one another --data-dir", dir, ErrInUse, err)
	}
	s := &Store{
		dir: dir, id: id, o: o,
		failed: make(chan struct{}), pebbleClosed: make(chan struct{}), flushDue: make(chan struct{}, 1),
		views: map[int32]bool{}, saved: map[int32]mark{}, flushed: map[int32]mark{},
	}
	err = s.open(lock)
	// Pebble holds its own reference to the lock, so this one is always released.
	err = errors.Join(err, lock.Close())
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) open(lock *pebble.Lock) error {
	fresh, err := s.id.checkDir(s.o.FS, s.dir)
	if err != nil {
		return err
	}
	if fresh {
		if err := s.id.markCreating(s.o.FS, s.dir); err != nil {
			return err
		}
	}
	if !fresh {
		if err := s.checkValues(lock); err != nil {
			return err
		}
	}
	db, err := pebble.Open(s.dir, s.pebbleOptions(lock, fresh))
	if err != nil {
		return s.openError(err)
	}
	s.mu.Lock()
	s.db = db
	s.mu.Unlock()
	if fresh {
		err = s.id.markCreated(s.o.FS, s.dir)
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		s.fail(err)
		s.closeIfIdle() // fail may have been called before s.db was set
		<-s.pebbleClosed
		return errors.Join(err, s.closeErr)
	}
	return nil
}

// openError wraps Pebble's error of opening the store, with ErrCorrupt and the remedy if the store is corrupt.
func (s *Store) openError(err error) error {
	if errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, os.ErrNotExist) || pebble.IsCorruptionError(err) {
		return fmt.Errorf("projections: open %s: %w; %s: %w", s.dir, err, remedy, ErrCorrupt)
	}
	return fmt.Errorf("projections: open %s: %w", s.dir, err)
}

func (s *Store) pebbleOptions(lock *pebble.Lock, fresh bool) *pebble.Options {
	o := &pebble.Options{
		FS: disk{s.o.FS, s}, Lock: lock, ErrorIfNotExists: !fresh,
		DisableWAL:                  true, // the Kafka log replaces it
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   s.o.CacheBytes + memtablesKept*int64(s.o.MemtableBytes),
		MemTableSize:                uint64(s.o.MemtableBytes),
		MemTableStopWritesThreshold: neverStall,
		L0StopWritesThreshold:       neverStall,
		L0CompactionThreshold:       l0Compaction,
		LBaseMaxBytes:               lbaseBytesMax,
		Logger:                      pebbleLogger{s},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				s.background(err)
				s.fail(s.backgroundError(err))
			},
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.fail(s.corrupt(info.Details))
			},
		},
	}
	values := s.o.values()
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return values }
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	return o
}

// backgroundError returns the reason to stop after a failed flush or compaction. Pebble reports corrupt values only
// here, and corrupt keys by DataCorruption too.
func (s *Store) backgroundError(err error) error {
	if pebble.IsCorruptionError(err) {
		return s.corrupt(err)
	}
	return fmt.Errorf("projections: %s: Pebble failed in the background: %w; see to the disk, then start again: nothing is lost, the log is replayed", s.dir, err)
}

func (s *Store) corrupt(err error) error {
	return fmt.Errorf("projections: %s: %w; %s: %w", s.dir, err, remedy, ErrCorrupt)
}

// background reports an error to the listener. Once the store has stopped, further errors are consequences and aren't
// reported.
func (s *Store) background(err error) {
	if s.faulty.Load() {
		return
	}
	if f := s.o.Listener.Background; f != nil {
		f(err)
	}
}

// pebbleLogger receives Pebble's log. Pebble's default logger ends the process.
type pebbleLogger struct{ s *Store }

// Infof drops messages for developers of Pebble.
func (pebbleLogger) Infof(string, ...any) {}

// Errorf reports an error after which Pebble works on.
func (l pebbleLogger) Errorf(format string, args ...any) { l.s.background(fmt.Errorf(format, args...)) }

// Fatalf stops the store instead of the process. Pebble doesn't expect Fatalf to return. So no further call enters
// Pebble, and it is closed.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.s.fail(fmt.Errorf("projections: %s: Pebble can't go on: %w; see to the disk, then start again; if it says so again, delete the directory: it is rebuilt from the log", l.s.dir, err))
}

// fail stops the store. The caller may be Pebble, under its locks. So Pebble is closed by another goroutine, once no
// call is inside.
func (s *Store) fail(err error) {
	s.faulty.Store(true)
	if !s.stopped.CompareAndSwap(nil, &stopReason{err}) {
		s.lateFailure.CompareAndSwap(nil, &stopReason{err})
		return
	}
	close(s.failed)
	if f := s.o.Listener.Fatal; f != nil {
		f(err)
	}
	s.closeIfIdle()
}

// closeIfIdle closes a stopped store's Pebble once no call is inside.
func (s *Store) closeIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() == nil || s.users > 0 || s.closing || s.db == nil {
		return
	}
	s.closing = true
	go func() {
		s.closeErr = s.db.Close()
		close(s.pebbleClosed)
	}()
}

// Err returns why the store stopped; nil while it works. After Close without a failure it wraps ErrClosed.
func (s *Store) Err() error {
	if r := s.stopped.Load(); r != nil {
		return r.err
	}
	return nil
}

// enter must succeed before Pebble is called, and leave must follow. Calls may be nested. The inner enter fails if the
// store stopped in between.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	s.users++
	return nil
}

func (s *Store) leave() {
	s.mu.Lock()
	s.users--
	s.mu.Unlock()
	if s.Err() != nil {
		s.closeIfIdle()
	}
}

// use calls fn with Pebble. A corruption error stops the store.
func (s *Store) use(fn func(*pebble.DB) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	err := fn(s.db)
	if err != nil && pebble.IsCorruptionError(err) {
		s.fail(s.corrupt(err))
	}
	if stopped := s.Err(); stopped != nil {
		return stopped
	}
	return err
}

// write commits one batch, atomically.
func (s *Store) write(fill func(*pebble.Batch) error) (size int, err error) {
	err = s.use(func(db *pebble.DB) error {
		b := db.NewBatch()
		err := fill(b)
		if err == nil {
			size = b.Len()
			err = b.Commit(pebble.NoSync)
		}
		return errors.Join(err, b.Close())
	})
	return size, err
}

// hotBytesMax returns a view's share of HotBytes.
func (s *Store) hotBytesMax() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.HotBytes / max(1, len(s.views))
}

// recordSaved records the state that a partition's batch reflects. If too much is unflushed it waits for a flush.
func (s *Store) recordSaved(p int32, m mark, bytes int) error {
	s.mu.Lock()
	s.saved[p] = m
	s.unflushedBytes += bytes
	unflushed := s.unflushedBytes
	s.mu.Unlock()
	if unflushed >= s.o.MemtableBytes/2 {
		select {
		case s.flushDue <- struct{}{}:
		default: // a flush is due already
		}
	}
	if unflushed >= unflushedMemtablesMax*s.o.MemtableBytes {
		return s.Flush()
	}
	return nil
}

// Flush puts on disk what was saved before the call. It returns when that is done, or when the store has stopped.
func (s *Store) Flush() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	start := time.Now()
	err := s.use(func(db *pebble.DB) error {
		s.mu.Lock()
		saved, bytes := maps.Clone(s.saved), s.unflushedBytes
		s.flushesBegun++
		number := s.flushesBegun
		s.mu.Unlock()
		done, err := db.AsyncFlush()
		if err != nil {
			return fmt.Errorf("projections: flush %s: %w", s.dir, err)
		}
		select {
		case <-done:
		case <-s.failed:
		}
		if err := s.Err(); err != nil {
			return err // even if done is closed, since a sync of the flush may have failed
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.flushed, saved)
		s.unflushedBytes -= bytes
		s.flushesEnded = number
		return nil
	})
	if err == nil && s.o.Listener.Flushed != nil {
		s.o.Listener.Flushed(time.Since(start))
	}
	return err
}

// flushes returns the number of flushes that have begun, and the number of the last that has ended.
func (s *Store) flushes() (begun, ended uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushesBegun, s.flushesEnded
}

// Run flushes by time and by size until ctx ends, then returns nil. An error is the reason why the store stopped.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(s.o.FlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.failed:
			return s.Err()
		case <-tick.C:
		case <-s.flushDue:
		}
		s.mu.Lock()
		idle := s.unflushedBytes == 0
		s.mu.Unlock()
		if idle {
			continue
		}
		if err := s.Flush(); err != nil {
			return err
		}
	}
}

// Close flushes what was saved and closes the store. What views haven't saved is lost; it is replayed from the log.
// Close also closes a store that has stopped, and returns why it had stopped.
func (s *Store) Close() error {
	err := s.Flush()
	if s.stopped.CompareAndSwap(nil, &stopReason{fmt.Errorf("projections: %s: %w", s.dir, ErrClosed)}) {
		close(s.failed)
	}
	s.closeIfIdle()
	<-s.pebbleClosed
	if late := s.lateFailure.Load(); late != nil {
		err = errors.Join(err, late.err)
	}
	return errors.Join(err, s.closeErr)
}

// Partitions lists the partitions that have data in the store.
func (s *Store) Partitions() ([]int32, error) {
	var ps []int32
	err := s.use(func(db *pebble.DB) error {
		for p := range s.id.Partitions {
			k := keyspace{viewLetters[s.id.View], p}
			_, closer, err := db.Get(k.key(kindMeta, ""))
			if errors.Is(err, pebble.ErrNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("projections: read the offset of partition %d in %s: %w", p, s.dir, err)
			}
			if err := closer.Close(); err != nil {
				return err
			}
			ps = append(ps, p)
		}
		return nil
	})
	return ps, err
}

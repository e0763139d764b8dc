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
	"github.com/waybill-run/waybill/internal/listener"
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

// neverStall exceeds every number of memtables and files, so that Pebble never stalls a write. Save waits for a flush
// instead (unflushedMemtablesMax).
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
	// Fatal ends the process with a *DiskError: it must not return. nil: the process panics.
	Fatal func(error)

	valueFiles int // 0: valueFilesReferred; tests set less
}

// Listener observes a store. Fields may be nil.
type Listener struct {
	Saved   func(Saved)
	Flushed func(took time.Duration)
	// Snapshot is called once a snapshot of a partition of tasks was committed.
	Snapshot func(partition int32, of events.Snapshot)
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

	decoded  atomic.Int64  // the value of MemoryUse.Decoded
	flushDue chan struct{} // capacity 1: a flush by size is due
	flushing sync.Mutex

	// closing is held for reading by calls from several goroutines, which may come after Close.
	closing sync.RWMutex
	closed  bool

	mu             sync.Mutex
	views          map[int32]bool // partitions with an open view
	viewClosed     *sync.Cond     // a view was closed
	saved          map[int32]mark
	flushed        map[int32]mark
	flushingMarks  map[int32]mark // saved as of the begin of the running flush, without partitions that were wiped since
	unflushedBytes int            // of what was saved since the last flush

	flushesBegun, flushesEnded uint64 // flushes run one at a time
}

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
	o.Listener = listener.Complete(o.Listener)
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
		return nil, &DiskError{dir, err}
	}
	lock, err := pebble.LockDirectory(dir, o.FS)
	if err != nil {
		return nil, fmt.Errorf("projections: lock %s: %w: %w: stop the other process that has it open, or give this one another --data-dir", dir, ErrInUse, err)
	}
	s := &Store{dir: dir, id: id, o: o, flushDue: make(chan struct{}, 1), views: map[int32]bool{}, saved: map[int32]mark{}, flushed: map[int32]mark{}}
	s.viewClosed = sync.NewCond(&s.mu)
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
			return s.diskError(err)
		}
	} else if err := s.checkValues(lock); err != nil {
		return s.openError(err)
	}
	if s.db, err = pebble.Open(s.dir, s.pebbleOptions(lock, fresh)); err != nil {
		return s.openError(err)
	}
	if !fresh {
		return nil
	}
	if err := s.id.markCreated(s.o.FS, s.dir); err != nil {
		return errors.Join(s.diskError(err), s.db.Close())
	}
	return nil
}

// openError wraps Pebble's error of opening the store.
func (s *Store) openError(err error) error {
	if errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return s.diskError(fmt.Errorf("open: %w", err))
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
		EventListener:               s.eventListener(),
	}
	values := s.o.values()
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy { return values }
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	return o
}

// enter allows a call from any goroutine until leave, or returns ErrClosed.
func (s *Store) enter() (leave func(), err error) {
	s.closing.RLock()
	if s.closed {
		s.closing.RUnlock()
		return nil, fmt.Errorf("projections: %s: %w", s.dir, ErrClosed)
	}
	return s.closing.RUnlock, nil
}

// hotBytesMax returns a view's share of HotBytes.
func (s *Store) hotBytesMax() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.HotBytes / max(1, len(s.views))
}

// recordSaved records the state that a partition's batch reflects. If too much is unflushed it waits for a flush.
func (s *Store) recordSaved(p int32, m mark, bytes int) {
	s.mu.Lock()
	s.saved[p] = m
	unflushed := s.unflushedBytes + bytes
	s.mu.Unlock()
	if unflushed >= s.o.MemtableBytes/2 {
		select {
		case s.flushDue <- struct{}{}:
		default: // a flush is due already
		}
	}
	s.recordLoaded(bytes)
}

// recordLoaded counts a batch that doesn't change the partition's saved offset. If too much is unflushed it waits for a
// flush.
func (s *Store) recordLoaded(bytes int) {
	s.mu.Lock()
	s.unflushedBytes += bytes
	unflushed := s.unflushedBytes
	s.mu.Unlock()
	if unflushed >= unflushedMemtablesMax*s.o.MemtableBytes {
		s.flush()
	}
}

// Flush puts on disk what was saved before the call.
func (s *Store) Flush() error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.flush()
	return nil
}

func (s *Store) flush() {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	start := time.Now()
	s.mu.Lock()
	bytes := s.unflushedBytes
	s.flushingMarks = maps.Clone(s.saved)
	s.flushesBegun++
	number := s.flushesBegun
	s.mu.Unlock()
	s.check(s.db.Flush())
	s.mu.Lock()
	maps.Copy(s.flushed, s.flushingMarks)
	s.unflushedBytes -= bytes
	s.flushesEnded = number
	s.mu.Unlock()
	s.o.Listener.Flushed(time.Since(start))
}

// flushes returns the number of flushes that have begun, and the number of the last that has ended.
func (s *Store) flushes() (begun, ended uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushesBegun, s.flushesEnded
}

// Run flushes by time and by size until ctx ends or the store is closed.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(s.o.FlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.flushDue:
		}
		s.mu.Lock()
		idle := s.unflushedBytes == 0
		s.mu.Unlock()
		if !idle && s.Flush() != nil {
			return
		}
	}
}

// Close waits until all views are closed, flushes what was saved and closes the store. What views haven't saved is
// lost; it is replayed from the log.
func (s *Store) Close() error {
	s.mu.Lock()
	for len(s.views) > 0 {
		s.viewClosed.Wait()
	}
	s.mu.Unlock()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return fmt.Errorf("projections: %s: %w", s.dir, ErrClosed)
	}
	s.flush()
	s.closed = true
	if err := s.db.Close(); err != nil {
		return s.diskError(fmt.Errorf("close: %w", err))
	}
	return nil
}

// Partitions lists the partitions that have data in the store.
func (s *Store) Partitions() ([]int32, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var ps []int32
	for p := range s.id.Partitions {
		r := reader{s, s.db, keyspace{viewLetters[s.id.View], p}}
		r.get(kindMeta, "", func([]byte) error {
			ps = append(ps, p)
			return nil
		})
	}
	return ps, nil
}

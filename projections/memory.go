package projections

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// MemoryUse is the bounded memory of a store, in bytes. Its bounds don't depend on the size of the data on disk.
type MemoryUse struct {
	Cache     int64 // blocks of Pebble's files
	Memtables int64 // saved and not flushed, with the memtable that Pebble keeps for reuse
	Decoded   int64 // stored size of the open tasks, or rows, that are also decoded in memory
}

// Sum returns the sum of the parts.
func (h MemoryUse) Sum() int64 { return h.Cache + h.Memtables + h.Decoded }

// MemoryUse returns the memory in use as of the last Save, and its bounds. A decoded task takes
// about two to three times its stored size; Decoded counts the stored size.
func (s *Store) MemoryUse() (held, most MemoryUse, err error) {
	leave, err := s.enter()
	if err != nil {
		return held, most, err
	}
	defer leave()
	m := s.db.Metrics()
	held = MemoryUse{Cache: m.BlockCache.Size, Memtables: int64(m.MemTable.Size + m.MemTable.ZombieSize), Decoded: s.decoded.Load()}
	most = MemoryUse{Cache: s.o.CacheBytes, Memtables: int64(s.o.MemtableBytes) * memtablesKept}
	if s.id.View != ViewDeadlines {
		most.Decoded = int64(s.o.HotBytes)
	}
	return held, most, nil
}

// FreeSpace returns the free part of the disk, from 0 to 1; ok is false if the file system doesn't tell.
func (s *Store) FreeSpace() (part float64, ok bool) {
	u, err := s.o.FS.GetDiskUsage(s.dir)
	if err != nil || u.TotalBytes == 0 {
		return 0, false
	}
	return float64(u.AvailBytes) / float64(u.TotalBytes), true
}

const (
	// WaitCompacted polls Pebble this often. It returns after idlePollsMin polls in a row without
	// work, since one compaction starts another at once.
	idlePollEvery = 20 * time.Millisecond
	idlePollsMin  = 5
)

// WaitCompacted flushes what was saved. It returns when no compaction runs and the statistics of
// all tables are read, or the error of ctx. Pebble has no event for that. It is for measurements,
// and for tests whose disk must fail for one reader only.
func (s *Store) WaitCompacted(ctx context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.flush()
	tick := time.NewTicker(idlePollEvery)
	defer tick.Stop()
	for quiet := 0; quiet < idlePollsMin; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		quiet++
		if hasBackgroundWork(s.db.Metrics()) {
			quiet = 0
		}
	}
	return nil
}

// hasBackgroundWork reports whether Pebble reads or writes tables in the background.
func hasBackgroundWork(m *pebble.Metrics) bool {
	return m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 ||
		!m.Table.InitialStatsCollectionComplete || m.Table.PendingStatsCollectionCount > 0
}

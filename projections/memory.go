package projections

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Held is what a store holds in memory that has a bound, whatever it holds on disk; in
// bytes.
type MemoryUse struct {
	Cache     int64 // blocks of Pebble's files
	Memtables int64 // what was saved and isn't flushed, with the memtable that Pebble keeps for the next
	Decoded   int64 // stored forms of the open tasks, or rows, that are kept decoded as well
}

// Sum is that of the parts.
func (h MemoryUse) Sum() int64 { return h.Cache + h.Memtables + h.Decoded }

// Held says how much of its bounds a store uses, as of the last Save, and what they are. Decoded, a task takes
// about two to three times its stored form, which no part counts.
func (s *Store) MemoryUse() (held, most MemoryUse, err error) {
	err = s.use(func(db *pebble.DB) error {
		m := db.Metrics()
		held = MemoryUse{Cache: m.BlockCache.Size, Memtables: int64(m.MemTable.Size + m.MemTable.ZombieSize), Decoded: s.decoded.Load()}
		return nil
	})
	most = MemoryUse{Cache: s.o.CacheBytes, Memtables: int64(s.o.MemtableBytes) * memtablesKept}
	if s.id.View != ViewDeadlines {
		most.Decoded = int64(s.o.HotBytes)
	}
	return held, most, err
}

const (
	// idlePollEvery is how often Settle looks at Pebble, and idlePollsMin how often in a row
	// nothing is to be compacted then: one compaction follows another at once.
	idlePollEvery = 20 * time.Millisecond
	idlePollsMin  = 5
)

// Settle flushes what was saved, and returns when nothing is being compacted any more and the
// statistics of all tables are read, or the error of ctx. It is for who measures, or has the disk
// fail for one reader: Pebble tells nobody that it is done.
func (s *Store) WaitCompacted(ctx context.Context) error {
	if err := s.Flush(); err != nil {
		return err
	}
	tick := time.NewTicker(idlePollEvery)
	defer tick.Stop()
	for quiet := 0; quiet < idlePollsMin; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		err := s.use(func(db *pebble.DB) error {
			quiet++
			if hasBackgroundWork(db.Metrics()) {
				quiet = 0
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// busy says whether Pebble reads or writes tables in the background.
func hasBackgroundWork(m *pebble.Metrics) bool {
	return m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 ||
		!m.Table.InitialStatsCollectionComplete || m.Table.PendingStatsCollectionCount > 0
}

package projections

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// Hot is the number of open tasks that are in memory decoded.
func (v *Tasks) Hot() int { return len(v.open.hot) }

// Check finds what Tasks.open holds that can't be.
func (v *Tasks) Check() string { return v.open.check(&v.snap) }

// EndedMostBytes bounds EndedBytes.
const EndedMostBytes = endedBytesMax

// EndedBytes is what is kept in memory of finished tasks for the next snapshot.
func (v *Tasks) EndedBytes() (n int) {
	for _, data := range v.snap.ended {
		n += len(data)
	}
	return n
}

// Forget has the next snapshot be whole, as too much that has ended does.
func (v *Tasks) Forget() { v.restartFull() }

// ListWithin is List with another bound of entries that it may look at in each partition.
func (s *Store) ListWithin(ctx context.Context, partitions []int32, f Filter, after Cursor, limit, looks int) (Page, error) {
	return s.list(ctx, partitions, &f, after, limit, looks)
}

// HotRows is the number of rows that are in memory.
func (t *Timelines) HotRows() int { return len(t.rows.byTask) }

// IndexEntries lists all entries of the index, and what they were made from.
func (t *Timelines) IndexEntries() (entries []string, err error) {
	err = t.v.eachEntry(func(f facet, c Cursor) {
		entries = append(entries, fmt.Sprintf("%q %d %q", string(f), c.Submitted, c.Task))
	})
	if err == nil {
		err = t.v.each(kindDue, func(rest string, _ []byte) error { entries = append(entries, fmt.Sprintf("due %x", rest)); return nil })
	}
	slices.Sort(entries)
	return entries, err
}

// WantedEntries are those that a row must have.
func WantedEntries(s *events.Summary) (entries []string) {
	st := indexStateOf(s)
	facets, ended := posted(s)
	if facets = append(facets, st.own()...); ended != "" {
		facets = append(facets, ended)
	}
	for _, f := range facets {
		entries = append(entries, fmt.Sprintf("%q %d %q", string(f), cursorOf(s).Submitted, s.ID))
	}
	if st.due != 0 {
		entries = append(entries, fmt.Sprintf("due %x", keyspace{}.appendDueKey(nil, st.due, s.ID)[prefixBytes:]))
	}
	return entries
}

// Rewriting are the options of a store whose compactions write nearly all values anew.
func (o Options) Rewriting() Options {
	o.valueFiles = 1
	return o
}

// Compact writes what is in memory to the disk and puts it in order. It ends when the store
// stops: Pebble tries what fails again and again before.
func (s *Store) Compact() error {
	if err := s.Flush(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.failed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return s.use(func(db *pebble.DB) error { return db.Compact(ctx, []byte{0}, []byte{0xff}, true) })
}

// DiskUsage is about how many bytes the timelines take on disk, by what they are.
func (s *Store) DiskUsage() (map[string]uint64, error) {
	sizes := map[string]uint64{}
	err := s.use(func(db *pebble.DB) error {
		for p := range s.id.Partitions {
			for kind, what := range map[byte]string{kindPlaces: "places", kindRow: "rows", kindIndex: "index", kindPosting: "index", kindDue: "index"} {
				lower, upper := keyspace{viewLetters[s.id.View], p}.bounds(kind)
				n, err := db.EstimateDiskUsage(lower, upper)
				if err != nil {
					return err
				}
				sizes[what] += n
			}
		}
		return nil
	})
	return sizes, err
}

// KeepPastAlerts changes how many past alerts are kept of a partition, until it is undone.
func KeepPastAlerts(most int) (undo func()) {
	was := maxPastAlerts
	maxPastAlerts = int64(most)
	return func() { maxPastAlerts = was }
}

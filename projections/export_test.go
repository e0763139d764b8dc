package projections

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Hot returns the number of open tasks that are decoded in memory.
func (v *Tasks) Hot() int { return len(v.open.hot) }

// Check returns an inconsistency of Tasks.open; empty: none.
func (v *Tasks) Check() string { return v.open.check(&v.snap) }

// EndedMostBytes bounds EndedBytes.
const EndedMostBytes = endedBytesMax

// EndedBytes returns the bytes of finished tasks that are kept in memory for the next snapshot.
func (v *Tasks) EndedBytes() (n int) {
	for _, data := range v.snap.ended {
		n += len(data)
	}
	return n
}

// Forget makes the next snapshot a full one, as too many finished tasks in memory do.
func (v *Tasks) Forget() { v.restartFull() }

// Stored returns the numbers of ended tasks in Pebble, and of those that are listed by when they may be forgotten.
func (v *Tasks) Stored() (rows int64, listed int) {
	v.each(kindFinished, func(string, []byte) error { rows++; return nil })
	v.each(kindForget, func(string, []byte) error { listed++; return nil })
	return rows, listed
}

// ListWithin is List with another bound of entries that it may read in each partition.
func (s *Store) ListWithin(ctx context.Context, partitions []int32, f Filter, after Cursor, limit, looks int) (Page, error) {
	return s.list(ctx, partitions, &f, after, limit, looks)
}

// HotRows returns the number of rows in memory.
func (t *Timelines) HotRows() int { return len(t.rows.byTask) }

// IndexEntries returns all entries of the index as text.
func (t *Timelines) IndexEntries() (entries []string) {
	t.v.eachEntry(func(f facet, c Cursor) {
		entries = append(entries, fmt.Sprintf("%q %d %q", string(f), c.Submitted, c.Task))
	})
	t.v.each(kindDue, func(rest string, _ []byte) error { entries = append(entries, fmt.Sprintf("due %x", rest)); return nil })
	slices.Sort(entries)
	return entries
}

// WantedEntries returns the entries that a row must have. group is its error group.
func WantedEntries(s *events.Summary, group string) (entries []string) {
	st := indexStateOf(s, group)
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

// Rewriting returns options with which compactions rewrite nearly all values.
func (o Options) Rewriting() Options {
	o.valueFiles = 1
	return o
}

// Compact flushes and compacts the store.
func (s *Store) Compact() error {
	if err := s.Flush(); err != nil {
		return err
	}
	return s.db.Compact(context.Background(), []byte{0}, []byte{0xff}, true)
}

// DropViews lets Close not wait for the views that a test has left open.
func (s *Store) DropViews() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.views)
}

// DiskUsage estimates the bytes of the timelines on disk, by kind.
func (s *Store) DiskUsage() (map[string]uint64, error) {
	sizes := map[string]uint64{}
	for p := range s.id.Partitions {
		for kind, what := range map[byte]string{kindPlaces: "places", kindRow: "rows", kindIndex: "index", kindPosting: "index", kindDue: "index", kindEnds: "index", kindGroup: "groups", kindStats: "stats", kindAgents: "stats", kindSteps: "steps", kindTook: "steps"} {
			lower, upper := keyspace{viewLetters[s.id.View], p}.bounds(kind)
			n, err := s.db.EstimateDiskUsage(lower, upper)
			if err != nil {
				return nil, err
			}
			sizes[what] += n
		}
	}
	return sizes, nil
}

// KeepPastAlerts changes the bound of past alerts of a partition, until undo is called.
func KeepPastAlerts(most int) (undo func()) {
	was := maxPastAlerts
	maxPastAlerts = int64(most)
	return func() { maxPastAlerts = was }
}

// KeepErrorGroups changes the bound of error groups of a partition, until undo is called.
func KeepErrorGroups(most int) (undo func()) {
	was := maxErrorGroups
	maxErrorGroups = most
	return func() { maxErrorGroups = was }
}

// ErrorGroupID is the id of the group of an error.
func ErrorGroupID(workflow, step string, kind events.Kind, code, message, task string) string {
	return fingerprint(workflow, step, string(kind), code, messagePattern(message, task))
}

// JustBefore returns a place with no task between it and c.
func (c Cursor) JustBefore() Cursor { return c.justBefore() }

package projections

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Hot is the number of open tasks that are in memory decoded.
func (v *Tasks) Hot() int { return len(v.open.hot) }

// Check finds what Tasks.open holds that can't be.
func (v *Tasks) Check() string { return v.open.check(&v.snap) }

// ListWithin is List with another bound of entries that it may look at in each partition.
func (s *Store) ListWithin(ctx context.Context, partitions []int32, f Filter, after Cursor, limit, looks int) (Page, error) {
	return s.list(ctx, partitions, &f, after, limit, looks)
}

// HotRows is the number of rows that are in memory.
func (t *Timelines) HotRows() int { return len(t.rows.byTask) }

// IndexEntries lists all entries of the index, and what they were made from.
func (t *Timelines) IndexEntries() (entries []string, err error) {
	err = t.v.eachEntry(func(f facet, c Cursor) { entries = append(entries, fmt.Sprintf("%q %d %q", string(f), c.Submitted, c.Task)) })
	if err == nil {
		err = t.v.each(kindDue, func(rest string, _ []byte) error { entries = append(entries, fmt.Sprintf("due %x", rest)); return nil })
	}
	slices.Sort(entries)
	return entries, err
}

// WantedEntries are those that a row must have.
func WantedEntries(s *events.Summary) (entries []string) {
	st := standingOf(s)
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

package projections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// The bounds of a page. A page ends once it has read MaxLooked entries, so that its time is bounded for every filter.
const (
	MaxPageTasks      = 1000
	MaxLooked         = 20_000 // entries of the index and rows, in all partitions
	partitionLooksMin = 64     // minimum for each partition, so that a page makes progress
	openLooks         = 2      // added for each iterator: a seek of postings may read two buckets
	rowLookCost       = 4      // entries that reading a row counts as, since it takes longer
	placesPerLook     = 8      // places of tasks by complete-by that count as an entry, since they are read in sequence
	// MaxPageBytes bounds the stored size of a page's tasks; one task may exceed it. A task of a
	// thousand steps takes some 100 KB, and twice as much in memory.
	MaxPageBytes = 8 << 20
)

// Filter selects the tasks of a list. The zero Filter selects all.
type Filter struct {
	States       []events.TaskState // any of; empty: any
	Workflow     string             // empty: any
	Version      int                // 0: any; only with Workflow
	Labels       map[string]string  // all of
	StepInError  string             // a step in error, even of a task that has ended
	ErrorGroup   string             // the id of the error group of a held task
	Agent        string             // an agent that has an attempt now
	Since, Until time.Time          // of submission: at or after Since, before Until; zero: no bound
	DueBefore    time.Time          // open tasks whose complete-by (the task's) is before; zero: any
	Parent       string             // children of this task, and the tasks of its items; empty: any task that isn't an item's
	IDPrefix     string             // the id begins with it; the list is then in the order of ids (list_ids.go); empty: any
}

// Page is a part of a list.
type Page struct {
	Tasks []events.Summary
	// Next is where the list continues; nil: it has ended. A page that reached MaxLooked or
	// MaxPageBytes has a Next, and fewer tasks than were asked for, or none.
	Next *Cursor
	AsOf map[int32]int64 // partition -> the offset below which all of it is reflected
}

// List returns up to limit tasks (at most MaxPageTasks) of some partitions that match the filter
// and come after a place in the list, the newest submission first, or by id with an IDPrefix. It reads
// what was saved, on one snapshot, and may be called from several goroutines.
func (s *Store) List(ctx context.Context, partitions []int32, f Filter, after Cursor, limit int) (Page, error) {
	return s.list(ctx, partitions, &f, after, limit, max(partitionLooksMin, MaxLooked/max(1, len(partitions))))
}

// list is List. looks bounds the entries that it reads in each partition.
func (s *Store) list(ctx context.Context, partitions []int32, f *Filter, after Cursor, limit, looks int) (page Page, err error) {
	limit = max(1, min(limit, MaxPageTasks))
	page.AsOf = map[int32]int64{}
	leave, err := s.enter()
	if err != nil {
		return page, err
	}
	defer leave()
	snapshot := s.db.NewSnapshot()
	defer func() { s.check(snapshot.Close()) }()
	l := lister{s: s, db: snapshot, f: f, looks: looks}
	defer l.close()
	if err := l.open(partitions, f.from(after), page.AsOf); err != nil {
		return page, err
	}
	return page, l.page(ctx, &page, limit)
}

// from returns the first place after a cursor that the list may have.
func (f *Filter) from(after Cursor) Cursor {
	if f.IDPrefix != "" {
		return f.fromID(after)
	}
	first := Cursor{Submitted: math.MaxInt64}
	if !f.Until.IsZero() {
		first.Submitted = ceilMillis(f.Until) - 1
	}
	if after == (Cursor{}) {
		return first
	}
	after.Task += "\x00" // the least id after it
	if after.compare(first) < 0 {
		return first
	}
	return after
}

// ceilMillis rounds an instant up to a millisecond.
func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// states returns the states that the filter allows; nil: any.
func (f *Filter) states() []events.TaskState {
	if f.DueBefore.IsZero() {
		return f.States
	}
	var open []events.TaskState
	for _, st := range events.TaskStates {
		if !st.Terminal() && (len(f.States) == 0 || slices.Contains(f.States, st)) {
			open = append(open, st)
		}
	}
	return open
}

// lister makes one page.
type lister struct {
	s     *Store
	db    *pebble.Snapshot
	f     *Filter
	looks int // for each partition
	heads []*head
}

// head is the list's position in a partition.
type head struct {
	indexReader
	tasks     intersectIterator
	at        Cursor          // of the next task; if spent, the partition has no further task before it
	row       *events.Summary // of the next task
	bytes     int             // of its stored form
	spent     bool
	exhausted bool // no task is left
}

func (l *lister) open(partitions []int32, first Cursor, asOf map[int32]int64) error {
	for _, p := range partitions {
		k, err := l.s.keyspaceOf(ViewTimelines, p)
		if err != nil {
			return err
		}
		h := &head{indexReader: indexReader{reader{l.s, l.db, k}, l.looks}}
		l.heads = append(l.heads, h)
		asOf[p] = h.savedNext()
		l.openIterators(h)
		if h.at = first; first.Submitted < 0 { // before the first instant that the index has
			h.exhausted = true
		}
		if l.f.IDPrefix == "" && !l.f.Since.IsZero() {
			h.tasks.oldest = ceilMillis(l.f.Since)
		}
	}
	return nil
}

// openIterators opens the iterators whose intersection is the list of a partition. However many places of tasks it
// reads, the page may still seek with each iterator and read a row. Otherwise it might end where it began.
func (l *lister) openIterators(h *head) {
	places := l.addIterators(h)
	opened := h.looksLeft - l.looks
	h.looksLeft = max(h.looksLeft-places/placesPerLook, opened+rowLookCost)
}

// addIterators adds the iterators of a partition. It returns the number of places that it has read.
func (l *lister) addIterators(h *head) (read int) {
	f := l.f
	if f.IDPrefix != "" {
		h.tasks.of = append(h.tasks.of, h.rowIterator(f.IDPrefix))
		h.looksLeft += openLooks
		return 0
	}
	add := func(open func(facet) indexIterator, fs ...facet) {
		u := unionIterator{}
		for _, f := range fs {
			u.of = append(u.of, &unionMember{indexIterator: open(f)})
			h.looksLeft += openLooks
		}
		h.tasks.of = append(h.tasks.of, u)
	}
	if f.Parent != "" { // items that aren't held have no other facets
		add(h.postingIterator, parentFacet(f.Parent))
		if slices.Equal(f.States, []events.TaskState{events.StateError}) {
			add(h.stateIterator, stateFacet(events.StateError))
		}
		return 0
	}
	if f.StepInError != "" {
		add(h.entryIterator, errorFacet(f.StepInError))
	}
	if f.ErrorGroup != "" {
		add(h.entryIterator, groupFacet(f.ErrorGroup))
	}
	if f.Agent != "" {
		add(h.entryIterator, agentFacet(f.Agent))
	}
	for k, v := range f.Labels {
		add(h.lastingIterator, labelFacet(k, v))
	}
	if f.Workflow != "" {
		add(h.lastingIterator, l.versions(h)...)
	}
	states := f.states()
	if !f.DueBefore.IsZero() {
		if places, ok := h.dueBefore(f.DueBefore, h.looksLeft*placesPerLook); ok {
			read = len(places)
			h.tasks.of = append(h.tasks.of, &placeIterator{places})
			if len(f.States) == 0 {
				return read
			}
		}
	}
	if states == nil && f.DueBefore.IsZero() && len(h.tasks.of) > 0 {
		return 0
	}
	if len(states) == 0 && f.DueBefore.IsZero() {
		states = events.TaskStates
	}
	var fs []facet
	for _, st := range states {
		fs = append(fs, stateFacet(st))
	}
	add(h.stateIterator, fs...)
	return read
}

// lastingIterator iterates over a workflow's version or a label. Tasks are posted; held tasks of items have entries.
func (s *indexReader) lastingIterator(f facet) indexIterator {
	s.looksLeft += openLooks
	return unionIterator{of: []*unionMember{{indexIterator: s.postingIterator(f)}, {indexIterator: s.entryIterator(f)}}}
}

// stateIterator iterates over a state. Terminal states are posted.
func (s *indexReader) stateIterator(f facet) indexIterator {
	for _, st := range events.TaskStates {
		if st.Terminal() && f == stateFacet(st) {
			return s.postingIterator(f)
		}
	}
	return s.entryIterator(f)
}

// versions returns the facets of the workflow's versions that the filter allows.
func (l *lister) versions(h *head) (fs []facet) {
	if l.f.Version != 0 {
		return []facet{versionFacet(l.f.Workflow, l.f.Version)}
	}
	for name := range h.tally().Workflows {
		if workflow, version, ok := cutWorkflowKey(name); ok && workflow == l.f.Workflow {
			fs = append(fs, versionFacet(workflow, version))
		}
	}
	return fs
}

// advance moves to the first task of a partition at or after h.at. ok is false if there is none. If the bound of
// entries is reached, ok is true and h.spent is set.
func (l *lister) advance(h *head) (ok bool, err error) {
	if h.exhausted {
		return false, nil
	}
	for h.row = nil; ; h.at.Task += "\x00" {
		at, found, err := h.tasks.seek(h.at)
		if errors.Is(err, errPageBound) {
			h.at, h.spent = h.tasks.at, true
			return true, nil
		}
		if err != nil || !found {
			return false, err
		}
		h.at = at
		if h.countLooks(rowLookCost) != nil {
			h.spent = true
			return true, nil
		}
		l.read(h)
		if l.f.matches(h.row) && l.f.matchesGroup(h.reader, h.row) {
			return true, nil
		}
	}
}

// matches checks the conditions that aren't in the index.
func (f *Filter) matches(s *events.Summary) bool {
	switch byRow := f.IDPrefix != "" || f.Parent != ""; {
	case byRow && !f.matchesRow(s):
		return false
	case f.Parent == "" && s.Hidden():
		return false
	}
	return f.DueBefore.IsZero() || !s.CompleteBy.IsZero() && s.CompleteBy.Before(f.DueBefore)
}

func (l *lister) read(h *head) {
	h.row = nil
	h.get(kindRow, h.at.Task, func(data []byte) (err error) {
		h.bytes = len(data)
		h.row, err = events.DecodeSummary(data)
		return err
	})
	if h.row == nil {
		h.corrupt(kindRow, h.at.Task, errors.New("the index has a task that has no row"))
	}
}

// page merges the tasks of all partitions in the order of the list.
func (l *lister) page(ctx context.Context, page *Page, limit int) error {
	open := l.heads[:0:0]
	for _, h := range l.heads {
		ok, err := l.advance(h)
		if err != nil {
			return err
		}
		if ok {
			open = append(open, h)
		}
	}
	for bytes := 0; len(open) > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("projections: list tasks: %w", err)
		}
		first := slices.MinFunc(open, func(a, b *head) int { return a.at.compare(b.at) })
		n := len(page.Tasks)
		if n < limit && first.spent {
			next := first.at.justBefore()
			page.Next = &next
			return nil
		}
		if bytes += first.bytes; n == limit || n > 0 && bytes > MaxPageBytes {
			next := l.f.cursorOf(&page.Tasks[n-1])
			page.Next = &next
			return nil
		}
		page.Tasks = append(page.Tasks, *first.row)
		first.at.Task += "\x00"
		ok, err := l.advance(first)
		if err != nil {
			return err
		}
		if !ok {
			open = slices.DeleteFunc(open, func(h *head) bool { return h == first })
		}
	}
	return nil
}

func (l *lister) close() {
	for _, h := range l.heads {
		h.tasks.close()
	}
}

// Summary returns the row of a task (nil: the partition has none of that id) and the offset below
// which it reflects the partition.
func (s *Store) Summary(p int32, task string) (sum *events.Summary, next int64, err error) {
	asOf, err := s.onSnapshot(ViewTimelines, p, func(r reader) { sum = r.summary(task) })
	return sum, asOf.Next, err
}

// summary returns the row of a task; nil: there is none.
func (r reader) summary(task string) (sum *events.Summary) {
	r.get(kindRow, task, func(data []byte) (err error) {
		sum, err = events.DecodeSummary(data)
		return err
	})
	return sum
}

// Places is ReadTimeline, with only the offset of the AsOf.
func (s *Store) Places(p int32, task string) (places []Place, next int64, err error) {
	places, asOf, err := s.ReadTimeline(p, task)
	return places, asOf.Next, err
}

// cutWorkflowKey is the inverse of workflowKey.
func cutWorkflowKey(key string) (workflow string, version int, ok bool) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			v, err := strconv.Atoi(key[i+1:])
			return key[:i], v, err == nil
		}
	}
	return "", 0, false
}

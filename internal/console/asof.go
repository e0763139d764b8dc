package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

// asOfBounds bound an instant. What exceeds them is refused; the bound of `waybill replay --at` can be raised.
type asOfBounds struct {
	rows    int // of the index, which are all read
	changed int // tasks whose events are read: those that were there and changed later
	open    int // tasks that were open, which are kept
	ended   int // tasks that had ended, which are kept if a filter asks for them and they match it
}

var defaultAsOfBounds = asOfBounds{rows: 5_000_000, changed: 20_000, open: 100_000, ended: 20_000}

const (
	// asOfFinalAfter is the age from which an instant can't change: later events are written with later instants, except for
	// the error of clocks and transactions that are still open.
	asOfFinalAfter = time.Minute
	// asOfKeptFor is how long an answer about a later instant is kept, so that its pages agree.
	asOfKeptFor = 10 * time.Second
	asOfKeptMax = 4 // states
)

type asOfRequest struct {
	At        string   `query:"at" jsonschema:"The instant: a duration before now (15m), or an instant. It is required."`
	Filter    string   `query:"filter" jsonschema:"Terms as for the list of tasks, without error_group. They select which tasks are listed; durations count back from the instant. Only open tasks are listed, unless state names a state of ended ones."`
	PageSize  pageSize `query:"page_size" jsonschema:"The maximum number of tasks on the page."`
	PageToken string   `query:"page_token" jsonschema:"next_page_token of the previous page, with the same filter. at is then that of the previous page."`
}

// systemAsOf returns the system at an instant.
func (c *call) systemAsOf(in *asOfRequest) (*consoleapi.SystemAsOf, error) {
	p, err := c.asOfPage(in)
	if err != nil {
		return nil, err
	}
	s, err := c.systemAt(p)
	if err != nil {
		return nil, err
	}
	v := &consoleapi.SystemAsOf{At: s.at.UTC().Format(events.TimeLayout), Final: s.final, States: map[events.TaskState]int64{}, Workflows: []consoleapi.VersionAsOf{}, Unreadable: s.unreadable,
		Open: int64(len(s.open)), Tasks: []consoleapi.TaskAsOf{}, AsOf: reflectedOffsets(s.next), Incomplete: s.lacks}
	for of, states := range s.counts {
		v.Workflows = append(v.Workflows, consoleapi.VersionAsOf{Workflow: of.name, Version: of.version, States: states})
		addCounts(v.States, states)
	}
	slices.SortFunc(v.Workflows, func(a, b consoleapi.VersionAsOf) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Version, b.Version))
	})
	if n := len(s.open); n > 0 {
		v.Oldest = taskAsOf(s.open[n-1])
	}
	if held := oldestHeld(s.open); held != nil {
		v.OldestHeld = taskAsOf(held)
	}
	var last *events.Summary
	for _, t := range s.list { // the state may be kept from a request that listed ended tasks
		if !t.Open() && !p.listsEnded() || !p.filter.Matches(t) {
			continue
		}
		v.Matched++
		switch after := p.after == (projections.Cursor{}) || orderOf(t).after(p.after); {
		case !after:
		case len(v.Tasks) == p.size:
			if v.NextPageToken == "" {
				at := orderOf(last)
				v.NextPageToken = p.next((*projections.Cursor)(&at))
			}
		default:
			v.Tasks, last = append(v.Tasks, *taskAsOf(t)), t
		}
	}
	return v, nil
}

// oldestHeld returns the held task whose last event is the oldest; nil: no task is held.
func oldestHeld(open []*events.Summary) (oldest *events.Summary) {
	for _, t := range open {
		if t.State == events.StateError && (oldest == nil || t.UpdatedAt.Before(oldest.UpdatedAt)) {
			oldest = t
		}
	}
	return oldest
}

func taskAsOf(t *events.Summary) *consoleapi.TaskAsOf {
	return &consoleapi.TaskAsOf{Seq: t.Seq, Task: t.View()}
}

// asOfPage parses the parameters. Durations of the filter count back from the instant, which is page.now.
func (c *call) asOfPage(in *asOfRequest) (*page, error) {
	if in.At == "" {
		return nil, badRequest("at is missing: a duration before now (15m), or an instant (2026-01-31T12:00:00Z)")
	}
	at, err := parsePastTime("at", in.At, c.cfg.Now())
	if err != nil {
		return nil, badRequest("%v", err)
	}
	p := &page{text: in.Filter, now: at.Truncate(time.Millisecond), size: in.PageSize.orDefault()}
	if in.PageToken != "" {
		t, err := parsePageToken(in.PageToken, p.text)
		if err != nil {
			return nil, badRequest("page_token: %v", err)
		}
		p.now, p.after = time.UnixMilli(t.Now), t.cursor()
	}
	if p.now.After(c.cfg.Now()) {
		return nil, badRequest("at %q is in the future", consoleapi.Printable(in.At))
	}
	if p.filter, err = parseFilter(p.text, p.now); err != nil {
		return nil, badRequest("filter: %s", consoleapi.Printable(err.Error()))
	}
	if p.filter.ErrorGroup != "" {
		return nil, badRequest("filter: error_group isn't known of a past instant; filter by workflow and step_in_error")
	}
	return p, nil
}

// listsEnded reports whether a page has tasks that had ended.
func (p *page) listsEnded() bool {
	return slices.ContainsFunc(p.filter.States, events.TaskState.Terminal)
}

// placeAsOf is a place in the list: the newest submission first, then by id.
type placeAsOf projections.Cursor

func orderOf(t *events.Summary) placeAsOf { return placeAsOf{t.SubmittedAt.UnixMilli(), t.ID} }

func (a placeAsOf) compare(b placeAsOf) int {
	return cmp.Or(cmp.Compare(b.Submitted, a.Submitted), cmp.Compare(a.Task, b.Task))
}

func (a placeAsOf) after(c projections.Cursor) bool { return a.compare(placeAsOf(c)) > 0 }

// systemState is the system at an instant. It isn't changed once it is made.
type systemState struct {
	at         time.Time
	counts     map[versionKey]map[events.TaskState]int64
	open       []*events.Summary // in the order of the list, without hidden ones
	list       []*events.Summary // all open ones, and the ended ones that match the filter
	filter     string            // of the ended ones in list; empty: it has none
	unreadable int64
	next       map[int32]int64
	lacks      []consoleapi.Incomplete
	final      bool
	made       time.Time
}

type versionKey struct {
	name    string
	version int
}

// systemStates computes states one at a time, since each reads the whole index, and keeps the last ones.
type systemStates struct {
	most      asOfBounds
	computing chan struct{} // holds a value while one is computed; it guards kept
	kept      []*systemState
}

func newSystemStates() systemStates {
	return systemStates{most: defaultAsOfBounds, computing: make(chan struct{}, 1)}
}

// systemAt returns the system at an instant. Requests for the same instant share one computation, as far as they list the
// same ended tasks.
func (c *call) systemAt(p *page) (*systemState, error) {
	at, filter := p.now, ""
	if p.listsEnded() {
		filter = p.text
	}
	select {
	case c.pastStates.computing <- struct{}{}:
		defer func() { <-c.pastStates.computing }()
	case <-c.r.Context().Done():
		return nil, unavailable("another past instant is being computed")
	}
	now := c.cfg.Now()
	for _, s := range c.pastStates.kept {
		if s.at.Equal(at) && (filter == "" || filter == s.filter) && (s.final || now.Sub(s.made) < asOfKeptFor) {
			return s, nil
		}
	}
	s, err := c.computeState(p, filter, now)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(c.pastStates.kept, func(o *systemState) bool { return o.at.Equal(at) && (o.filter == "" || o.filter == filter) })
	if kept = append(kept, s); len(kept) > asOfKeptMax {
		kept = slices.Delete(kept, 0, 1)
	}
	c.pastStates.kept = kept
	return s, nil
}

// computeState reads the row of each task. A row that hasn't changed since the instant is the task at the instant. The
// events of the others are folded up to the instant.
func (c *call) computeState(page *page, filter string, now time.Time) (*systemState, error) {
	ctx, at := c.r.Context(), page.now
	progress, leaderless, err := c.awaitOffsets(ctx, consoleapi.LogEnd)
	if err != nil {
		return nil, err
	}
	s := &systemState{at: at, counts: map[versionKey]map[events.TaskState]int64{}, next: map[int32]int64{}, made: now, filter: filter}
	if s.lacks, err = c.incompletePartitions(progress, leaderless); err != nil {
		return nil, err
	}
	m := &stateMaker{c: c, s: s, filter: &page.filter}
	for _, p := range startedPartitions(progress) {
		if err := m.addPartition(ctx, p); err != nil {
			return nil, err
		}
	}
	byPlace := func(a, b *events.Summary) int { return orderOf(a).compare(orderOf(b)) }
	slices.SortFunc(s.open, byPlace)
	if s.list = s.open; len(m.ended)+len(m.hidden) > 0 {
		s.list = slices.Concat(m.ended, m.hidden, s.open)
		slices.SortFunc(s.list, byPlace)
	}
	s.final = len(s.lacks) == 0 && now.Sub(at) >= asOfFinalAfter
	return s, nil
}

// stateMaker makes a systemState.
type stateMaker struct {
	c             *call
	s             *systemState
	filter        *projections.Filter // of ended tasks, if the state has a filter
	ended         []*events.Summary
	hidden        []*events.Summary // open
	rows, changed int
}

// refuse returns why an instant is refused.
func (m *stateMaker) refuse(n int, what string) error {
	return tooMuch("more than %d tasks %s; run `waybill replay --at %s`, whose bound --max-memory raises", n, what, m.s.at.UTC().Format(events.TimeLayout))
}

func (m *stateMaker) addPartition(ctx context.Context, p int32) error {
	most := &m.c.pastStates.most
	var changed []string // tasks that changed after the instant
	next, err := m.c.cfg.Index.Rows(ctx, p, func(head *events.SummaryHead, row func() *events.Summary) error {
		if m.rows++; m.rows > most.rows {
			return m.refuse(most.rows, "are in the log")
		}
		switch {
		case head.SubmittedAt.After(m.s.at) && head.From == 0:
			return nil
		case !head.UpdatedAt.After(m.s.at):
			if head.Stopped != 0 {
				m.s.unreadable++
			}
			if head.Open() {
				return m.addOpen(row())
			}
			if !head.Hidden() {
				m.count(head.Workflow, head.Version, head.State)
			}
			if m.s.filter != "" && slices.Contains(m.filter.States, head.State) {
				return m.addEnded(row())
			}
			return nil
		}
		if m.changed++; m.changed > most.changed {
			return m.refuse(most.changed, "were there and changed later")
		}
		changed = append(changed, head.ID)
		return nil
	})
	if err != nil {
		return err
	}
	m.s.next[p] = next
	for ids := range slices.Chunk(changed, asOfTasksAtOnce) {
		if err := m.foldTasks(ctx, p, ids); err != nil {
			return err
		}
	}
	return nil
}

func (m *stateMaker) count(workflow string, version int, state events.TaskState) {
	of := versionKey{workflow, version}
	if m.s.counts[of] == nil {
		m.s.counts[of] = map[events.TaskState]int64{}
	}
	m.s.counts[of][state]++
}

// addOpen adds a task that was open.
func (m *stateMaker) addOpen(t *events.Summary) error {
	if most := m.c.pastStates.most.open; len(m.s.open)+len(m.hidden) == most {
		return m.refuse(most, "were open")
	}
	t.Steps = slices.Clip(slices.DeleteFunc(t.Steps, func(s events.StepSummary) bool { return !isShown(&s) }))
	if t.Hidden() {
		m.hidden = append(m.hidden, t)
		return nil
	}
	m.count(t.Workflow, t.Version, t.State)
	m.s.open = append(m.s.open, t)
	return nil
}

// isShown reports whether a list shows anything of a step.
func isShown(s *events.StepSummary) bool {
	running := s.State == events.StepRunning || s.Undo == events.StepRunning || s.Check == events.StepRunning
	return running || s.State == events.StepError || !s.Due.IsZero() || !s.BeforeDue.IsZero() || !s.CheckDue.IsZero()
}

// Tasks are folded in groups, from pieces of their events.
const (
	asOfTasksAtOnce  = 200
	asOfEventsAtOnce = 16 // of a task; each further piece is twice as large
)

// taskFold is the fold of a task up to an instant.
type taskFold struct {
	sum    events.Summary
	places []projections.Place // not read yet
	over   bool                // the next event is after the instant, or can't be read
}

// foldTasks folds the events of tasks of a partition up to the instant.
func (m *stateMaker) foldTasks(ctx context.Context, p int32, ids []string) error {
	folds := map[string]*taskFold{}
	for _, id := range ids {
		found, _ := m.c.cfg.Index.Find(p, id)
		folds[id] = &taskFold{places: append(found.Earlier, found.Places...)}
	}
	for piece := asOfEventsAtOnce; ; piece *= 2 {
		var offsets []int64
		asked := map[int64]*taskFold{}
		for _, f := range folds {
			if f.over {
				continue
			}
			n := min(piece, len(f.places))
			for _, at := range f.places[:n] {
				offsets = append(offsets, at.Offset)
				asked[at.Offset] = f
			}
			f.places = f.places[n:]
		}
		if len(offsets) == 0 {
			break
		}
		slices.Sort(offsets)
		records, _, err := m.c.cfg.Log.ReadAt(ctx, p, offsets)
		switch {
		case errors.Is(err, ErrUnavailable):
			return unavailable("the events of tasks: %v; `waybill doctor` shows what else is wrong", err)
		case err != nil:
			return fmt.Errorf("read %d events of partition %d: %w", len(offsets), p, err)
		}
		for i := range records {
			if f := asked[records[i].Offset]; f != nil {
				f.add(&records[i], m.s.at)
				delete(asked, records[i].Offset)
			}
		}
		for _, f := range asked { // corrupt
			f.stop()
		}
	}
	for _, id := range ids {
		if err := m.addFold(&folds[id].sum); err != nil {
			return err
		}
	}
	return nil
}

// add folds an event. An event that can't be folded stops the fold (events.Summary.Stopped).
func (f *taskFold) add(r *events.Record, at time.Time) {
	if f.over {
		return
	}
	e, err := events.ReadEvent(r)
	switch {
	case err != nil, e.Seq != f.sum.Seq+1 && !f.sum.Renews(e): // the missing one may be of the instant
		f.stop()
	case e.At.After(at):
		f.over = true
	default:
		f.sum.Evolve(e)
		f.over = f.sum.Stopped != 0
	}
}

// stop ends the fold at an event that can't be read, unless it has passed the instant.
func (f *taskFold) stop() {
	if !f.over {
		f.sum.Stop(f.sum.Seq + 1)
		f.over = true
	}
}

// addFold adds a task that changed after the instant.
func (m *stateMaker) addFold(t *events.Summary) error {
	if t.Stopped != 0 {
		m.s.unreadable++
	}
	switch {
	case t.Seq == 0:
		return nil
	case t.Open():
		return m.addOpen(t)
	}
	if !t.Hidden() {
		m.count(t.Workflow, t.Version, t.State)
	}
	if m.s.filter != "" {
		return m.addEnded(t)
	}
	return nil
}

// addEnded adds a task that had ended, if it matches the filter.
func (m *stateMaker) addEnded(t *events.Summary) error {
	if !m.filter.Matches(t) {
		return nil
	}
	if most := m.c.pastStates.most.ended; len(m.ended) == most {
		return m.refuse(most, "had ended and match the filter; narrow it, for instance by since or workflow")
	}
	m.ended = append(m.ended, t)
	return nil
}

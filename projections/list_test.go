package projections_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// summaries returns the summaries of the model's tasks. Agents are those of the events, which in these histories are
// the first letters of the steps.
func (h *history) summaries() map[string]*events.Summary {
	all := map[string]*events.Summary{}
	for id, t := range h.tasks {
		s, reopened := t.Summary(), len(t.Output) > 0 && t.State != events.StateProcessed
		s.From = h.from[id]
		for i := range s.Steps {
			p := &s.Steps[i]
			at, _ := t.Plan.Step(p.ID)
			// A row that is reopened has the plan's agents until an undo starts.
			if u := t.Steps[at].Undo; t.Steps[at].StartedSeq > 0 && !reopened || u != nil && u.StartedSeq > 0 {
				p.Agent = p.ID[:1]
			}
		}
		all[id] = s
	}
	return all
}

// listed computes the list from all tasks.
func listed(all map[string]*events.Summary, f projections.Filter) []*events.Summary {
	var got []*events.Summary
	for _, s := range all {
		if matches(s, &f) {
			got = append(got, s)
		}
	}
	slices.SortFunc(got, func(a, b *events.Summary) int {
		if f.IDPrefix != "" {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Or(b.SubmittedAt.Compare(a.SubmittedAt), cmp.Compare(a.ID, b.ID))
	})
	return got
}

func matches(s *events.Summary, f *projections.Filter) bool {
	for k, v := range f.Labels {
		if got, ok := s.Labels[k]; !ok || got != v {
			return false
		}
	}
	return (f.Parent != "" && s.Parent == f.Parent || f.Parent == "" && (!s.Item || s.State == events.StateError)) &&
		strings.HasPrefix(s.ID, f.IDPrefix) && (len(f.States) == 0 || slices.Contains(f.States, s.State)) &&
		(f.Workflow == "" || s.Workflow == f.Workflow && (f.Version == 0 || s.Version == f.Version)) &&
		(f.StepInError == "" || slices.Contains(s.InError(), f.StepInError)) &&
		(f.Agent == "" || slices.Contains(s.WaitingFor(), f.Agent)) &&
		(f.Since.IsZero() || !s.SubmittedAt.Before(f.Since)) && (f.Until.IsZero() || s.SubmittedAt.Before(f.Until)) &&
		(f.DueBefore.IsZero() || s.Open() && !s.CompleteBy.IsZero() && s.CompleteBy.Before(f.DueBefore))
}

// randomFilter returns a filter with two or three conditions.
func randomFilter(rnd *rand.Rand, all []*events.Summary) (f projections.Filter) {
	if len(all) == 0 {
		return f
	}
	one := func() *events.Summary { return all[rnd.IntN(len(all))] }
	for range rnd.IntN(4) {
		switch rnd.IntN(10) {
		case 0:
			for range 1 + rnd.IntN(3) {
				f.States = append(f.States, events.TaskStates[rnd.IntN(len(events.TaskStates))])
			}
		case 1:
			f.Workflow = one().Workflow
		case 2:
			f.Workflow, f.Version = one().Workflow, one().Version
		case 3:
			f.Labels = maps.Clone(one().Labels)
		case 4:
			f.StepInError = testPlan.Steps[rnd.IntN(3)].ID
		case 5:
			f.Agent = testPlan.Steps[rnd.IntN(3)].ID[:1]
		case 6:
			id := []rune(one().ID)
			f.IDPrefix = string(id[:1+rnd.IntN(len(id))])
		case 7:
			f.Since, f.Until = one().SubmittedAt.Add(time.Duration(rnd.IntN(3))*400*time.Microsecond), one().SubmittedAt.Add(time.Duration(rnd.IntN(3))*400*time.Microsecond)
			if rnd.IntN(2) == 0 {
				f.Since = time.Time{}
			}
		case 8:
			if f.Parent = "parent"; rnd.IntN(2) == 0 {
				f.States = []events.TaskState{events.StateError}
			}
		default:
			f.DueBefore = one().CompleteBy.Add(time.Duration(rnd.IntN(2)) * time.Millisecond)
		}
	}
	return f
}

// readAll reads a list page by page, with random bounds for each page.
func readAll(t *testing.T, s *projections.Store, rnd *rand.Rand, f projections.Filter) (tasks []events.Summary) {
	t.Helper()
	var after projections.Cursor
	for pages := 0; ; pages++ {
		if pages > 100_000 {
			t.Fatalf("%+v: the list doesn't end; at %+v", f, after)
		}
		limit, looks := 1+rnd.IntN(30), 1<<30
		if rnd.IntN(2) == 0 {
			looks = 4 + rnd.IntN(8) // at least one row
		}
		page, err := s.ListWithin(context.Background(), []int32{testPartition, 0}, f, after, limit, looks)
		if err != nil || len(page.Tasks) > limit {
			t.Fatalf("%d tasks, %v", len(page.Tasks), err)
		}
		if _, ok := page.AsOf[testPartition]; !ok || len(page.AsOf) != 2 {
			t.Fatalf("as of %v", page.AsOf)
		}
		tasks = append(tasks, page.Tasks...)
		if page.Next == nil {
			return tasks
		}
		if !(strings.ToValidUTF8(page.Next.Task, "") == page.Next.Task) {
			t.Fatalf("%q can't be passed on as JSON", page.Next.Task)
		}
		if *page.Next == after {
			t.Fatalf("%+v: no page goes on from %+v", f, after)
		}
		after = *page.Next
	}
}

// audited is a store of timelines with the operations of a process.
type audited struct {
	t  *testing.T
	fs *vfs.MemFS
	o  projections.Options
	s  *projections.Store
	v  *projections.Timelines
}

func (a *audited) open() {
	a.t.Helper()
	a.o.FS = a.fs
	var err error
	if a.s, err = projections.Open("data/timelines", identity(projections.ViewTimelines), a.o); err == nil {
		a.v, err = a.s.Timelines(testPartition)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// act performs a random operation of a process other than reading.
func (a *audited) act(what int) {
	a.t.Helper()
	switch {
	case what < 30:
		a.save()
	case what < 33:
		a.save()
		if err := a.s.Flush(); err != nil {
			a.t.Fatal(err)
		}
	case what == 33: // a crash of the machine
		fs := a.fs.CrashClone(vfs.CrashCloneCfg{})
		a.v.Close()
		closeStore(a.t, a.s)
		a.fs = fs
		a.open()
	case what == 34:
		a.v.Close()
		closeStore(a.t, a.s)
		a.open()
	}
}

func (a *audited) save() {
	a.t.Helper()
	a.v.Save()
}

// TestListAgreesWithTheFold checks the index over random histories, with random saves, flushes, restarts and crashes.
// The rows equal the tasks. Every list equals the one computed from all tasks, for any size of pages. The counts are
// those of the tasks. The index has exactly the entries of the rows.
func TestListAgreesWithTheFold(t *testing.T) {
	t.Parallel()
	full, filters, states := 0, 0, map[string]int{}
	for seed := range seeds(t, 6) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		h := newForgettingHistory(seed)
		h.vary, h.items = true, true
		a := &audited{t: t, fs: vfs.NewCrashableMem(), o: projections.Options{HotBytes: 1 + rnd.IntN(20_000)}}
		a.open()
		var log []events.Record
		for len(log) < 1500 {
			r := h.next()
			log = append(log, r)
			if rnd.IntN(10) == 0 {
				a.v.BeginLookups()
			}
			apply(t, a.v, []events.Record{r})
			if rnd.IntN(10) == 0 {
				a.v.EndLookups()
			}
			if rnd.IntN(5) == 0 {
				a.v.EndLookups()
				a.act(rnd.IntN(100))
				apply(t, a.v, log) // replay what was lost
			}
			if len(log)%150 > 0 {
				continue
			}
			a.v.EndLookups()
			a.save()
			all := h.summaries()
			for id, task := range h.tasks {
				checkPlain(t, task, all[id], states)
			}
			a.checkRows(all)
			a.checkCounts(all, log)
			every := slices.Collect(maps.Values(all))
			for range 40 {
				f := randomFilter(rnd, every)
				want := listed(all, f)
				got := readAll(t, a.s, rnd, f)
				if len(want) > 0 {
					full++
				}
				filters++
				if !slices.EqualFunc(got, want, func(g events.Summary, w *events.Summary) bool { return rowText(&g) == rowText(w) }) {
					t.Fatalf("seed %d at %d: %+v\n got %s\nwant %s", seed, len(log), f, ids(got), ids(values(want)))
				}
			}
		}
		b := &audited{t: t, fs: vfs.NewCrashableMem()}
		b.open()
		apply(t, b.v, log)
		if got, want := a.v.Digest(), b.v.Digest(); got != want {
			t.Fatalf("seed %d: digest %s, of a rebuild %s", seed, got, want)
		}
		for _, x := range []*audited{a, b} {
			x.v.Close()
			closeStore(t, x.s)
		}
	}
	for _, what := range []string{"waits for an agent", "an undo waits for an agent", "steps in error", "an undo in error", "due", "waits in a hold", "skipped", "released as undone",
		string(events.StateCancelled), string(events.StateUndone), string(events.StateProcessed), string(events.StateError)} {
		if states[what] == 0 {
			t.Errorf("no task was ever: %s; %v", what, states)
		}
	}
	if full < filters/4 {
		t.Errorf("only %d of %d lists had a task: it proves little", full, filters)
	}
}

// checkPlain compares the fields by which a row is filtered and counted with the task itself. It counts the cases in
// seen.
func checkPlain(t *testing.T, task *events.Task, s *events.Summary, seen map[string]int) {
	t.Helper()
	var inError, waiting []string
	var due time.Time
	soonest := func(x events.Timer) {
		if x.Seq != 0 && (due.IsZero() || x.Due.Before(due)) {
			due = x.Due
		}
	}
	soonest(task.Timer)
	for i, x := range task.Steps {
		id := task.Plan.Steps[i].ID
		soonest(x.Timer)
		if x.State == events.StepError {
			inError = append(inError, id)
			seen["steps in error"]++
		}
		if x.State == events.StepRunning {
			waiting = append(waiting, id[:1])
			seen["waits for an agent"]++
			if task.State == events.StateError {
				seen["waits in a hold"]++
			}
		}
		seen[string(x.State)]++
		if x.Undo == nil {
			if x.State == events.StepUndone {
				seen["released as undone"]++
			}
			continue
		}
		soonest(x.Undo.Timer)
		if x.Undo.State == events.StepRunning {
			waiting = append(waiting, id[:1])
			seen["an undo waits for an agent"]++
		}
		if x.Undo.State == events.StepError {
			seen["an undo in error"]++
		}
	}
	if task.State.Terminal() {
		waiting = nil // no attempt can be answered
	}
	slices.Sort(waiting)
	if !due.IsZero() {
		seen["due"]++
	}
	seen[string(task.State)]++
	if !slices.Equal(s.InError(), inError) || !slices.Equal(s.WaitingFor(), slices.Compact(waiting)) || !s.Due().Equal(due) || s.Open() != !task.State.Terminal() {
		t.Fatalf("the row says: in error %q, waits for %q, due at %s, open %v; the task is: in error %q, waits for %q, due at %s\n%s",
			s.InError(), s.WaitingFor(), s.Due(), s.Open(), inError, waiting, due, task.Encode())
	}
}

func values(all []*events.Summary) (out []events.Summary) {
	for _, s := range all {
		out = append(out, *s)
	}
	return out
}

func ids(all []events.Summary) string {
	var out []string
	for _, s := range all {
		out = append(out, fmt.Sprintf("%s@%d %s", s.ID, s.SubmittedAt.UnixMilli(), s.State))
	}
	return strings.Join(out, ", ")
}

// rowText returns the stored form without what a task doesn't know.
func rowText(s *events.Summary) string {
	row := *s
	row.Steps = slices.Clone(row.Steps)
	for i := range row.Steps {
		row.Steps[i].Started, row.Steps[i].Sent = 0, 0
	}
	return string(row.Encode())
}

func (a *audited) checkRows(all map[string]*events.Summary) {
	a.t.Helper()
	var want []string
	for id, w := range all {
		got, next, err := a.s.Summary(testPartition, id)
		if err != nil || next != a.v.Next() || rowText(got) != rowText(w) {
			a.t.Fatalf("row of %s, as of %d: %v\n got %s\nwant %s", id, next, err, got.Encode(), w.Encode())
		}
		want = append(want, projections.WantedEntries(w, a.v.Find(id).ErrorGroup)...)
	}
	if got, _, err := a.s.Summary(testPartition, "nobody"); got != nil || err != nil {
		a.t.Fatalf("a row of nobody: %v %v", got, err)
	}
	slices.Sort(want)
	if got := a.v.IndexEntries(); !slices.Equal(got, want) {
		a.t.Fatalf("the index:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func (a *audited) checkCounts(all map[string]*events.Summary, log []events.Record) {
	a.t.Helper()
	want := projections.Counts{Tasks: map[events.TaskState]int64{}, Workflows: map[string]map[events.TaskState]int64{}, Agents: map[string]int64{}, Events: map[string]int64{}}
	for _, s := range all {
		if s.Open() {
			for _, agent := range s.WaitingFor() {
				want.Agents[agent]++
			}
		}
		if due := s.Due(); s.Open() && !due.IsZero() && (want.OldestDue.IsZero() || due.Before(want.OldestDue)) {
			want.OldestDue = due
		}
		if s.Item && s.State != events.StateError {
			continue
		}
		want.Tasks[s.State]++
		key := s.Workflow + "/" + strconv.Itoa(s.Version)
		if want.Workflows[key] == nil {
			want.Workflows[key] = map[events.TaskState]int64{}
		}
		want.Workflows[key][s.State]++
	}
	var state events.PartitionState
	for i := range log {
		e, err := events.DecodeEvent(&log[i])
		if err == nil {
			err = state.Evolve(e)
		}
		if err != nil {
			a.t.Fatal(err)
		}
		want.Events[e.Fact.Type()]++
	}
	want.Owner, want.Epoch = state.Owner, state.Epoch
	got, next, err := a.s.Counts(testPartition)
	if err != nil || next != a.v.Next() || !reflect.DeepEqual(got, want) {
		a.t.Fatalf("counts as of %d: %v\n got %+v\nwant %+v", next, err, got, want)
	}
}

// TestRowOfAnUnreadableEvent checks that a task with an event that can't be folded is listed as of the previous event,
// and marked as stopped. A task without its first event isn't listed. Crashes change nothing.
func TestRowOfAnUnreadableEvent(t *testing.T) {
	h := newHistory(1)
	rs := h.records(900)
	h = newHistory(1)
	h.records(301)
	before, broken := h.summaries(), 0
	for i := 301; i < len(rs); i++ { // the first event from 301 on of each task
		s := before[string(rs[i].Key)]
		if s == nil || s.Stopped != 0 {
			continue
		}
		_, s.Stopped, _ = events.EventName(&rs[i])
		broken++
		switch broken % 3 {
		case 0:
			rs[i].Headers = slices.Clone(rs[i].Headers)
			for j := range rs[i].Headers {
				if rs[i].Headers[j].Key == events.HeaderType {
					rs[i].Headers[j].Value = []byte("waybill.step.teleported.v1")
				}
			}
		case 1:
			rs[i].Value = []byte(`{"at":`)
		default:
			rs[i].Headers = nil // without a seq; the next event shows the gap
			s.Stopped++
		}
	}
	if broken < 9 {
		t.Fatalf("only %d tasks were broken", broken)
	}
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	rnd := rand.New(rand.NewPCG(5, 5))
	for i := range rs {
		apply(t, a.v, rs[:i+1])
		a.act(rnd.IntN(200))
		apply(t, a.v, rs[:i+1])
	}
	a.save()
	for id, want := range before {
		got, _, err := a.s.Summary(testPartition, id)
		if err != nil || got == nil {
			t.Fatalf("row of %s: %v, %v", id, got, err)
		}
		if want.Stopped != 0 && got.Stopped == 0 && got.Seq+1 == want.Stopped-1 {
			continue // no event followed the record without a seq
		}
		if want.Stopped != 0 && rowText(got) != rowText(want) {
			t.Errorf("row of %s\n got %s\nwant %s", id, got.Encode(), want.Encode())
		}
	}
	page, err := a.s.List(t.Context(), []int32{testPartition}, projections.Filter{}, projections.Cursor{}, projections.MaxPageTasks)
	if err != nil || page.Next != nil || len(page.Tasks) < len(before) {
		t.Errorf("%d tasks are listed of %d, %v", len(page.Tasks), len(before), err)
	}
	a.v.Close()
	closeStore(t, a.s)
}

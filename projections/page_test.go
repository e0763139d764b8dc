package projections_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// TestListBeforeTime checks that a list until 1970 is empty, for any filter.
func TestListBeforeTime(t *testing.T) {
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	apply(t, a.v, newHistory(1).records(300))
	a.save()
	for _, until := range []time.Time{time.UnixMilli(0), time.UnixMilli(-1), time.Unix(-1, 0), time.Unix(-1e9, 0), time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)} {
		for _, f := range []projections.Filter{{}, {Workflow: "order"}, {Agent: "r"}, {States: []events.TaskState{events.StateProcessed}}, {DueBefore: time.Unix(1<<33, 0)}} {
			f.Until = until
			page, err := a.s.List(t.Context(), []int32{testPartition, 0}, f, projections.Cursor{}, 10)
			if err != nil || len(page.Tasks) > 0 || page.Next != nil || len(page.AsOf) != 2 {
				t.Errorf("%+v: %d tasks, next %v, as of %v, %v", f, len(page.Tasks), page.Next, page.AsOf, err)
			}
		}
	}
	a.v.Close()
	closeStore(t, a.s)
}

// TestWideTasks checks that pages and unsaved changes are bounded in bytes, since a task of a thousand steps is as
// large as hundreds of others. Each task is on exactly one page.
func TestWideTasks(t *testing.T) {
	const tasks = 150
	h := newHistory(1)
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	var saved int
	a.o.Listener = &projections.Listener{Saved: func(s projections.Saved) { saved = s.Bytes }}
	a.open()
	for i := range tasks {
		apply(t, a.v, []events.Record{h.wide(fmt.Sprint("wide-", i), 1000)})
	}
	// ChangedBytes must count steps. Otherwise thousands of such tasks would be in memory before a Save.
	changed := a.v.ChangedBytes()
	if a.save(); changed < saved/2 || changed > 2*saved {
		t.Errorf("about %d bytes changed, %d were saved", changed, saved)
	}
	seen, pages := map[string]bool{}, 0
	for after := new(projections.Cursor); after != nil; pages++ {
		page, err := a.s.List(t.Context(), []int32{testPartition, 0}, projections.Filter{}, *after, projections.MaxPageTasks)
		if err != nil || len(page.Tasks) == 0 {
			t.Fatalf("%d tasks, %v", len(page.Tasks), err)
		}
		bytes := 0
		for i := range page.Tasks {
			if id := page.Tasks[i].ID; seen[id] {
				t.Errorf("%s is on two pages", id)
			} else {
				seen[id] = true
			}
			bytes += len(page.Tasks[i].Encode())
		}
		if bytes > projections.MaxPageBytes {
			t.Errorf("page %d has %d bytes", pages, bytes)
		}
		after = page.Next
	}
	if len(seen) != tasks || pages < 2 {
		t.Errorf("%d tasks of %d on %d pages", len(seen), tasks, pages)
	}
	a.v.Close()
	closeStore(t, a.s)
}

// wide makes the first event of a task of many parallel steps.
func (h *history) wide(id string, steps int) events.Record {
	plan := make([]events.PlanStep, steps)
	for i := range plan {
		plan[i] = events.PlanStep{ID: fmt.Sprintf("step-%04d", i), Agent: "inventory", Operation: "reserve", Attempts: testAttempts}
	}
	return h.record(&events.Event{Task: id, Seq: 1, Fact: &events.TaskReceived{Workflow: "order", Version: 1, Digest: "d",
		Plan: events.NewPlan(events.OnErrorUndo, time.Minute, plan)}})
}

// TestTasksAreWeighedByTheirSteps checks that ChangedBytes estimates a Save well for any number of steps. A restore
// saves by ChangedBytes, and has the changes in memory before.
func TestTasksAreWeighedByTheirSteps(t *testing.T) {
	for _, steps := range []int{1, 3, 30, 1000} {
		saved := 0
		s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: vfs.NewMem(),
			Listener: &projections.Listener{Saved: func(s projections.Saved) { saved = s.Bytes }}})
		if err != nil {
			t.Fatal(err)
		}
		v := tasksOf(t, s)
		h := newHistory(1)
		for i := range 20 {
			apply(t, v, []events.Record{h.wide(fmt.Sprint("wide-", i), steps)})
		}
		changed := v.ChangedBytes()
		if v.Save(); changed < saved/3 || changed > 3*saved {
			t.Errorf("%d steps: about %d bytes changed, %d were saved", steps, changed, saved)
		}
		v.Close()
		closeStore(t, s)
	}
}

// TestPlaceOfASpentPage checks that a page which ends by its bound of entries has a Next that a token can represent,
// for any ids.
func TestPlaceOfASpentPage(t *testing.T) {
	ids := []string{strings.Repeat("a", events.MaxTaskIDBytes), strings.Repeat("b", events.MaxTaskIDBytes-4) + "\U0010ffff", "c ", "d\u00a0", "e\U0010ffff"}
	h := newHistory(1)
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	for _, id := range ids {
		apply(t, a.v, h.task(id))
	}
	a.save()
	spent, seen := 0, 0
	for after := new(projections.Cursor); after != nil; {
		page, err := a.s.ListWithin(t.Context(), []int32{testPartition}, projections.Filter{}, *after, 10, 4)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(page.Tasks)
		if after = page.Next; after == nil {
			break
		}
		if spent++; len(after.Task) > events.MaxTaskIDBytes+utf8.UTFMax || !utf8.ValidString(after.Task) || after.Task == "" {
			t.Errorf("%d bytes: %q", len(after.Task), after.Task)
		}
	}
	if seen != len(ids) || spent < 2 {
		t.Errorf("%d tasks of %d, %d pages that were spent", seen, len(ids), spent)
	}
	a.v.Close()
	closeStore(t, a.s)
}

// TestPagesOfDueTasksProgress lists tasks by complete-by and other conditions, with nearly as many places as a page may
// read. Each page must end after the place where it began, however many iterators it opens.
func TestPagesOfDueTasksProgress(t *testing.T) {
	const versions, looks = 6, 64
	h := newHistory(1)
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	by := events.Millis(h.at.Add(time.Hour))
	made := 0
	for _, tasks := range []int{512, 600, 690} {
		for ; made < tasks; made++ {
			h.at = h.at.Add(time.Second)
			apply(t, a.v, []events.Record{h.record(&events.Event{Task: fmt.Sprintf("t-%04d", made), Seq: 1, Fact: &events.TaskReceived{Workflow: "order", Version: 1 + made%versions,
				Labels: map[string]string{"a": "b", "c": "d"}, Digest: "d", Plan: testPlan, CompleteBy: by}})})
		}
		a.save()
		for name, f := range map[string]projections.Filter{
			"all":                 {},
			"workflow":            {Workflow: "order"},
			"state":               {States: []events.TaskState{events.StatePending}},
			"workflow and state":  {Workflow: "order", States: []events.TaskState{events.StatePending, events.StateError}},
			"workflow and labels": {Workflow: "order", Labels: map[string]string{"a": "b", "c": "d"}},
		} {
			f.DueBefore = by.Add(time.Hour)
			seen, pages, last := 0, 0, projections.Cursor{}
			for after := new(projections.Cursor); after != nil; pages++ {
				page, err := a.s.ListWithin(t.Context(), []int32{testPartition}, f, *after, 1000, looks)
				if err != nil {
					t.Fatal(err)
				}
				seen += len(page.Tasks)
				if after = page.Next; after != nil && (after.Submitted < 0 || *after == last) {
					t.Fatalf("%s of %d: page %d ends at %+v, where it began", name, tasks, pages, *after)
				} else if after != nil {
					last = *after
				}
			}
			if seen != tasks {
				t.Errorf("%s: %d of %d tasks on %d pages", name, seen, tasks, pages)
			}
		}
	}
	a.v.Close()
	closeStore(t, a.s)
}

// TestPlaceBeforeTheFirst checks that the place before the first possible one isn't beyond the end of the list.
func TestPlaceBeforeTheFirst(t *testing.T) {
	first := projections.Cursor{Submitted: math.MaxInt64}
	if got := first.JustBefore(); got != first {
		t.Errorf("%+v is just before the first place", got)
	}
}

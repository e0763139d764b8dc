package projections_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// forgettingPlan is testPlan of a workflow whose ids are forgotten soon.
var forgettingPlan = testPlan.WithDedupeFor(3 * time.Second)

// forgets makes an event that forgets ids, if any may be forgotten.
func (h *history) forgets() (r events.Record, ok bool) {
	if due := h.state.ForgetDue; due.IsZero() || due.After(h.at) {
		return r, false
	}
	f := &events.PartitionForgot{Until: events.Millis(h.at)}
	for _, t := range h.tasks {
		if at := t.ForgetAt; at.After(f.Until) && (f.Next.IsZero() || at.Before(f.Next)) {
			f.Next = at
		}
	}
	return h.record(&events.Event{Seq: uint64(f.Until.UnixMilli()), Epoch: h.state.Epoch, Fact: f}), true
}

// forgottenID returns the id of a task that is forgotten; empty: none is.
func (h *history) forgottenID() string {
	var ids []string
	for id, t := range h.tasks {
		if t.Forgotten(h.state.Forgot) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return ids[h.rnd.IntN(len(ids))]
}

// setForgetAt sets the ForgetAt of an event that ends a task.
func (h *history) setForgetAt(e *events.Event) {
	switch f := e.Fact.(type) {
	case *events.TaskProcessed:
		f.ForgetAt = h.tasks[e.Task].ForgetAtEnd(e.At)
	case *events.TaskUndone:
		f.ForgetAt = h.tasks[e.Task].ForgetAtEnd(e.At)
	case *events.TaskCancelled:
		f.ForgetAt = h.tasks[e.Task].ForgetAtEnd(e.At)
	}
}

// known returns the tasks that aren't forgotten.
func (h *history) known() map[string]*events.Task {
	known := map[string]*events.Task{}
	for id, t := range h.tasks {
		if !t.Forgotten(h.state.Forgot) {
			known[id] = t
		}
	}
	return known
}

// newForgettingHistory is newHistory with ids that are forgotten and used again.
func newForgettingHistory(seed uint64) *history {
	h := newHistory(seed)
	h.forget = true
	return h
}

// hides checks that no forgotten task is found, whether or not it is deleted yet.
func hides(t *testing.T, v *projections.Tasks, h *history) {
	t.Helper()
	v.BeginLookups()
	defer v.EndLookups()
	for id, task := range h.tasks {
		if !task.Forgotten(h.state.Forgot) {
			continue
		}
		if got := v.Task(id); v.Knows(id) && got != nil {
			t.Fatalf("task %s at offset %d is forgotten: %v", id, v.Next(), got)
		}
	}
}

func isForgot(r *events.Record) bool {
	ceType, _ := r.Header(events.HeaderType)
	return ceType == (&events.PartitionForgot{}).Type()
}

// TestForgottenTasksAreGone compares a store with the model over histories in which ids are forgotten and used again, with
// random saves, flushes and restarts. In the end nothing of a forgotten task is in Pebble.
func TestForgottenTasksAreGone(t *testing.T) {
	t.Parallel()
	forgotten, again := 0, 0
	for seed := range seeds(t, 12) {
		rnd := rand.New(rand.NewPCG(seed, 13))
		h := newForgettingHistory(seed)
		fs := vfs.NewMem()
		s := open(t, fs, projections.ViewTasks)
		v := tasksOf(t, s)
		var log []events.Record
		for len(log) < 2000 {
			r := h.next()
			log = append(log, r)
			apply(t, v, log[len(log)-1:])
			if isForgot(&r) {
				forgotten++
				hides(t, v, h)
			}
			switch rnd.IntN(40) {
			case 0, 1:
				v.Save()
			case 2:
				v.Discard()
				closeStore(t, s)
				s = open(t, fs, projections.ViewTasks)
				v = tasksOf(t, s)
				apply(t, v, log)
			case 3:
				same(t, v, h.known(), h.state)
				sees(t, v, h.known())
			}
		}
		again += h.again
		for h.state.ForgetDue.After(h.at) {
			h.at = h.state.ForgetDue
		}
		last, _ := h.forgets()
		log = append(log, last)
		apply(t, v, log[len(log)-1:])
		v.Save()
		v.Save()
		same(t, v, h.known(), h.state)
		ended := int64(0)
		for _, task := range h.known() {
			if !task.Open() {
				ended++
			}
		}
		if rows, listed := v.Stored(); rows != ended || v.Kept() != ended || listed > int(ended) || v.TakeForgets() == 0 || v.TakeForgets() != 0 {
			t.Fatalf("seed %d: %d ended tasks are known; %d are stored, %d counted, %d listed", seed, ended, rows, v.Kept(), listed)
		}
		if got, want := v.Digest(), rebuilt(t, log); got != want {
			t.Fatalf("seed %d: digest %s, of a rebuild %s", seed, got, want)
		}
		v.Close()
		closeStore(t, s)
	}
	if forgotten < 10*int(seeds(t, 12)) || again < 10*int(seeds(t, 12)) {
		t.Errorf("%d events forgot ids, and %d ids were used again: they prove little", forgotten, again)
	}
}

package projections_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// alertsOf computes the alerts from the whole log: the open ones and the newest past ones, the newest first.
func alertsOf(t *testing.T, rs []events.Record, keptPast int) []projections.Alert {
	t.Helper()
	var all []projections.Alert
	ending, open, catching := map[string]events.TaskState{}, map[string]int{}, map[string]bool{}
	tasks := map[string]*events.Task{}
	for i := range rs {
		e, err := events.DecodeEvent(&rs[i])
		if err == nil && e.Task != "" {
			tasks[e.Task], err = events.Evolve(tasks[e.Task], e, events.Hash(e.Fact.Type(), rs[i].Value))
		}
		if err != nil {
			t.Fatal(err)
		}
		switch f := e.Fact.(type) {
		case *events.TaskHeld:
			a := events.AlertOfHold(e, f, ending[e.Task], f.Error != nil && catching[e.Task+"/"+f.Error.Step])
			open[e.Task] = len(all)
			all = append(all, projections.Alert{Task: a.Task, Seq: a.Seq, Offset: rs[i].Offset, At: a.At, Code: a.Code, Step: a.Step, Message: a.Message, Partition: rs[i].Partition, Group: groupIDOf(tasks[e.Task])})
			continue
		case *events.AttemptStarted:
			if f.Kind == events.Undo && ending[e.Task] == "" {
				catching[e.Task+"/"+f.Step] = true
			}
			continue
		case *events.TaskUndoing:
			ending[e.Task] = f.Ending
		case *events.TaskResumed, *events.TaskCancelled:
		default:
			continue
		}
		if at, held := open[e.Task]; held {
			all[at].EndedAt, all[at].EndedBy = e.At, e.Fact.Type()
			delete(open, e.Task)
		}
	}
	slices.Reverse(all)
	past := 0
	return slices.DeleteFunc(all, func(a projections.Alert) bool {
		if a.Open() {
			return false
		}
		past++
		return past > keptPast
	})
}

// groupIDOf returns the id of the error group of a task that an event has just held.
func groupIDOf(t *events.Task) string {
	var kind events.Kind
	if i, is := t.Plan.Step(t.Error.Step); is {
		if kind = events.Do; t.Steps[i].Undo != nil {
			kind = events.Undo
		}
	}
	return projections.ErrorGroupID(t.Workflow, t.Error.Step, kind, t.Error.Code, t.Error.Message, t.ID)
}

// TestAlertsAgreeWithTheLog checks that the index has the same alerts as a computation from the whole log, with Saves
// and crashes of processes and machines at random points.
func TestAlertsAgreeWithTheLog(t *testing.T) {
	for seed := range seeds(t, 6) {
		kept := []int{projections.MaxPastAlerts, 7}[seed%2]
		undo := projections.KeepPastAlerts(kept)
		f := follow(t, seed, 9)
		f.read(60, 2, func() time.Duration { return 0 }, func() { comparesAlerts(t, f.s, alertsOf(t, f.rs, kept), f.String()) })
		if all := alertsOf(t, f.rs, math.MaxInt); kept == 7 && len(all)-len(alertsOf(t, f.rs, kept)) < 20 {
			t.Errorf("seed %d: of %d alerts hardly one was dropped", seed, len(all))
		}
		f.end()
		undo()
	}
}

func comparesAlerts(t *testing.T, s *projections.Store, want []projections.Alert, of string) {
	t.Helper()
	const all = 1 << 20
	ask := func(q projections.AlertQuery) projections.AlertList {
		l, err := s.Alerts([]int32{testPartition}, q)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if got := ask(projections.AlertQuery{Limit: all}); !slices.Equal(got.Alerts, want) || got.Count != int64(len(want)) {
		t.Fatalf("%s: %d alerts (%d counted), want %d\n%+v\n%+v", of, len(got.Alerts), got.Count, len(want), got.Alerts, want)
	}
	if len(want) == 0 {
		return
	}
	var pages []projections.Alert
	for q := (projections.AlertQuery{Limit: 3}); len(pages) < len(want); q.After = new(pages[len(pages)-1].Place()) {
		got := ask(q)
		if got.Count != int64(len(want)-len(pages)) || len(got.Alerts) != min(q.Limit, int(got.Count)) {
			t.Fatalf("%s: after %v there are %d alerts of %d, %d are left of %d", of, q.After, len(got.Alerts), got.Count, len(want)-len(pages), len(want))
		}
		pages = append(pages, got.Alerts...)
	}
	if !slices.Equal(pages, want) {
		t.Errorf("%s: page by page\n%+v, want\n%+v", of, pages, want)
	}
	open := slices.DeleteFunc(slices.Clone(want), func(a projections.Alert) bool { return !a.Open() })
	if got := ask(projections.AlertQuery{Limit: 3, OpenOnly: true}); !slices.Equal(got.Alerts, open[:min(3, len(open))]) || got.Count != int64(len(open)) {
		t.Errorf("%s: open are %+v, of %d, want of %+v", of, got.Alerts, got.Count, open)
	}
	since := want[len(want)/2].At
	for _, q := range []projections.AlertQuery{{PastSince: since, Limit: all}, {OpenSince: since, PastSince: since, Limit: all}} {
		some := slices.DeleteFunc(slices.Clone(want), func(a projections.Alert) bool {
			if a.Open() {
				return a.At.Before(q.OpenSince)
			}
			return a.EndedAt.Before(since)
		})
		if got := ask(q); !slices.Equal(got.Alerts, some) || got.Count != int64(len(some)) {
			t.Errorf("%s, since %s: %+v, want %+v", of, since.Format(time.RFC3339Nano), got.Alerts, some)
		}
	}
}

// TestAlertsOfManyPartitions checks that a list of alerts of many partitions takes no more memory than one of a few.
func TestAlertsOfManyPartitions(t *testing.T) {
	const each, limit = 40, 10
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	h := newHistory(1)
	var all []projections.Alert
	partitions := []int32{0, 1, 2, 3}
	a.v.Close()
	for _, p := range partitions {
		v, err := a.s.Timelines(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range each {
			rs := h.task(fmt.Sprint("held-", p, "-", i), &events.TaskHeld{Error: &events.Error{Code: "c", Message: "m"}})
			for j := range rs {
				rs[j].Partition = p
			}
			apply(t, v, rs)
			h.at = h.at.Add(time.Duration(p) * time.Millisecond)
		}
		v.Close()
		found, err := a.s.Alerts([]int32{p}, projections.AlertQuery{Limit: each})
		if err != nil || len(found.Alerts) != each {
			t.Fatalf("%d alerts, %v", len(found.Alerts), err)
		}
		all = append(all, found.Alerts...)
	}
	slices.SortFunc(all, func(a, b projections.Alert) int { return a.Place().Compare(b.Place()) })
	found, err := a.s.Alerts(partitions, projections.AlertQuery{Limit: limit})
	if err != nil || !slices.Equal(found.Alerts, all[:limit]) || found.Count != int64(len(all)) || len(found.AsOf) != len(partitions) {
		t.Errorf("%+v of %d, %v; want %+v", found.Alerts, found.Count, err, all[:limit])
	}
	if n := cap(found.Alerts); n > 4*limit {
		t.Errorf("room for %d alerts of a list of %d", n, limit)
	}
	closeStore(t, a.s)
}

// TestAlertOfALongMessage checks that stored messages are bounded, whatever agents send.
func TestAlertOfALongMessage(t *testing.T) {
	h := newHistory(1)
	a := &audited{t: t, fs: vfs.NewCrashableMem(), o: projections.Options{}}
	a.open()
	long := strings.Repeat("é", projections.MaxAlertTextBytes)
	rs := h.task("long", &events.TaskHeld{Error: &events.Error{Code: long, Message: "!" + long}})
	apply(t, a.v, rs)
	a.save()
	found, err := a.s.Alerts([]int32{testPartition}, projections.AlertQuery{Limit: 10})
	if err != nil || len(found.Alerts) != 1 {
		t.Fatalf("%d alerts, %v", len(found.Alerts), err)
	}
	x := found.Alerts[0]
	if x.Code != long[:projections.MaxAlertTextBytes] || x.Message != "!"+long[:projections.MaxAlertTextBytes-2] {
		t.Errorf("a code of %d bytes, a message of %d", len(x.Code), len(x.Message))
	}
}

package projections_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// statsOf computes the stats from the whole log, by workflow.
func statsOf(t *testing.T, rs []events.Record, q projections.StatsQuery) map[string][]projections.Stats {
	t.Helper()
	all := map[string][]projections.Stats{}
	tasks := map[string]*events.Task{}
	for i := range rs {
		e, err := events.DecodeEvent(&rs[i])
		if err != nil {
			t.Fatal(err)
		}
		if e.Task == "" {
			continue
		}
		was, failures := events.TaskState(""), 0
		if task := tasks[e.Task]; task != nil {
			was, failures = task.State, task.FailureCount
		}
		task, err := events.Evolve(tasks[e.Task], e, events.Hash(e.Fact.Type(), rs[i].Value))
		if err != nil {
			t.Fatal(err)
		}
		tasks[e.Task] = task
		of := projections.Stats{Failures: int64(task.FailureCount - failures)}
		if _, is := e.Fact.(*events.AttemptStarted); is {
			of.Attempts = 1
		}
		if was == events.StateError && task.State != was {
			of.HoldsEnded = 1
		}
		switch e.Fact.(type) {
		case *events.TaskReceived:
			of.Submitted = 1
		case *events.TaskProcessed:
			of.Processed = 1
			of.Latency.Add(e.At.Sub(task.SubmittedAt).Milliseconds())
		case *events.TaskUndone:
			of.Undone = 1
		case *events.TaskCancelled:
			of.Cancelled = 1
		case *events.TaskHeld:
			of.Held = 1
		}
		if e.At.Before(q.From) || !e.At.Before(q.To) || reflect.DeepEqual(of, projections.Stats{}) {
			continue
		}
		if all[task.Workflow] == nil {
			all[task.Workflow] = make([]projections.Stats, q.To.Sub(q.From)/q.Step)
		}
		all[task.Workflow][e.At.Sub(q.From)/q.Step].Merge(&of)
	}
	return all
}

// TestStatsAgreeWithTheLog checks that the index has the same stats as a computation from the whole log, at each level
// and as far as it is kept, with Saves and crashes at random points.
func TestStatsAgreeWithTheLog(t *testing.T) {
	points := 0
	for seed := range seeds(6) {
		rnd := rand.New(rand.NewPCG(seed, 13))
		h := newHistory(seed)
		h.vary = true
		a := &audited{t: t, fs: vfs.NewCrashableMem(), o: projections.Options{HotBytes: 1 + rnd.IntN(20_000)}}
		a.open()
		var rs []events.Record
		for range 80 {
			some := h.records(1 + rnd.IntN(60))
			h.at = h.at.Add(time.Duration(rnd.IntN(90)) * []time.Duration{time.Second, time.Minute, time.Hour}[rnd.IntN(3)])
			rs = append(rs, some...)
			apply(t, a.v, some)
			a.act(30 + rnd.IntN(8))
			apply(t, a.v, rs) // replay what was lost
			if rnd.IntN(4) > 0 {
				continue
			}
			a.save()
			latest := rs[len(rs)-1].Time
			if e, err := events.DecodeEvent(&rs[len(rs)-1]); err == nil {
				latest = e.At
			}
			for _, level := range projections.StatsLevels {
				step := level.Step * time.Duration(1+rnd.IntN(3))
				q := projections.StatsQuery{Step: step, ByWorkflow: true, To: latest.Truncate(step).Add(step)}
				q.From = latest.Add(-level.Kept).Truncate(step).Add(step)
				got, err := a.s.Stats([]int32{testPartition, 0}, q)
				want := statsOf(t, rs, q)
				if err != nil || len(got.AsOf) != 2 || fmt.Sprint(got.Series) != fmt.Sprint(want) {
					t.Fatalf("seed %d, %d events, step %s: %v\n got %v\nwant %v", seed, len(rs), step, err, got.Series, want)
				}
				q.ByWorkflow, q.Workflow = false, "order"
				if one, err := a.s.Stats([]int32{testPartition}, q); err != nil || len(want["order"]) > 0 && fmt.Sprint(one.Series[""]) != fmt.Sprint(want["order"]) {
					t.Fatalf("seed %d: of one workflow: %v, %v", seed, one.Series, err)
				}
				points += len(want)
			}
		}
		b := &audited{t: t, fs: vfs.NewCrashableMem()}
		b.open()
		apply(t, b.v, rs)
		if got, want := a.v.Digest(), b.v.Digest(); got != want {
			t.Errorf("seed %d: digest %s, of a rebuild %s", seed, got, want)
		}
		for _, x := range []*audited{a, b} {
			x.v.Close()
			closeStore(t, x.s)
		}
	}
	if points < 50 {
		t.Errorf("%d series prove little", points)
	}
}

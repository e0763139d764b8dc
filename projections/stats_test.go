package projections_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

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

// requestsOf computes the stats of agents from the whole log. It knows the facts by their types, not by their About.
func requestsOf(t *testing.T, rs []events.Record, q projections.StatsQuery) map[string][]projections.Stats {
	t.Helper()
	type run struct {
		task, step string
		kind       events.Kind
	}
	sent := map[run]events.Event{}
	all := map[string][]projections.Stats{}
	for i := range rs {
		e, err := events.DecodeEvent(&rs[i])
		if err != nil {
			t.Fatal(err)
		}
		ended := func(of run, attempt int, replied, failed bool) {
			of.task = e.Task
			request, is := sent[of]
			if !is || request.Fact.(*events.AttemptStarted).Attempt != attempt { // it failed before a request was sent
				return
			}
			delete(sent, of)
			if e.At.Before(q.From) || !e.At.Before(q.To) {
				return
			}
			agent := request.Fact.(*events.AttemptStarted).Agent
			if all[agent] == nil {
				all[agent] = make([]projections.Stats, q.To.Sub(q.From)/q.Step)
			}
			stats := &all[agent][e.At.Sub(q.From)/q.Step]
			stats.Attempts++
			if failed {
				stats.Failures++
			}
			if replied {
				stats.Latency.Add(e.At.Sub(request.At).Milliseconds())
			}
		}
		switch f := e.Fact.(type) {
		case *events.AttemptStarted:
			sent[run{e.Task, f.Step, f.Kind}] = *e
		case *events.AttemptCompleted:
			ended(run{step: f.Step, kind: f.Kind}, f.Attempt, true, false)
		case *events.CheckCompleted:
			ended(run{step: f.Step, kind: events.Check}, f.Attempt, true, false)
		case *events.CallRepeated:
			ended(run{step: f.Step, kind: events.Do}, f.Attempt, true, false)
		case *events.AttemptRejected:
			ended(run{step: f.Step, kind: f.Kind}, f.Attempt, true, false)
		case *events.AttemptFailed:
			ended(run{step: f.Step, kind: f.Kind}, f.Attempt, true, !f.Deferred)
		case *events.AttemptExpired:
			ended(run{step: f.Step, kind: f.Kind}, f.Attempt, false, true)
		}
	}
	return all
}

// TestStatsAgreeWithTheLog checks that the index has the same stats as a computation from the whole log, at each level
// and as far as it is kept, with Saves and crashes at random points.
func TestStatsAgreeWithTheLog(t *testing.T) {
	points, requests := 0, projections.Stats{}
	for seed := range seeds(t, 6) {
		f := follow(t, seed, 13)
		f.read(80, 4, func() time.Duration { return f.pauseOfAnyLength(90) }, func() {
			latest := f.latest()
			for _, level := range projections.StatsLevels {
				step := level.Step * time.Duration(1+f.rnd.IntN(3))
				q := projections.StatsQuery{Step: step, ByName: true, To: latest.Truncate(step).Add(step)}
				q.From = latest.Add(-level.Kept).Truncate(step).Add(step)
				got, err := f.s.Stats([]int32{testPartition, 0}, q)
				want := statsOf(t, f.rs, q)
				if err != nil || len(got.AsOf) != 2 || fmt.Sprint(got.Series) != fmt.Sprint(want) {
					t.Fatalf("%s, step %s: %v\n got %v\nwant %v", f, step, err, got.Series, want)
				}
				q.ByName, q.Name = false, "order"
				if one, err := f.s.Stats([]int32{testPartition}, q); err != nil || len(want["order"]) > 0 && fmt.Sprint(one.Series[""]) != fmt.Sprint(want["order"]) {
					t.Fatalf("%s: of one workflow: %v, %v", f, one.Series, err)
				}
				points += len(want)
				q.ByName, q.Name, q.OfAgents = true, "", true
				got, err = f.s.Stats([]int32{testPartition}, q)
				want = requestsOf(t, f.rs, q)
				if err != nil || fmt.Sprint(got.Series) != fmt.Sprint(want) {
					t.Fatalf("%s, step %s, of agents: %v\n got %v\nwant %v", f, step, err, got.Series, want)
				}
				for _, series := range want {
					for i := range series {
						requests.Merge(&series[i])
					}
				}
			}
		})
		f.end()
	}
	if n := requests.Latency.Count(); points < 50 || n < 50 || requests.Failures == 0 || requests.Attempts == n {
		t.Errorf("%d series and %d replies prove little: %+v", points, n, requests)
	}
}

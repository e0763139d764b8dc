package golden

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	waybill "github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/internal/verify"
)

// TestThisBuildContinuesAnOldDirectory: `waybill up` of today on a copy of an old
// data directory, its stores behind its log. The tasks that were open go on to
// their ends, those that were held once an operator has them, an order of then
// is known still, and what was written then is not touched.
func TestThisBuildContinuesAnOldDirectory(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	for _, generation := range generations(t) {
		t.Run(generation, func(t *testing.T) {
			dir := extract(t, generation)
			state := filepath.Join(dir, "state")
			if err := os.RemoveAll(state); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "earlier"), state); err != nil {
				t.Fatal(err)
			}
			u := startUp(t, todaysBinary(t), dir, "--partitions", fmt.Sprint(partitions))
			serveCourier(t, u)
			open := openTasks(recordedTasks(t, generation))
			if len(open) == 0 {
				t.Fatal("nothing was left open: it proves nothing")
			}
			settle(t, u)
			u.await(t, fmt.Sprint(open, " to end"), func(tasks map[string]events.TaskView) bool { return len(openTasks(tasks)) == 0 })
			knownStill(t, u)
			tasks := u.tasks(t)
			u.stop(t)
			checkLog(t, dir, readLog(t, generation), len(tasks))
			tally.Add(t, "tasks left open by an old build, ended by today's", len(open))
		})
	}
}

// recordedTasks are the tasks as the old build left them.
func recordedTasks(t *testing.T, generation string) map[string]events.TaskView {
	t.Helper()
	states, err := Fold(readLog(t, generation), namespace)
	if err != nil {
		t.Fatal(err)
	}
	tasks := map[string]events.TaskView{}
	for _, s := range states {
		if s.View != nil {
			tasks[s.View.ID] = *s.View
		}
	}
	return tasks
}

// merge adds what an old log held and a broker has deleted since by its age:
// requests, alerts and dead letters aren't kept for ever. Events are, and must
// all be there.
func merge(old, now []events.Record) []events.Record {
	type place struct {
		topic     string
		partition int32
	}
	begins := map[place]int64{}
	for _, r := range now {
		if _, ok := begins[place{r.Topic, r.Partition}]; !ok {
			begins[place{r.Topic, r.Partition}] = r.Offset
		}
	}
	var all []events.Record
	for _, r := range old {
		if first, ok := begins[place{r.Topic, r.Partition}]; r.Topic != namespace.Events() && (!ok || r.Offset < first) {
			all = append(all, r)
		}
	}
	return append(all, now...)
}

// openTasks are the ids of tasks that have not ended.
func openTasks(tasks map[string]events.TaskView) []string {
	var open []string
	for id, v := range tasks {
		if !v.State.Terminal() {
			open = append(open, id)
		}
	}
	slices.Sort(open)
	return open
}

// serveCourier runs the agent that nobody ran when the data was made.
func serveCourier(t *testing.T, u *up) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- waybill.Serve(ctx, waybill.Config{Brokers: []string{u.addr}}, "courier",
			agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return map[string]string{"by": "bike"}, nil }))
	}()
	t.Cleanup(func() {
		stop()
		t.Log("the agent ended:", <-ended) // with the broker's end, too
	})
}

// settle is what an operator does about what an old build held.
func settle(t *testing.T, u *up) {
	t.Helper()
	u.tool(t, 0, "release", "held-2", "charge", "--as", "completed", "--result", `{"charge":"by hand"}`, "--why", "golden data")
	u.tool(t, 0, "resubmit", "lost-1", "--why", "golden data")
	if _, has := u.tasks(t)[waits]; has { // from the second generation on
		u.tool(t, 0, "signal", waits, "approved", "--data", `{"by":"golden data"}`)
	}
	for {
		u.tool(t, 0, "resubmit", "stuck-0", "--why", "golden data")
		var state events.TaskState
		u.await(t, "stuck-0 to be held again, or undone", func(tasks map[string]events.TaskView) bool {
			state = tasks["stuck-0"].State
			return state == events.StateUndone || state == events.StateError
		})
		if state == events.StateUndone {
			return // refunds fail so often, and then no more
		}
	}
}

// knownStill: an order of then is answered as it was then, another one under
// its id is refused, and new ones are taken.
func knownStill(t *testing.T, u *up) {
	t.Helper()
	client, err := waybill.Open(t.Context(), waybill.Config{Brokers: []string{u.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	was, err := client.Get(ctx, "p-0")
	if err != nil {
		t.Fatal(err)
	}
	same := waybill.Order{ID: "p-0", Workflow: "parcel", Input: was.Input, Priority: 3, Labels: map[string]string{"shop": "eu"}}
	other := same
	other.Input = map[string]any{"total": 1}
	fresh := same
	fresh.ID, fresh.Workflow = "fresh", "slow" // of a definition that an old build applied
	if err := client.Submit(ctx, same, fresh); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]events.TaskState{"p-0": events.StateProcessed, "fresh": events.StateProcessed} {
		if got, err := client.Wait(ctx, id); err != nil || got.State != want {
			t.Errorf("task %s: %s (%v), want %s", id, got.State, err, want)
		}
	}
	if err := client.Submit(ctx, other); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Wait(ctx, "p-0"); err == nil {
		t.Error("another order under the id of an old one was not refused")
	}
	now, err := client.Get(ctx, "p-0")
	if err != nil {
		t.Fatal(err)
	}
	if *now.UpdatedAt != *was.UpdatedAt {
		t.Errorf("the old task was changed at %s", *now.UpdatedAt)
	}
}

// notInLedger are tasks of which the services' ledger can't know all: an
// operator settled a step by hand, or the courier, who keeps none, did one.
var notInLedger = []string{"held-0", "held-2", "stuck-1", "runs-0", "runs-1", childRuns}

// checkLog reads the log as today's build left it.
func checkLog(t *testing.T, dir string, old []events.Record, tasks int) {
	t.Helper()
	records := merge(old, readAll(t, startBroker(t, dir)))
	now, were, log := history(records), history(old), verify.NewLog()
	for p := range int32(partitions) {
		for i := range now[p] {
			if i < len(were[p]) && !sameRecord(&now[p][i], &were[p][i]) {
				t.Fatalf("partition %d: %s is not what the old build wrote", p, events.Origin(&now[p][i]))
			}
			log.Add(&now[p][i])
		}
		if len(now[p]) <= len(were[p]) {
			t.Errorf("partition %d: nothing was added to the old log", p)
		}
	}
	for _, f := range check(records).Faults {
		t.Error(f)
	}
	var ids []string
	log.Tasks(func(task *events.Task) bool {
		if task.Open() {
			t.Errorf("task %s is %s", task.ID, task.State)
		}
		if !slices.Contains(notInLedger, task.ID) {
			ids = append(ids, task.ID)
		}
		return true
	})
	if len(ids) == 0 || tasks == 0 {
		t.Error("no task is left to hold against the ledger")
	}
	entries, err := demo.ReadLedger(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range demo.CheckLedger(entries, log.Task, ids) {
		t.Error(f)
	}
}

func sameRecord(a, b *events.Record) bool {
	if a.Offset != b.Offset || !bytes.Equal(a.Key, b.Key) || !bytes.Equal(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !bytes.Equal(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/congestion"
)

// windowEpoch is the start time of the window tests.
var windowEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// observes returns a worker of one partition that measures windows.
func (s *site) observes() (*worker, *fakeLog) {
	s.cfg.Capacity.Observe = true
	log := s.cluster.join(0)
	return s.worker(log), log
}

func (s *site) many(n int, name string) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%02d", name, i))
	}
	return ids
}

// tenOfFifty sends fifty requests to an agent. It replies to ten of them after the duration answered, and the worker
// reads the replies after the further duration later. Then ten more requests time out.
func (s *site) tenOfFifty(w *worker, answered, later time.Duration) []string {
	s.t.Helper()
	tasks := s.many(50, "a")
	w.health.modify("inventory").Adopt(len(tasks)+congestion.InitialWindow, 1)
	s.submit("w", tasks...)
	s.drain(w)
	if got := s.asked("inventory"); len(got) != len(tasks) {
		s.t.Fatalf("asked for %d of %d", len(got), len(tasks))
	}
	s.clock.pass(answered)
	for _, id := range tasks[:10] {
		s.answer("inventory", id)
	}
	s.clock.pass(later)
	s.drain(w)
	s.clock.pass(time.Second)
	for _, id := range tasks[10:20] {
		s.due(id)
	}
	s.drain(w)
	return tasks
}

// TestOverloadedAgentGetsALimit checks that an agent receives as many requests as its window allows. When it is
// overloaded, further steps wait, and its replies start them.
func TestOverloadedAgentGetsALimit(t *testing.T) {
	s := newSite(t, 1)
	w, _ := s.observes()
	first := s.tenOfFifty(w, 9*time.Second, 0)
	const bound = 5 // requests of a third of 10 s, at the rate of ten answers in the last seconds
	if got := w.partitions[0].flow.slots(w.partitions[0].flow.agent("inventory")); got != bound {
		t.Fatalf("the bound is %d, want %d", got, bound)
	}
	s.submit("w", "new")
	s.drain(w)
	if got := s.asked("inventory"); slices.Contains(got, "new") {
		t.Fatal("30 are outstanding, and another was asked for")
	}
	all := w.agentFlows()
	if want := []AgentFlow{{Agent: "inventory", Outstanding: 30, Limit: bound, Queued: 1}}; !slices.Equal(all, want) {
		t.Errorf("agents %+v, want %+v", all, want)
	}
	for _, id := range first[20 : 50-bound] {
		s.due(id)
	}
	s.drain(w)
	if got := s.asked("inventory"); slices.Contains(got, "new") {
		t.Fatal("as many are outstanding as may, and another was asked for")
	}
	s.due(first[50-bound])
	s.drain(w)
	if got := s.asked("inventory"); got[len(got)-1] != "new" {
		t.Errorf("a slot is free; asked for %q last", got[len(got)-1])
	}
	s.events("")
}

// TestBusyWorkerDoesNotMakeAgentsSlow checks that the latency of an agent doesn't include the time until a busy worker
// reads its reply.
func TestBusyWorkerDoesNotMakeAgentsSlow(t *testing.T) {
	s := newSite(t, 1)
	w, _ := s.observes()
	s.tenOfFifty(w, time.Second, 8*time.Second)
	if got := w.agentFlows(); len(got) != 1 || got[0].Limit < 50 {
		t.Errorf("agents %+v, want the 50 that there were: they answered within a second", got)
	}
	s.events("")
}

// TestSilentAgentWithoutCapacityIsProbed checks that an agent without a capacity is probed when it becomes silent after
// fast replies. When it replies again, it isn't flooded.
func TestSilentAgentWithoutCapacityIsProbed(t *testing.T) {
	s := newSite(t, 1)
	w, _ := s.observes()
	s.submit("w", "q")
	s.drain(w)
	s.answer("inventory", "q")
	s.drain(w)
	s.clock.pass(time.Second)
	w.health.modify("inventory").Adopt(100+congestion.InitialWindow, 1)
	first := s.many(5, "a")
	s.submit("w", first...)
	s.drain(w)
	s.clock.pass(10 * time.Second)
	for _, id := range first[:silentAfter] {
		s.due(id)
	}
	s.drain(w)
	then := s.many(3*congestion.InitialWindow, "b")
	s.submit("w", then...)
	s.drain(w)
	if got := s.asked("inventory"); len(got) != 6 || !w.health.isSilent("inventory") {
		t.Fatalf("asked for %q, silent %v", got, w.health.isSilent("inventory"))
	}
	for _, id := range first[silentAfter:] {
		s.due(id)
	}
	s.drain(w)
	s.clock.pass(2 * time.Second)
	s.due("a04") // its backoff is over
	s.drain(w)
	got := s.asked("inventory")
	if len(got) != 7 || got[6] != "b00" {
		t.Fatalf("asked for %q, want b00 last", got)
	}
	s.answer("inventory", "b00")
	s.drain(w)
	// The probe was answered early, so the window grows by one.
	if got := s.asked("inventory"); w.health.isSilent("inventory") || len(got) != 7+congestion.InitialWindow+1 {
		t.Errorf("silent %v; asked for %q", w.health.isSilent("inventory"), got[7:])
	}
	s.events("")
}

// TestWindowAfterRollbackAndRestore checks that a rollback restores the windows from before the transaction. A worker
// that restores a partition with waiting steps starts with an initial window, and doesn't send all of them.
func TestWindowAfterRollbackAndRestore(t *testing.T) {
	s := newSite(t, 1)
	w, log := s.observes()
	first := s.many(4, "a")
	s.submit("w", first...)
	s.drain(w)
	s.clock.pass(10 * time.Second)
	rolledBack := 3
	log.end = func(func()) (bool, bool, error) {
		if rolledBack--; rolledBack >= 0 {
			if v := w.health.agents["inventory"]; len(v.timedOut) != 1 {
				t.Errorf("time-outs of %q counted before the commit, want one", v.timedOut)
			}
		}
		return false, rolledBack >= 0, nil
	}
	s.due(first[0])
	s.drain(w)
	if v := w.health.agents["inventory"]; len(v.timedOut) != 1 {
		t.Errorf("time-outs of %q counted after three rollbacks, want one", v.timedOut)
	}
	for _, id := range first[1:] {
		s.due(id)
	}
	s.drain(w)
	s.submit("w", s.many(3*congestion.InitialWindow, "b")...)
	s.drain(w)
	w.health = newAgentHealth() // another worker's
	log.assign(0)
	s.until(w, "the partition is there again", func() bool {
		return w.partitions[0] != nil && w.partitions[0].generation == log.Assigned()[0] && w.partitions[0].ready()
	})
	before := len(s.asked("inventory"))
	s.answer("inventory", first[0]) // any input
	s.drain(w)
	if got := len(s.asked("inventory")) - before; got == 0 || got > congestion.InitialWindow {
		t.Errorf("after a restore %d are asked for at once; at most %d", got, congestion.InitialWindow)
	}
	s.events("")
}

// TestFlowEndsWithItsTasks checks that the flow keeps no run of a task that has ended.
func TestFlowEndsWithItsTasks(t *testing.T) {
	s := newSite(t, 1)
	w, _ := s.observes()
	s.submit("w", "a", "b")
	s.drain(w)
	f := w.partitions[0].flow
	if n := f.agent("inventory").outstanding; len(f.runs) != 2 || n != 2 {
		t.Fatalf("%d spots, %d outstanding", len(f.runs), n)
	}
	s.complete("inventory")
	s.drain(w)
	if n := f.agent("inventory").outstanding; len(f.runs) != 0 || n != 0 {
		t.Errorf("%d spots, %d outstanding after all has ended", len(f.runs), n)
	}
}

// TestFlowDropsUndoAfterRollback checks that an undo whose start was rolled back doesn't count as outstanding.
func TestFlowDropsUndoAfterRollback(t *testing.T) {
	f := newFlow(Capacity{Agents: map[string]int{"inventory": 4}}, 0, 1)
	plan := &events.Plan{Steps: []events.PlanStep{{ID: "reserve", Agent: "inventory", Undo: &events.PlanUndo{Agent: "inventory"}}}}
	done := events.Run{State: events.StepCompleted, Attempt: 1}
	before := &events.Task{ID: "o", State: events.StateUndoing, Plan: plan, Steps: []*events.Step{{Run: done}}}
	after := before.Clone()
	after.OwnStep(0).Undo = &events.Run{State: events.StepRunning, Attempt: 1}
	f.refreshTask(after, time.Now(), false)
	if n := f.agent("inventory").outstanding; n != 1 {
		t.Fatalf("%d outstanding while the undo runs", n)
	}
	f.refreshTask(before, time.Now(), true)
	if n := f.agent("inventory").outstanding; n != 0 || len(f.runs) != 0 {
		t.Errorf("%d outstanding, %d spots after the rollback", n, len(f.runs))
	}
}

// TestWindowIsSharedByPartitions checks that a partition may use the part of a window that others don't use. Another
// partition keeps its own share even if that share is in use.
func TestWindowIsSharedByPartitions(t *testing.T) {
	vs := newAgentHealth()
	for id := range int32(2) {
		vs.addPartition(id, newFlow(Capacity{Observe: true}, id, 2))
	}
	const share = 16
	vs.modify("inventory").Adopt(2*share, 2)
	a, b := vs.flows[0].agent("inventory"), vs.flows[1].agent("inventory")
	a.outstanding = 2*share - 3
	if got := vs.flows[0].Free("inventory", "t", windowEpoch); got != 3 {
		t.Errorf("no other partition uses the window: %d slots are free, want 3", got)
	}
	if got := vs.flows[1].Free("inventory", "t", windowEpoch); got != share {
		t.Errorf("%d are free of the other's share, want %d", got, share)
	}
	b.outstanding = share
	for id, f := range vs.flows {
		if got := f.Free("inventory", "t", windowEpoch); got > 0 {
			t.Errorf("the bound is used up, and %d are free in partition %d", got, id)
		}
	}
}

// TestWindowCoversOutstandingRequests checks that after a takeover the window is at least the number of outstanding
// requests.
func TestWindowCoversOutstandingRequests(t *testing.T) {
	vs, f := newAgentHealth(), newFlow(Capacity{Observe: true}, 0, 1)
	f.agent("inventory").outstanding = 50
	vs.addPartition(0, f)
	if got := vs.window("inventory"); got != 50 {
		t.Errorf("%d are let out, want what is outstanding, 50", got)
	}
	if f.agent("inventory").outstanding = 49; f.Free("inventory", "t", windowEpoch) != 1 {
		t.Error("an answer lets out none")
	}
}

// TestReassignedPartitionKeepsNoHealth checks that a rebalance doesn't make an agent's results count twice.
func TestReassignedPartitionKeepsNoHealth(t *testing.T) {
	const there, here = 30, 12
	vs := newAgentHealth()
	for id, n := range []int{there, here} {
		f := newFlow(Capacity{Observe: true}, int32(id), 2)
		f.agent("inventory").outstanding = n
		vs.addPartition(int32(id), f)
	}
	if limit := vs.window("inventory"); limit != there+here {
		t.Fatalf("%d are let out, want what is outstanding, %d", limit, there+here)
	}
	for range 5 {
		f := vs.flows[1]
		delete(vs.flows, 1)
		vs.addPartition(1, f)
		if got := vs.window("inventory"); got != there+here {
			t.Fatalf("%d are let out, and %d before", got, there+here)
		}
	}
	vs.modify("inventory").Adopt(100, 2) // the window after fast replies
	vs.commit()
	f := vs.flows[1]
	delete(vs.flows, 1)
	if vs.addPartition(1, f); vs.window("inventory") != 100 {
		t.Errorf("%d are let out, and 100 before", vs.window("inventory"))
	}
}

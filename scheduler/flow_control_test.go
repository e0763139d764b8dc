package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// asked returns the tasks of an agent's requests, in the order of the log.
func (s *site) asked(agent string) []string {
	s.t.Helper()
	var ids []string
	for _, r := range s.cluster.all(ns.Events()) {
		e, err := events.DecodeEvent(&r)
		if err != nil {
			s.t.Fatal(err)
		}
		if f, ok := e.Fact.(*events.AttemptStarted); ok && f.Agent == agent {
			ids = append(ids, e.Task)
		}
	}
	return ids
}

// answer replies to the first request of a task.
func (s *site) answer(agent, task string) {
	s.t.Helper()
	for _, r := range s.cluster.all(ns.Requests(agent)) {
		if string(r.Key) != task {
			continue
		}
		q, err := events.DecodeRequest(&r)
		if err != nil {
			s.t.Fatal(err)
		}
		reply := answerTo(q, events.Completed, events.EffectNone, "{}").Record(ns, "test")
		reply.Time = s.clock.Now()
		s.cluster.write(reply)
		return
	}
	s.t.Fatalf("%s was not asked for %s", agent, task)
}

// due writes the recovery for the due timer of a task's step.
func (s *site) due(task string) {
	s.t.Helper()
	timers := &events.Timers{}
	for _, r := range s.cluster.all(ns.Events()) {
		if string(r.Key) == task {
			e, err := events.DecodeEvent(&r)
			if err != nil {
				s.t.Fatal(err)
			}
			timers.Evolve(e)
		}
	}
	for _, a := range timers.Armed {
		if a.Slot.Step == "a" {
			next := a.Policy.Next(task, "a", events.Do, a.Attempt, a.Timer.Due, s.clock.Now())
			s.cluster.write(a.Recovery(task, next).Record(ns, "test", events.Partition([]byte(task), s.cfg.Partitions)))
			return
		}
	}
	s.t.Fatalf("no timer of %s is armed", task)
}

func (s *site) submitAs(priority int, ids ...string) {
	for _, id := range ids {
		s.cluster.write((&events.Submission{ID: id, Workflow: "w", Input: []byte("{}"), Priority: priority}).Record(ns, "test"))
	}
}

// TestQueueByPriority checks the order of steps that wait for a slot: the higher priority first, and within a priority
// the longest wait first. A step that has waited long enough goes before a higher priority.
func TestQueueByPriority(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": 1}
	w := s.worker(s.cluster.join(0))
	s.submitAs(0, "first", "low")
	s.drain(w)
	s.clock.pass(2 * ageOfPriority)
	s.submitAs(1, "middle")
	s.drain(w)
	s.clock.pass(time.Second)
	s.submitAs(2, "high")
	s.submitAs(9, "critical")
	s.drain(w)
	want := []string{"first"}
	for range 4 {
		if got := s.asked("inventory"); !slices.Equal(got, want) {
			t.Fatalf("asked for %q, want %q", got, want)
		}
		s.answer("inventory", want[len(want)-1])
		s.drain(w)
		// low has waited 21 s longer than high: more than two priorities.
		want = append(want, []string{"critical", "low", "high", "middle"}[len(want)-1])
	}
	s.answer("inventory", "middle")
	s.drain(w)
	s.events("") // verifies the log
	if got := s.asked("inventory"); !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// TestCapacityIsShared checks that all partitions share the capacity, and that each has at least one slot.
func TestCapacityIsShared(t *testing.T) {
	for capacity, want := range map[int][]int{1: {1, 1, 1}, 5: {2, 2, 1}, 9: {3, 3, 3}} {
		for p, n := range want {
			if got := newFlow(Capacity{Agents: map[string]int{"inventory": capacity}}, int32(p), 3).agent("inventory").capacity; got != n {
				t.Errorf("capacity %d: %d in partition %d, want %d", capacity, got, p, n)
			}
		}
	}
}

// silence submits tasks, and lets the attempts of the first few time out.
func (s *site) silence(w *worker, tasks ...string) {
	s.t.Helper()
	s.submit("w", tasks...)
	s.drain(w)
	s.clock.pass(10 * time.Second)
	for _, id := range tasks[:silentAfter] {
		s.due(id)
		s.drain(w)
	}
}

// TestSilentAgentIsProbed checks that an agent is probed by one step at a time after three time-outs in a row. Steps
// without a time-out are tried first. Other steps keep their attempts, even if a supervisor requests a retry. Any reply
// of the agent ends its silence.
func TestSilentAgentIsProbed(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": silentAfter}
	w := s.worker(s.cluster.join(0))
	s.silence(w, "a", "b", "c", "d", "e", "f")
	// The time-outs of a and b freed slots for d and e; c was the third.
	if got := s.asked("inventory"); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) || !w.health.isSilent("inventory") {
		t.Fatalf("asked for %q, silent %v", got, w.health.isSilent("inventory"))
	}
	s.clock.pass(10 * time.Second)
	s.due("a") // its backoff is over, but it has no slot
	s.due("d")
	s.drain(w)
	s.due("e") // nothing is outstanding, but e's timer is due soon
	s.drain(w)
	if got := s.asked("inventory"); len(got) != 5 {
		t.Fatalf("asked for %q", got)
	}
	s.clock.pass(2 * time.Second)
	s.due("e")
	s.drain(w)
	if got := s.asked("inventory"); !slices.Equal(got[5:], []string{"f"}) {
		t.Fatalf("then asked for %q, want f, which has lost nothing", got[5:])
	}
	s.due("b")
	s.drain(w)
	if got := s.asked("inventory"); len(got) != 6 {
		t.Fatalf("f runs; asked for %q", got[6:])
	}
	s.answer("inventory", "a") // a reply of an ended attempt counts, too
	s.drain(w)
	if got := s.asked("inventory"); w.health.isSilent("inventory") || len(got) != 5+silentAfter {
		t.Errorf("silent %v; asked for %q", w.health.isSilent("inventory"), got)
	}
	for id, n := range map[string]int{"a": 2, "b": 2, "f": 1} {
		if got := len(slices.DeleteFunc(s.asked("inventory"), func(x string) bool { return x != id })); got > n {
			t.Errorf("%d attempts of %s, at most %d", got, id, n)
		}
	}
	s.events("")
}

// TestSilenceIsPerAgent checks that time-outs don't count if the agent has replied since those steps were first tried.
// Several time-outs of one task count once.
func TestSilenceIsPerAgent(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": 100}
	w := s.worker(s.cluster.join(0))
	s.submit("w", "a", "b", "c", "d")
	s.drain(w)
	s.clock.pass(time.Second)
	s.answer("inventory", "d")
	s.drain(w)
	timeOut := func(tasks ...string) {
		s.clock.pass(10 * time.Second)
		for _, id := range tasks {
			s.due(id)
			s.drain(w)
		}
	}
	again := func(tasks ...string) { // their next attempts start, and time out
		s.clock.pass(5 * time.Second)
		for _, id := range tasks {
			s.due(id)
		}
		s.drain(w)
		timeOut(tasks...)
	}
	timeOut("a", "b", "c")
	again("a", "b", "c")
	if v := w.health.agents["inventory"]; len(v.timedOut) != 0 {
		t.Errorf("the agent replied to another since these were first tried; lost %q", v.timedOut)
	}
	s.submit("w", "e")
	s.drain(w)
	timeOut("e")
	again("e")
	again("e")
	if v := w.health.agents["inventory"]; !slices.Equal(v.timedOut, []string{"e"}) {
		t.Errorf("one task only timed out since; lost %q", v.timedOut)
	}
}

// TestFlowIsDerivedFromTasks checks that a rollback restores the queue from before the transaction, and that a restore
// builds the same queue.
func TestFlowIsDerivedFromTasks(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": 2}
	log := s.cluster.join(0)
	w := s.worker(log)
	s.submit("w", "a", "b", "c", "d")
	s.drain(w)
	rolledBack := 2
	log.end = func(func()) (bool, bool, error) {
		if rolledBack--; rolledBack < 0 {
			return false, false, nil
		}
		return false, true, nil
	}
	s.answer("inventory", "a")
	s.drain(w)
	if got := s.asked("inventory"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("asked for %q", got)
	}
	flowOf := func() string {
		a := w.partitions[0].flow.agent("inventory")
		return fmt.Sprintf("%d outstanding, %s waits", a.outstanding, a.queue[0].task)
	}
	if got := flowOf(); got != "2 outstanding, d waits" {
		t.Errorf("after two rollbacks: %s", got)
	}
	log.assign(0)
	s.until(w, "the partition is there again", func() bool {
		return w.partitions[0] != nil && w.partitions[0].generation == log.Assigned()[0] && w.partitions[0].ready()
	})
	if got := flowOf(); got != "2 outstanding, d waits" {
		t.Errorf("after a restore: %s", got)
	}
	s.answer("inventory", "b")
	s.drain(w)
	if got := s.asked("inventory"); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("asked for %q", got)
	}
}

// TestOldRequestsDelayNoProbe checks that an agent is probed even if requests from before its silence are outstanding
// for a day.
func TestOldRequestsDelayNoProbe(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": silentAfter + 2}
	w := s.worker(s.cluster.join(0))
	s.silence(w, "a", "b", "c", "d", "e", "f", "g", "h")
	if a := w.partitions[0].flow.agent("inventory"); !w.health.isSilent("inventory") || a.outstanding != 4 {
		t.Fatalf("silent %v, %d outstanding", w.health.isSilent("inventory"), a.outstanding)
	}
	s.clock.pass(2 * time.Second)
	s.due("c") // the last one that timed out; its backoff is over
	s.drain(w)
	if got := s.asked("inventory"); got[len(got)-1] != "h" || len(got) != 8 {
		t.Fatalf("asked for %q, want h last, which has lost nothing", got)
	}
	s.due("b")
	s.drain(w)
	if got := s.asked("inventory"); len(got) != 8 {
		t.Errorf("h is the probe; asked for %q too", got[8:])
	}
	s.events("")
}

// TestWithoutCapacityNothingIsQueued checks that an agent without a capacity receives every request at once.
func TestWithoutCapacityNothingIsQueued(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	s.silence(w, "a", "b", "c", "d", "e", "f")
	if got := s.asked("inventory"); len(got) != 6 || w.partitions[0].flow != nil {
		t.Errorf("asked for %q", got)
	}
}

// TestWaitingCountsForAdmission checks that steps that wait for responsive agents count for admission. Steps that wait
// for an agent that never replied, or is silent, don't count, since they must not block other tasks.
func TestWaitingCountsForAdmission(t *testing.T) {
	s := newSite(t, 1)
	s.several(admissionShare)
	s.cfg.Capacity.Agents = map[string]int{}
	for i := range admissionShare {
		s.cfg.Capacity.Agents[fmt.Sprint("a", i)] = silentAfter
	}
	s.cfg.MaxRunnable = 5 * admissionShare
	w := s.worker(s.cluster.join(0))
	for i := range 10 * admissionShare {
		s.submit(fmt.Sprint("w", i%admissionShare), fmt.Sprint("t", i))
	}
	s.drain(w)
	if w.updateAdmission(); w.admissionClosed {
		t.Error("tasks that wait for agents that never answered keep others out")
	}
	answered := map[string]bool{}
	for i := range admissionShare {
		s.answerAll(fmt.Sprint("a", i), answered)
	}
	s.drain(w)
	if w.updateAdmission(); !w.admissionClosed {
		t.Errorf("7 tasks of each of %d agents run or wait, 5 may, and more are admitted", admissionShare)
	}
	s.clock.pass(10 * time.Second)
	for _, r := range s.cluster.all(ns.Requests("a0")) {
		if id := string(r.Key); !answered[id] {
			s.due(id)
			s.drain(w)
		}
	}
	if w.updateAdmission(); w.admissionClosed {
		t.Error("tasks that wait for a silent agent keep others out")
	}
}

// TestCancelledTaskLeavesTheQueue checks that a queued step leaves the queue when its task is cancelled.
func TestCancelledTaskLeavesTheQueue(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": 1}
	w := s.worker(s.cluster.join(0))
	s.submit("w", "a", "b", "c")
	s.drain(w)
	s.cluster.write((&events.Control{Task: "b", ID: "x", Command: events.Cancel, By: events.By{Who: "op", RequestID: "x"}}).Record(ns, "test"))
	s.drain(w)
	s.answer("inventory", "a")
	s.drain(w)
	if got := s.asked("inventory"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("asked for %q", got)
	}
}

// TestUnslottedStepsStart checks that steps that were queued for an agent without a limit start with the next input. No
// timer would start their first attempt.
func TestUnslottedStepsStart(t *testing.T) {
	for name, capacity := range map[string]Capacity{
		"none is counted": {}, "this agent isn't": {Agents: map[string]int{"payments": 1}}, "all are": {Observe: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.cfg.Capacity.Agents = map[string]int{"inventory": 1}
			log := s.cluster.join(0)
			w := s.worker(log)
			s.submit("w", "a", "b", "c")
			s.drain(w)
			s.cfg.Capacity = capacity
			log.assign(0)
			rolledBack := 1
			log.end = func(func()) (committed, handled bool, err error) { // without a rollback
				rolledBack--
				return false, rolledBack >= 0, nil
			}
			s.answer("inventory", "a")
			s.drain(w)
			if got := s.asked("inventory"); len(got) != 3 {
				t.Errorf("asked for %q, want a, b and c", got)
			}
			s.events("") // verifies the log
		})
	}
}

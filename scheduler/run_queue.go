package scheduler

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/waybill-run/waybill/events"
)

// ageOfPriority is the waiting time that one level of priority is worth. Steps with a higher priority overtake others,
// but a step that has waited long enough goes first, whatever its priority.
const ageOfPriority = 10 * time.Second

// maxAging is the longest waiting time that a priority can be worth.
const maxAging = 24 * time.Hour

// runState is the state of a run at its agent. Only runOutstanding uses a slot.
type runState int

const (
	runOutstanding runState = iota // its attempt is running: the request was sent, and uses a slot
	runQueued                      // it is ready to start, and waits for a slot in the queue
	runBackingOff                  // it waits for the timer of its next attempt
	runRemoved                     // it left the flow control: it ended, or was replaced after a change
)

// runName identifies the run of a step or of its undo. It is a map key that is looked up for every event.
type runName struct {
	task string
	run  int // number of the step and kind
}

func nameOf(t *events.Task, i int, k events.Kind) runName {
	switch k {
	case events.Undo:
		return runName{t.ID, runKinds*i + 1}
	case events.Check:
		return runName{t.ID, runKinds*i + 2}
	case events.Do:
	}
	return runName{t.ID, runKinds * i}
}

// runKinds is the number of kinds of run that a step may have.
const runKinds = 3

// agentRun is a run as the flow control of its agent needs it. All fields are derived from the task.
type agentRun struct {
	runName
	workflow string
	step     int
	kind     events.Kind
	agent    string
	state    runState

	attempt      int
	within       time.Duration // how long an attempt may take
	first        time.Time     // when the first attempt began; zero: there was none
	began        time.Time     // start of the running attempt
	priorityTime time.Time     // of a queued run; the earliest starts first
	failures     int
	due          time.Time // when the running attempt times out, or when the run's timer is due
	index        int       // index in the queue
}

func (r *agentRun) clone() *agentRun {
	c := *r
	return &c
}

// priorityTimeOf returns the instant since when a step waits, shifted by its priority. A higher priority counts as a
// longer wait.
func priorityTimeOf(since time.Time, priority int) time.Time {
	worth := maxAging
	if n := int(maxAging / ageOfPriority); priority < n {
		worth = time.Duration(max(priority, -n)) * ageOfPriority
	}
	return since.Add(-worth)
}

// queue holds the runs of a partition that wait for an agent, as a heap by compareQueued.
type queue []*agentRun

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return compareQueued(q[i], q[j]) < 0 }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	run := x.(*agentRun)
	run.index = len(*q)
	*q = append(*q, run)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	last := len(old) - 1
	run := old[last]
	old[last] = nil
	*q = old[:last]
	return run
}

func (q *queue) add(run *agentRun)    { heap.Push(q, run) }
func (q *queue) remove(run *agentRun) { heap.Remove(q, run.index) }

// bestProbe returns the run to probe a silent agent with: the one with the fewest failures.
func (q queue) bestProbe() *agentRun {
	best := q[0]
	for _, run := range q[1:] {
		if c := cmp.Compare(run.failures, best.failures); c < 0 || c == 0 && compareQueued(run, best) < 0 {
			best = run
		}
	}
	return best
}

// compareQueued orders runs by priority time. Ties are ordered by name, so that a restore yields the same order.
func compareQueued(a, b *agentRun) int {
	return cmp.Or(a.priorityTime.Compare(b.priorityTime), cmp.Compare(a.task, b.task), cmp.Compare(a.step, b.step), cmp.Compare(a.kind, b.kind))
}

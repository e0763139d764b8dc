package scheduler

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/waybill-run/waybill/events"
)

// ageOfPriority is the waiting time that one level of priority is worth. Critical steps overtake others, and a step that
// has waited long enough goes first whatever its priority.
const ageOfPriority = 10 * time.Second

// maxAging is the waiting time that priorities are worth at most.
const maxAging = 24 * time.Hour

// runState is what a run means to its agent.
type runState int

const (
	runOutstanding runState = iota // its request is outstanding
	runQueued                      // it could start, and waits for a slot
	runBackingOff                  // it waits for a timer
	runRemoved                     // it has ended
)

// runName names the run of a step or of its undo. It is looked up for every event.
type runName struct {
	task string
	run  int // by step and kind
}

func nameOf(t *events.Task, i int, k events.Kind) runName {
	if k == events.Undo {
		return runName{t.ID, 2*i + 1}
	}
	return runName{t.ID, 2 * i}
}

// agentRun is a run as its agent's flow control sees it. All of it follows from the task.
type agentRun struct {
	runName
	workflow string
	step     int
	kind     events.Kind
	agent    string
	state    runState

	attempt      int
	within       time.Duration // an attempt may take
	first        time.Time     // when the first attempt began; zero: none has
	began        time.Time     // of the running attempt
	priorityTime time.Time     // of a queued run: the earliest goes first
	failures     int
	due          time.Time // of the running attempt, or of the timer that brings it back
	index        int       // in the queue
}

func (p *agentRun) clone() *agentRun {
	q := *p
	return &q
}

// priorityTimeOf is the instant since when a step waits, moved by its priority: a higher priority counts as a longer
// wait.
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
	p := x.(*agentRun)
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	last := len(old) - 1
	p := old[last]
	old[last] = nil
	*q = old[:last]
	return p
}

func (q *queue) add(p *agentRun)    { heap.Push(q, p) }
func (q *queue) remove(p *agentRun) { heap.Remove(q, p.index) }

// bestProbe is the run to try a silent agent with: the one with the fewest failures.
func (q queue) bestProbe() *agentRun {
	best := q[0]
	for _, p := range q[1:] {
		if c := cmp.Compare(p.failures, best.failures); c < 0 || c == 0 && compareQueued(p, best) < 0 {
			best = p
		}
	}
	return best
}

// compareQueued orders by priority time. Ties go by name, so a restore has the same order.
func compareQueued(a, b *agentRun) int {
	return cmp.Or(a.priorityTime.Compare(b.priorityTime), cmp.Compare(a.task, b.task), cmp.Compare(a.step, b.step), cmp.Compare(a.kind, b.kind))
}

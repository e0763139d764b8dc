package scheduler

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/waybill-run/waybill/events"
)

// ageOfPriority is how much longer than another a step must have waited to go
// first although its task's priority is less by one: critical work overtakes, and
// what has waited long goes anyway.
const ageOfPriority = 10 * time.Second

// maxAging bounds what a priority is worth: a day of waiting.
const maxAging = 24 * time.Hour

// spotState is what a run does to its agent.
type runState int

const (
	runOutstanding runState = iota // a request of it is outstanding
	runQueued                      // it could start, and waits for its turn
	runBackingOff                  // its timer will bring it back
	runRemoved                     // none of them any more
)

// spotName names the run of a step, or of its undo: short, for it is looked up for
// every event.
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

// spot is such a run at its agent. What it says follows from its task.
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
	priorityTime time.Time     // in the queue: the least goes first
	failures     int
	due          time.Time // of the running attempt, or of the timer that brings it back
	index        int       // in the queue
}

// kept is a spot to keep.
func (p *agentRun) clone() *agentRun {
	q := *p
	return &q
}

// priorityTimeOf is when it is a step's turn: since when it waits, as if a higher
// priority had waited longer.
func priorityTimeOf(since time.Time, priority int) time.Time {
	worth := maxAging
	if n := int(maxAging / ageOfPriority); priority < n {
		worth = time.Duration(max(priority, -n)) * ageOfPriority
	}
	return since.Add(-worth)
}

// queue holds the steps of a partition that wait for an agent, the next one
// first. It implements heap.Interface.
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

// probe is the one to try an agent with that may be dead: the one that has lost
// the fewest attempts so far.
func (q queue) bestProbe() *agentRun {
	best := q[0]
	for _, p := range q[1:] {
		if c := cmp.Compare(p.failures, best.failures); c < 0 || c == 0 && compareQueued(p, best) < 0 {
			best = p
		}
	}
	return best
}

// compareQueued orders steps that wait; ties by name, so that everyone comes to
// the same order.
func compareQueued(a, b *agentRun) int {
	return cmp.Or(a.priorityTime.Compare(b.priorityTime), cmp.Compare(a.task, b.task), cmp.Compare(a.step, b.step), cmp.Compare(a.kind, b.kind))
}

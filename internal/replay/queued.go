package replay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
)

// queuedStart is an attempt that had to wait for its agent, according to the log. In a fork it starts no earlier, since
// it is unknown whether a slot would have been free.
type queuedStart struct {
	ref   events.RequestRef
	agent string
	moment
}

// sandboxSlots are the slots of a sandbox: unlimited, except for attempts that waited in the recording.
type sandboxSlots struct {
	*sandbox
	recovers *events.Recovery // the recovery that is being decided; nil: another input
}

// noSlots is less than any number of slots that a decision can free.
const noSlots = math.MinInt32

// Free implements scheduler.Slots. A requested retry is not a step that Waits.
func (s sandboxSlots) Free(string, string, time.Time) int {
	if r := s.recovers; r != nil {
		if i, ok := s.task.Plan.Step(r.Step); ok && s.Waits(s.task, i, r.Kind) {
			return noSlots
		}
	}
	return math.MaxInt32
}

// Waits implements scheduler.Slots.
func (s sandboxSlots) Waits(t *events.Task, step int, k events.Kind) bool {
	return slices.ContainsFunc(s.queue, func(q queuedStart) bool {
		return q.ref == nextOf(t, step, k) && cmp.Or(s.now.Compare(q.at), cmp.Compare(s.seq, q.seq)) < 0
	})
}

// nextOf returns the next attempt of a run.
func nextOf(t *events.Task, step int, k events.Kind) events.RequestRef {
	ref := events.RequestRef{Step: t.Plan.Steps[step].ID, Kind: k, Attempt: 1}
	if run := t.Run(step, k); run != nil {
		ref.Attempt = run.Attempt + 1
	}
	return ref
}

// enqueue adds the recorded starts that waited after the fork, if the fork's definition has the run with the same
// agent.
func (s *sandbox) enqueue() {
	plan := scheduler.PlanOf(s.fork.Program)
	for _, q := range s.past.course.queued {
		i, ok := plan.Step(q.ref.Step)
		if !ok || q.seq <= s.out.At || !plan.Has(i, q.ref.Kind) {
			continue
		}
		if name, _ := plan.Agent(i, q.ref.Kind); name == q.agent {
			s.queue = append(s.queue, q)
		}
	}
}

// firstStart returns the first waiting start that could begin at its recorded moment; nil: there is none.
func (s *sandbox) firstStart() (first *queuedStart) {
	for i := range s.queue {
		q := &s.queue[i]
		step, ok := s.task.Plan.Step(q.ref.Step)
		if ok && (first == nil || s.compare(q.moment, first.moment) < 0) && q.ref == nextOf(s.task, step, q.ref.Kind) &&
			scheduler.Ready(s.task, step, q.ref.Kind, later(s.now, q.at)) {
			first = q
		}
	}
	return first
}

// start begins a waiting attempt at its recorded moment.
func (s *sandbox) start(q queuedStart) {
	s.queue = slices.DeleteFunc(s.queue, func(o queuedStart) bool { return o.ref == q.ref })
	s.advanceTo(q.moment)
	step, _ := s.task.Plan.Step(q.ref.Step)
	s.accept(s.protected(nil, func(env *scheduler.Env) scheduler.Decision {
		return scheduler.Start(s.task.Clone(), step, q.ref.Kind, events.Cause{}, env)
	}), false)
}

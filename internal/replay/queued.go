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
	ref   nextStart
	agent string
	moment
}

// nextStart is the next attempt of a run. A check of the step may begin in its place, and the attempt waits again after
// that.
type nextStart struct {
	events.RequestRef
	checks bool
}

// sandboxSlots are the slots of a sandbox: unlimited, except for attempts that waited in the recording.
type sandboxSlots struct {
	*sandbox
	in events.Input // that is being decided; nil: a start
}

// noSlots is less than any number of slots that a decision can free.
const noSlots = math.MinInt32

// Free implements scheduler.Slots. An attempt that the input itself asks for is not a step that Waits.
func (s sandboxSlots) Free(string, string, time.Time) int {
	if next, ok := s.follows(); ok && s.isQueued(next) {
		return noSlots
	}
	return math.MaxInt32
}

// follows returns the attempt that the input asks for: a retry, or what follows the end of a check.
func (s sandboxSlots) follows() (next nextStart, ok bool) {
	var slot events.Slot
	checked := false
	switch in := s.in.(type) {
	case *events.Recovery:
		slot = events.Slot{Step: in.Step, Kind: in.Kind}
		checked = in.Kind == events.Check && (in.Action == events.ActionUndo || in.Action == events.ActionHold)
	case *events.Reply:
		slot.Step, checked = in.Ref.Step, in.Ref.Kind == events.Check
		if !checked {
			return next, false
		}
	case *events.Control, *events.Signal, *events.Submission, *events.Withdrawal, nil: // ask for no attempt by themselves
		return next, false
	}
	i, ok := s.task.Plan.Step(slot.Step)
	switch {
	case !ok:
	case checked:
		next = nextOf(s.task, i, events.Do)
		next.checks = false
	default:
		next = nextOf(s.task, i, slot.Kind)
		expires := slot.Kind == events.Do && s.task.Steps[i].State == events.StepRunning // its effect is unknown then
		next.checks = next.checks || expires && s.task.Plan.Steps[i].Check != nil
	}
	return next, ok
}

// Waits implements scheduler.Slots.
func (s sandboxSlots) Waits(t *events.Task, step int, k events.Kind) bool {
	return s.isQueued(nextOf(t, step, k))
}

func (s sandboxSlots) isQueued(next nextStart) bool {
	return slices.ContainsFunc(s.queue, func(q queuedStart) bool {
		return q.ref == next && cmp.Or(s.now.Compare(q.at), cmp.Compare(s.seq, q.seq)) < 0
	})
}

// nextOf returns the next attempt of a run.
func nextOf(t *events.Task, step int, k events.Kind) nextStart {
	ref := nextStart{events.RequestRef{Step: t.Plan.Steps[step].ID, Kind: k, Attempt: 1}, k == events.Do && t.NeedsCheck(step)}
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

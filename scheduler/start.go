package scheduler

import (
	"github.com/waybill-run/waybill/events"
)

// Start decides what follows when a queued run gets a slot: its attempt begins. cause is the input that freed the slot.
// If the run can't begin any more, nothing follows. Like Decide, Start is pure.
func Start(t *events.Task, step int, k events.Kind, cause events.Cause, env *Env) Decision {
	free := *env
	if env.Slots != nil {
		free.Slots = grantedSlot{env.Slots, step, k}
	}
	d := newDecider(t, cause, &free)
	d.fromQueue = true
	d.startWaiting(step, k)
	return d.decision()
}

func (d *decider) startWaiting(i int, k events.Kind) {
	if !d.Task.Open() || !d.canContinue(k) || i >= len(d.Task.Steps) { // a migration may have dropped the step
		return
	}
	run := d.Task.Run(i, k)
	switch {
	case run == nil:
	case run.State == events.StepPending && k == events.Do:
		d.advance()
	case run.State == events.StepWaiting:
		if due := run.Timer.Due; d.now.Before(due) {
			if due.Sub(d.now) > clockTolerance {
				return
			}
			d.now = due
		}
		next := d.Task.Policy(i, k, events.TimerWaiting).Next(d.Task.ID, d.Task.Plan.Steps[i].ID, k, run.Attempt, run.Timer.Due, d.now)
		if next.Action == events.ActionRetry && d.inTime(i, k, next) {
			d.startAttempt(i, k)
		}
	}
}

// grantedSlot gives one run a slot, even if other runs wait.
type grantedSlot struct {
	Slots
	step int
	kind events.Kind
}

// Waits is false for the run with the slot.
func (u grantedSlot) Waits(t *events.Task, step int, k events.Kind) bool {
	return (step != u.step || k != u.kind) && u.Slots.Waits(t, step, k)
}

// slotChange is how a decision has changed the free slots of an agent so far.
type slotChange struct {
	agent string
	slots int
}

// recordSlots counts the slots that an event takes or frees.
func (d *decider) recordSlots(f events.Fact) {
	if d.env.Slots == nil {
		return
	}
	switch a := f.About(); {
	case a.Phase == events.PhaseStarted:
		d.addSlots(a.Agent, -1)
	case a.Phase.Ends():
		d.freeSlotOf(a.Step, a.Kind)
	}
}

func (d *decider) freeSlotOf(step string, k events.Kind) {
	i, _ := d.Task.Plan.Step(step)
	if run := d.Task.Run(i, k); run != nil && run.State == events.StepRunning && d.Task.Plan.StepKindOf(i, k).CallsAgent() {
		agent, _ := d.Task.Plan.Agent(i, k)
		d.addSlots(agent, 1)
	}
}

func (d *decider) addSlots(agent string, slots int) {
	for i := range d.slotChanges {
		if d.slotChanges[i].agent == agent {
			d.slotChanges[i].slots += slots
			return
		}
	}
	d.slotChanges = append(d.slotChanges, slotChange{agent, slots})
}

// hasSlot reports whether an attempt may start. A missing agent counts as having a slot, since the attempt fails at
// once.
func (d *decider) hasSlot(i int, k events.Kind) bool {
	agent, _ := d.Task.Plan.Agent(i, k)
	if d.env.Slots == nil || d.env.Requests[agent] == 0 {
		return true
	}
	if t, ok := d.env.Slots.(grantedSlot); ok && t.step == i && t.kind == k {
		return true
	}
	n := d.env.Slots.Free(agent, d.Task.ID, d.now)
	for i := range d.slotChanges {
		if d.slotChanges[i].agent == agent {
			n += d.slotChanges[i].slots
		}
	}
	return n > 0
}

package scheduler

import "github.com/waybill-run/waybill/events"

// stepDecider decides what the life of a step of one kind means. Before its start, its needs are done and its condition
// holds. What is the same for all kinds is in plan.go and decide.go: needs, conditions, ends, holds and the order of the
// undo. The undo of a step with children is their withdrawal, and has the kind of the step; any other undo is a call.
type stepDecider interface {
	// start begins a step, if it can begin now. A step that can't stays pending.
	start(d *decider, i int)
	// reply applies a reply to the running attempt. Its token is right.
	reply(d *decider, i int, r *events.Reply)
	// recover applies the recovery of the step's timer, which is due.
	recover(d *decider, i int, r *events.Recovery)
}

// stepDeciders are the kinds by name. Each has a file of its own, which registers it.
var stepDeciders = map[events.StepKind]stepDecider{}

func registerStepKind(k events.StepKind, decides stepDecider) events.StepKind {
	stepDeciders[k] = decides
	return k
}

// kindOf returns what decides about a run of the task.
func (d *decider) kindOf(i int, k events.Kind) stepDecider {
	return stepDeciders[d.Task.Plan.StepKindOf(i, k)]
}

package scheduler

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// In most states one input follows. In a few, every input that the state could meet is decided, and thrown away. The
// scheduler must accept or refuse each, and the fold must accept what it decides.
const (
	everySeed      = 0x65766572
	everyOf        = 40 // states
	everyOfChecked = 6  // states in which a check runs
)

// everyInput decides all commands, recoveries, replies and signals in the present state.
func (w *scenario) everyInput() {
	if w.every.Rand == nil {
		w.every = newDice(w.h.seed ^ everySeed)
	}
	checking := slices.ContainsFunc(w.task.Steps, (*events.Step).IsChecking)
	if !w.every.oneIn(everyOf) && !(checking && w.every.oneIn(everyOfChecked)) {
		return
	}
	w.counts["states in which every input is decided"]++
	for _, x := range w.everyControl() {
		w.say("tried: %s step %q keep=%v processed=%v as %q version %d", x.Command, x.Step, x.Keep, x.Processed, x.As, x.Version)
		d := w.try(events.Controls, x, 0)
		w.checkTried(x, &d)
		if checking {
			w.counts["commands while a check runs: "+string(x.Command)+map[bool]string{true: ", accepted", false: ", refused"}[len(d.Events) > 0]]++
		}
	}
	for _, r := range w.everyRecovery() {
		for _, ahead := range []time.Duration{0, time.Hour} {
			w.say("tried: %s of timer %d, %s %s", r.Action, r.Timer, r.Step, r.Kind)
			w.try(events.Recoveries, r, ahead)
		}
	}
	for _, r := range w.everyReply() {
		w.say("tried: reply %s %s", events.RequestID("t", r.Ref), r.Outcome)
		w.try(events.Replies, r, 0)
	}
	for _, name := range signalNames {
		w.say("tried: signal %s", name)
		w.try(events.Signals, &events.Signal{Task: "t", Name: name, ID: "tried"}, 0)
	}
	w.told = slices.DeleteFunc(w.told, func(s string) bool { return strings.Contains(s, "  tried: ") })
}

// everyControl returns each command in each form, for each step.
func (w *scenario) everyControl() []*events.Control {
	all := []*events.Control{{Command: events.Cancel}, {Command: events.Cancel, Keep: true}, {Command: events.UndoTask}, {Command: events.UndoTask, Processed: true}, {Command: events.Resubmit}}
	for i := range w.definition.Steps {
		id := w.definition.Steps[i].ID
		all = append(all, &events.Control{Command: events.Resubmit, Step: id}, &events.Control{Command: events.Release, Step: id, As: events.StepUndone},
			&events.Control{Command: events.Release, Step: id, As: events.StepCompleted, Output: json.RawMessage("1")})
	}
	for i := range w.versions {
		all = append(all, &events.Control{Command: events.Migrate, Version: i + 1})
	}
	for _, x := range all {
		x.Task, x.ID, x.By = "t", "tried", events.By{Who: "op", RequestID: "tried"}
	}
	return all
}

// everyRecovery returns each action for each armed timer.
func (w *scenario) everyRecovery() (all []*events.Recovery) {
	for _, a := range w.timers.Armed {
		for _, action := range events.Actions {
			all = append(all, &events.Recovery{Task: "t", Timer: a.Timer.Seq, Step: a.Slot.Step, Kind: a.Slot.Kind, Action: action})
		}
		all = append(all, a.Recovery("t", a.Policy.Next("t", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, w.clock().Add(time.Hour))))
	}
	return all
}

// everyReply returns each outcome of the last attempt of each run, and each answer to its check.
func (w *scenario) everyReply() (all []*events.Reply) {
	for i := range w.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			run := w.task.Run(i, k)
			if run == nil || run.Attempt == 0 {
				continue
			}
			q := &events.Request{Task: "t", Ref: events.RequestRef{Step: w.task.Plan.Steps[i].ID, Kind: k, Attempt: run.Attempt}}
			q.Token = testToken("t", q.Ref)
			for _, o := range []events.Outcome{events.Completed, events.Failed, events.Rejected, events.Progress} {
				all = append(all, answerTo(q, o, events.EffectUnknown, `{"code":"c"}`))
			}
			all = append(all, answerTo(q, events.Failed, events.EffectNone, "1"))
			for _, answer := range checkAnswers {
				all = append(all, answerTo(q, events.Completed, events.EffectUnknown, answer))
			}
		}
	}
	return all
}

// try decides an input, folds the records of the decision as a reader does, and forgets it.
func (w *scenario) try(inbox events.Inbox, in events.Input, ahead time.Duration) Decision {
	w.counts["inputs that were tried"]++
	env := w.env()
	env.DefinitionsRead = true
	env.Now = env.Now.Add(ahead)
	d := Decide(w.task.Clone(), in, events.Cause{Inbox: inbox, Offset: w.offset + 1}, env)
	if d.NeedDefinitions || d.NeedHistory {
		w.failf("%T in state %s needs more than it has: %+v", in, w.task.State, d)
	}
	if (len(d.Events) > 0) == (d.Ignored != "" || d.Unusable != nil) {
		w.failf("%T in state %s leads to %d events; it is ignored as %q, and unusable: %v", in, w.task.State, len(d.Events), d.Ignored, d.Unusable)
	}
	fold := w.task.Clone()
	for i := range d.Records {
		r := &d.Records[i]
		if r.Topic != events.Namespace(events.DefaultNamespace).Events() {
			continue
		}
		e, err := events.DecodeEvent(r)
		if err == nil {
			fold, err = events.Evolve(fold, e, events.Hash(e.Fact.Type(), r.Value))
		}
		if err != nil {
			w.failf("%T in state %s is decided, and a reader can't fold it: %v", in, w.task.State, err)
		}
	}
	if encode(fold) != encode(d.Task) {
		w.failf("%T in state %s: the scheduler has\n%s\nand a reader\n%s", in, w.task.State, encode(d.Task), encode(fold))
	}
	return d
}

// checkTried checks that a command is refused if and only if Refusal says so, which a console shows before.
func (w *scenario) checkTried(x *events.Control, d *Decision) {
	why := Refusal(x, w.task)
	if why == "" && x.Command == events.Migrate {
		why = w.migrationRefusal(x)
		w.checkMigration(x, d)
	}
	if refused := len(d.Events) == 0; refused != (why != "") {
		w.failf("%s of step %q in state %s is refused: %v; a console says %q", x.Command, x.Step, w.task.State, refused, why)
	}
}

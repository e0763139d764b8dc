package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/congestion"
)

func (w *scenario) anyControl() {
	if w.task != nil {
		w.control(w.drawControl())
	}
}

func (w *scenario) drawControl() *events.Control {
	id := "req-" + strconv.FormatInt(w.offset, 10)
	x := &events.Control{Task: "t", ID: id, By: events.By{Who: "op", Why: "test", RequestID: id},
		Command: pick(w.dice, []events.Command{events.Resubmit, events.Release, events.UndoTask, events.Cancel})}
	if w.task.State == events.StateError && !w.oneIn(8) || w.oneIn(2) { // controls that would end the task are rare
		x.Command = pick(w.dice, []events.Command{events.Resubmit, events.Release})
	}
	step := pick(w.dice, w.stepsInError())
	switch x.Command {
	case events.Cancel:
		x.Keep = w.coin()
	case events.UndoTask:
		x.Processed = w.coin()
	case events.Resubmit:
		if w.oneIn(8) {
			x.Step = step
		}
	case events.Release:
		x.Step, x.Output = step, json.RawMessage(pick(w.dice, bodies))
		x.As = pick(w.dice, []events.StepState{events.StepCompleted, events.StepUndone})
	}
	w.controls = append(w.controls, x)
	return x
}

// stepsInError returns the likely steps of a control, and sometimes any step.
func (w *scenario) stepsInError() []string {
	var in, all []string
	for i := range w.definition.Steps {
		id := w.definition.Steps[i].ID
		all = append(all, id)
		if w.task.Steps[i].State == events.StepError {
			in = append(in, id)
		}
	}
	if len(in) == 0 || w.oneIn(4) {
		return append(all, "nowhere")
	}
	return in
}

func (w *scenario) controlAgain() {
	if len(w.controls) > 0 {
		w.counts["controls again"]++
		w.control(pick(w.dice, w.controls))
	}
}

func (w *scenario) submitAgain() {
	s := w.h.submission
	if w.coin() {
		s.Input = json.RawMessage(`{"n":7}`)
	}
	if w.task != nil {
		w.submit(&s)
	}
}

func (w *scenario) toggleAgent() {
	a := pick(w.dice, agents)
	if _, ok := w.requests[a]; ok {
		delete(w.requests, a)
	} else {
		w.requests[a] = int32(w.between(1, 7))
	}
	w.say("agent %s is there: %v", a, w.requests[a] > 0)
}

// garbage delivers a corrupt input. It must be refused with a reason, unless it is by chance another valid input. Then
// it is handled as that.
func (w *scenario) garbage() {
	inbox := events.Inbox(w.IntN(int(events.Inboxes)))
	if w.task == nil {
		return
	}
	r := w.wellFormed(inbox)
	for range w.between(1, 3) {
		w.spoil(&r)
	}
	w.arrives(inbox, &r)
}

// arrives decides any record of an inbox.
func (w *scenario) arrives(inbox events.Inbox, r *events.Record) {
	task, in, err := events.DecodeInput(inbox, r)
	if err != nil {
		var u *events.Unusable
		if !errors.As(err, &u) || !slices.Contains(events.Reasons, u.Reason) {
			w.failf("what can't be read has no reason of the list: %v", err)
		}
		w.counts["garbage refused"]++
		w.say("garbage on %s: %s", inbox, u.Reason)
		return
	}
	w.counts["garbage taken"]++
	if task != "t" {
		w.stranger(inbox, task, in)
		return
	}
	switch in := in.(type) {
	case *events.Submission:
		w.submit(in)
	case *events.Reply:
		w.lie(in)
	case *events.Recovery:
		w.recovery(in)
	case *events.Control:
		in.ID = in.RequestID // the record has only one id
		w.control(in)
	case *events.Signal:
		w.sendSignal(in)
	case *events.Withdrawal:
		w.withdraw(in)
	}
}

// withdraw delivers the withdrawal of a child. The task isn't one, so nothing changes.
func (w *scenario) withdraw(x *events.Withdrawal) {
	w.say("withdraw for %s", x.Parent)
	if _, d := w.decide(events.Tasks, x.Record(events.DefaultNamespace, "scheduler")); len(d.Events) > 0 {
		w.failf("a task without a parent was withdrawn: %v", d.Events)
	}
}

// stranger delivers an input for another, unknown task. It must not change this task.
func (w *scenario) stranger(inbox events.Inbox, task string, in events.Input) {
	env := &Env{Token: testToken, Now: w.clock(), Namespace: events.DefaultNamespace, Source: "test", Epoch: 1, Definitions: w, Requests: w.requests, DefinitionsRead: true}
	d := Decide(nil, in, events.Cause{Inbox: inbox, Offset: w.offset}, env)
	if inbox != events.Tasks && (d.Task != nil || len(d.Events) > 0) {
		w.failf("%T of the unknown task %q led to %+v", in, task, d)
	}
	for _, e := range d.Events {
		if e.Task != task {
			w.failf("%T of task %q led to an event of %q", in, task, e.Task)
		}
	}
}

func (w *scenario) wellFormed(inbox events.Inbox) events.Record {
	switch {
	case inbox == events.Replies && len(w.sent) > 0:
		return answerTo(pick(w.dice, w.sent), events.Completed, events.EffectNone, `{"ref":"r-1","n":[1,2.5e3,null]}`).Record(events.DefaultNamespace, "agent")
	case inbox == events.Recoveries && len(w.asked) > 0:
		return pick(w.dice, w.asked).Record(events.DefaultNamespace, "supervisor", 0)
	case inbox == events.Signals:
		return (&events.Signal{Task: "t", Name: pick(w.dice, signalNames), ID: "id-1", By: "ada"}).Record(events.DefaultNamespace, "shop")
	case inbox == events.Controls && len(w.controls) > 0:
		return pick(w.dice, w.controls).Record(events.DefaultNamespace, "cli")
	}
	return w.h.submission.Record(events.DefaultNamespace, "shop")
}

// spoil corrupts a record as senders and networks do.
func (w *scenario) spoil(r *events.Record) {
	r.Value = bytes.Clone(r.Value)
	at := w.IntN(len(r.Value) + 1)
	switch w.IntN(6) {
	case 0:
		r.Value = r.Value[:at]
	case 1:
		if at < len(r.Value) {
			r.Value[at] ^= 1 << w.IntN(8)
		}
	case 2:
		r.Value = slices.Insert(r.Value, at, byte(w.IntN(256)))
	case 3:
		i := w.IntN(len(r.Headers))
		r.Headers = slices.Delete(slices.Clone(r.Headers), i, i+1)
	case 4:
		r.Headers = slices.Clone(r.Headers)
		h := &r.Headers[w.IntN(len(r.Headers))]
		h.Value = []byte(pick(w.dice, []string{"", "waybill.reply.v2", "completed", "rejected", "t/s0/do/1", "t/s0/do/0", "t/s0/undo/1", "other/s0/do/1", "\xff", "application/cloudevents+json"}))
	case 5:
		end := at + w.IntN(len(r.Value)-at+1)
		r.Value = slices.Delete(r.Value, at, end)
	}
}

// behave ends all faults.
func (w *scenario) behave() {
	w.say("from here on everybody behaves")
	w.gone = false
	w.free = congestion.Unlimited
	w.bodyBytes = 0
	for i, a := range agents {
		if w.requests[a] == 0 {
			w.requests[a] = w.h.partitions[i]
		}
	}
}

// maxSweeps bounds the sweeps until a task has ended, if its agents reply. Each sweep ends an attempt or a wait.
const maxSweeps = 400

// finish runs the task until it has ended or is held: agents reply, the supervisor requests recoveries, time passes. It
// fails if the task does neither.
func (w *scenario) finish() {
	for range maxSweeps {
		if w.task.State.Terminal() || w.task.State == events.StateError {
			return
		}
		answered := false
		for _, q := range slices.Clone(w.sent) {
			if w.isCurrent(q) && w.clock().Before(q.CompleteBy) {
				w.replied(w.ledger.perform(q, 0, json.RawMessage(`{"ref":"r-1"}`)))
				answered = true
			}
		}
		if w.answerSignals() || answered || w.turn() {
			continue
		}
		armed := w.armed()
		if len(armed) == 0 {
			w.failf("the task is %s, and nothing will ever happen: %s", w.task.State, w.task.Encode())
		}
		if at := armed[0].Timer.Due; at.After(w.now) {
			w.now = at
		}
		w.sweep(0)
	}
	w.failf("the task is %s after %d sweeps: %s", w.task.State, maxSweeps, w.task.Encode())
}

// settle checks that an operator can always end a held task. Resubmits suffice if its expressions can be evaluated;
// otherwise a cancel does.
func (w *scenario) settle() {
	if w.task.State == events.StateError {
		w.counts["held after the faults"]++
	}
	if sound := !w.h.flawed && w.h.bodyBytes == 0 && !w.h.neverEnds(); sound && w.coin() {
		// A key that was rejected or barred costs one resubmit for each step and its undo.
		for range 2*len(w.task.Steps) + 2 {
			if w.task.State == events.StateError {
				w.operator(&events.Control{Command: events.Resubmit})
			}
		}
		if w.task.State == events.StateError {
			w.failf("everybody behaves, and no resubmit ends the task: %s", w.task.Encode())
		}
	}
	for _, keep := range []bool{false, true} {
		if w.task.State == events.StateError {
			w.operator(&events.Control{Command: events.Cancel, Keep: keep || w.task.Ending != ""})
		}
	}
	if !w.task.State.Terminal() {
		w.failf("the task is %s: %s", w.task.State, w.task.Encode())
	}
}

// refund undoes some of the processed tasks.
func (w *scenario) refund() {
	if w.task.State != events.StateProcessed || w.coin() {
		return
	}
	w.operator(&events.Control{Command: events.UndoTask, Processed: true})
	w.finish()
	w.settle()
	w.counts["ended "+string(w.task.State)+" after processed"]++
	w.checkLedger()
}

func (w *scenario) operator(x *events.Control) {
	x.Task, x.ID = "t", fmt.Sprint("op-", w.offset)
	x.By = events.By{Who: "op", RequestID: x.ID}
	if d := w.control(x); d.Ignored != "" {
		w.failf("%s of a task in state %s was %s", x.Command, w.fold.State, d.Ignored)
	}
	w.finish()
}

// stragglers repeats every request to its agent, in any order, and every input after the task's end. Nothing may
// change.
func (w *scenario) stragglers() {
	w.say("after the end everything comes again")
	for _, i := range w.Perm(len(w.sent)) {
		if r := w.ledger.perform(w.sent[i], w.luck(), w.drawBody()); w.oneIn(4) {
			w.replied(r)
		}
	}
	for _, r := range w.underway {
		w.counts["replies late"]++
		w.replied(r)
	}
	for _, r := range w.asked {
		if w.oneIn(4) {
			w.recovery(r)
		}
	}
}

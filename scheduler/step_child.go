package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// childStep runs a child task. The child's submission is in the transaction of the event that starts the step. The end of
// the child comes back as a reply, which the child's scheduler writes in the transaction of that end.
//
// A child is withdrawn by a record in the inbox of its submission, so it is read after it. So a child that its parent no
// longer wants ends, even if its submission wasn't read yet. These records of one child stay in order: they have the
// same key, and the owner of the parent's partition writes them one after the other.
type childStep struct{}

var _ = registerStepKind(events.WorkflowStep, childStep{})

// start submits the child. Each attempt has another child: the one before has ended.
func (childStep) start(d *decider, i int) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	if s.Unknown { // the child is processed, and its output can't be stored: see completeChild
		d.failRun(i, events.Do, &events.Error{Code: events.CodeTooLarge, Message: "the output of child " + quoted(s.KindState().Child) + " can't be stored; release the step, or undo the task"})
		return
	}
	number, depth := s.Attempt+1, 1
	if d.Task.Parent != nil {
		depth += d.Task.Parent.Depth
	}
	if depth > events.MaxDepth {
		d.failRun(i, events.Do, &events.Error{Code: events.CodeTooDeep, Message: tooDeep(p.Workflow)})
		return
	}
	id, err := d.childID(i, number)
	if err != nil {
		d.failRun(i, events.Do, err)
		return
	}
	input, fresh, err := d.runInput(i, events.Do, &s.Run)
	if err != nil {
		d.failRun(i, events.Do, err)
		return
	}
	ref := events.RequestRef{Step: p.ID, Kind: events.Do, Attempt: number}
	token := d.env.Token(d.Task.ID, ref)
	f := &events.ChildStarted{Step: p.ID, Attempt: number, Child: id, Workflow: p.Workflow, Version: p.Version,
		TokenHash: events.TokenHash(d.Task.ID, ref, token)}
	switch {
	case fresh && isTaskInput(d.Task, input):
		f.TaskInput = true
	case fresh:
		f.Input = input
	}
	by := d.childDeadline(i)
	d.emit(f, time.Time{}, nil)
	x := &events.Submission{ID: id, Workflow: p.Workflow, Version: p.Version, Input: input, Priority: d.Task.Priority,
		CompleteBy: by, Traceparent: d.Task.Traceparent,
		Parent: &events.Parent{Task: d.Task.ID, Step: p.ID, Attempt: number, Token: token, Depth: depth,
			KnownUntil: d.Task.ChildrenKnownUntil()}}
	d.Records = append(d.Records, x.Record(d.env.Namespace, d.env.Source))
}

func tooDeep(workflow string) string {
	return fmt.Sprintf("the child of workflow %s would have more than %d parents above it", quoted(workflow), events.MaxDepth)
}

// childDeadline returns the complete-by of a child: the parent's, or earlier if the step has a complete_within.
func (d *decider) childDeadline(i int) time.Time {
	by := d.Task.CompleteBy
	if within := d.Task.Plan.Steps[i].Attempts.CompleteWithin; within > 0 {
		if own := events.Millis(d.now.Add(within)); own.Before(by) {
			by = own
		}
	}
	return by
}

// childID returns the id of a step's child: what the definition says, or <task>/<step>, with KeyName for the task: a
// later task with the id of this one must have other children. After a resubmit, the number of
// the attempt makes it another id.
func (d *decider) childID(i, attempt int) (string, *events.Error) {
	id, err := d.program.ChildID(i, d.evaluationScope())
	if err != nil {
		return "", expressionFailed(err)
	}
	if id == "" {
		id = d.Task.KeyName() + "/" + d.Task.Plan.Steps[i].ID
	}
	return d.checkChildID(id, attempt)
}

// checkChildID completes the id of a child with the number of the attempt, and checks it.
func (d *decider) checkChildID(id string, attempt int) (string, *events.Error) {
	if attempt > 1 {
		id = fmt.Sprintf("%s~%d", id, attempt)
	}
	if id == d.Task.ID {
		return "", &events.Error{Code: events.CodeBadChild, Message: "the id of the child is that of its parent"}
	}
	if why := events.CheckTaskID(id); why != nil {
		return "", &events.Error{Code: events.CodeBadChild, Message: shortened(fmt.Sprintf("the child can't have the id %s: %v", quoted(id), why))}
	}
	return id, nil
}

// reply applies the end of the child, or that it is held or no longer held.
func (childStep) reply(d *decider, i int, r *events.Reply) {
	ref, run := r.Ref, d.Task.Run(i, r.Ref.Kind)
	switch r.Outcome {
	case events.Completed:
		d.completeChild(i, r)
	case events.Rejected:
		err := r.Failure()
		d.emit(&events.ChildRejected{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Error: err}, time.Time{}, nil)
		d.onRunError(i, ref.Kind, err)
	case events.Held:
		d.emit(&events.ChildHeld{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Error: r.Failure()}, time.Time{}, nil)
	case events.Resumed:
		if run.Interim().ChildError == nil {
			d.Ignored = IgnoredDuplicate
			return
		}
		d.emit(&events.ChildResumed{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt}, time.Time{}, nil)
	case events.Failed, events.Progress:
		d.markUnusable(events.ReasonBadHeader, fmt.Sprintf("%s %q of a child", events.HeaderOutcome, r.Outcome))
	}
}

func (d *decider) completeChild(i int, r *events.Reply) {
	ref := r.Ref
	f := &events.ChildCompleted{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt}
	if ref.Kind == events.Do {
		f.Output = r.Body
		if n, total := len(r.Body), d.derived.taskBytes(d.Task)+len(r.Body); n > MaxOutputBytes || total > MaxTaskBytes {
			err := &events.Error{Code: events.CodeTooLarge, Message: tooLarge("the output of child "+quoted(d.Task.Steps[i].KindState().Child), n, MaxOutputBytes, total)}
			d.emit(&events.ChildRejected{Kind: ref.Kind, Step: ref.Step, Attempt: ref.Attempt, Error: err, Unknown: true}, time.Time{}, nil)
			d.onRunError(i, ref.Kind, err)
			return
		}
	}
	d.emit(f, time.Time{}, nil)
	d.endCatch(i, ref.Kind)
	d.advance()
}

// recover isn't called: no run of a child has a timer.
func (childStep) recover(d *decider, _ int, _ *events.Recovery) { d.Ignored = IgnoredOutsidePolicy }

// withdrawChild starts the undo of a step with a child.
func (d *decider) withdrawChild(i int) {
	s, number := d.Task.Steps[i], 1
	if s.Undo != nil {
		number = s.Undo.Attempt + 1
	}
	ref := events.RequestRef{Step: d.Task.Plan.Steps[i].ID, Kind: events.Undo, Attempt: number}
	token := d.env.Token(d.Task.ID, ref)
	child := s.KindState().Child
	w := &events.Withdrawal{Task: child, Parent: d.Task.ID, Ref: ref, Token: token, Started: s.TokenHash,
		Completed: s.CompletedSeq != 0, Keep: d.Task.Keep, Why: withdrawalReason(d.Task)}
	d.emit(&events.WithdrawalStarted{Step: ref.Step, Attempt: number, Child: child, TokenHash: events.TokenHash(d.Task.ID, ref, token)}, time.Time{}, nil)
	d.Records = append(d.Records, w.Record(d.env.Namespace, d.env.Source))
}

func withdrawalReason(t *events.Task) string {
	why := "its parent " + quoted(t.ID) + " is being undone"
	if t.Error != nil {
		why += ": " + t.Error.Code
		if t.Error.Message != "" {
			why += ": " + t.Error.Message
		}
	}
	if why = strings.ToValidUTF8(why, "\uFFFD"); len(why) > events.MaxWhyBytes {
		why = strings.ToValidUTF8(why[:events.MaxWhyBytes-len("...")], "") + "..." // a part of a character would be stored as more bytes
	}
	return why
}

// withdrawRunning withdraws all children that ran when the undo began, at once: they would go on working otherwise.
func (d *decider) withdrawRunning() {
	for i := range d.Task.Steps {
		if d.Task.State != events.StateUndoing || d.needDefinitions {
			return // an undo failed as it started, so the task is held
		}
		if s := d.Task.Steps[i]; d.Task.Plan.Steps[i].StepKind.HasChildren() && s.Unknown && s.CompletedSeq == 0 && s.Undo == nil {
			d.startAttempt(i, events.Undo)
		}
	}
}

// handleWithdrawal ends a child. A task that isn't the child is left alone: then the submission of the child was refused.
func (d *decider) handleWithdrawal(w *events.Withdrawal) {
	t := d.Task
	switch {
	case !w.Of(t) && w.Completed:
		d.rejectWithdrawal(w, events.CodeNoSuchChild, "the child "+quoted(w.Task)+" had completed, and is no longer known; what it did can't be undone by Waybill")
		return
	case !w.Of(t), t.State == events.StateUndone, t.State == events.StateCancelled:
		d.replyTo(w.Reply(events.Completed))
		return
	}
	if t.Withdrawal != nil && t.Open() && t.Withdrawal.Attempt >= w.Ref.Attempt {
		d.Ignored = IgnoredDuplicate
		return
	}
	if w.Keep && t.State == events.StateProcessed { // it completed, so it is kept
		d.replyTo(w.Reply(events.Completed))
		return
	}
	if t.Ending == "" {
		f := &events.TaskUndoing{Ending: events.StateCancelled, Keep: w.Keep, Error: &events.Error{Code: events.CodeWithdrawn, Message: w.Why}}
		if t.State == events.StateProcessed {
			var why string
			f.Ending, f.Keep = events.StateUndone, false
			if f.Processed, why = reopenedForm(t); why != "" {
				d.rejectWithdrawal(w, events.CodeCantBeReopened, why)
				return
			}
		}
		d.emit(f, time.Time{}, nil)
	}
	d.emit(&events.TaskWithdrawn{UndoAttempt: w.Ref.Attempt, Token: w.Token}, time.Time{}, nil)
	if held := d.Task.ReplyToParent(""); held != nil && held.Outcome == events.Held {
		d.replyTo(held)
	}
	d.advance()
}

func (d *decider) rejectWithdrawal(w *events.Withdrawal, code, why string) {
	r := w.Reply(events.Rejected)
	r.Body = (&events.Error{Code: code, Message: why}).JSON()
	d.replyTo(r)
}

// replyTo writes a reply to the task's parent.
func (d *decider) replyTo(r *events.Reply) {
	d.Records = append(d.Records, r.Record(d.env.Namespace, d.env.Source))
}

// replyToParent writes what the parent of a child receives after an event: its end, or that it is held.
func (d *decider) replyToParent(was events.TaskState) {
	if r := d.Task.ReplyToParent(was); r != nil {
		d.replyTo(r)
	}
}

// refuseChild answers a parent whose child was refused.
func (d *decider) refuseChild(s *events.Submission, r events.Reason, detail string) {
	if s.Parent != nil {
		d.replyTo(s.Parent.Refused(r, shortened(detail)))
	}
}

// refuseUndecodedChild answers the parent of a child whose record can't be decoded.
func (tx *transaction) refuseUndecodedChild(r *events.Record, why *events.Unusable) {
	short := *why
	short.Detail = shortened(why.Detail)
	if answer := events.RefusalOf(r, &short); answer != nil {
		tx.write(answer.Record(tx.worker.cfg.Namespace, tx.worker.source))
	}
}

// refuseStoppedChild answers the parent of a child whose history this build can't read.
func (tx *transaction) refuseStoppedChild(in events.Input, why string) {
	var r *events.Reply
	err := &events.Error{Code: string(events.ReasonTaskStopped), Message: shortened(why)}
	switch in := in.(type) {
	case *events.Submission:
		if in.Parent == nil {
			return
		}
		r = in.Parent.Refused(events.ReasonTaskStopped, err.Message)
	case *events.Withdrawal:
		r = in.Reply(events.Rejected)
		r.Body = err.JSON()
	case *events.Control, *events.Recovery, *events.Reply, *events.Signal: // no parent waits for their effect
		return
	}
	tx.write(r.Record(tx.worker.cfg.Namespace, tx.worker.source))
}

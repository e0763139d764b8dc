package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// done are the flags of a step on which dependent steps may start.
const done = completed | handSettled | skipped | caught

// checkPlan checks an event against the plan's graph, and against the plan's rule for tasks that can't continue (P2).
func (s *eventCheck) checkPlan() *Fault {
	if s.rule.checkCourse == nil {
		return nil
	}
	return s.rule.checkCourse(s)
}

func (s *eventCheck) checkSkip() *Fault {
	i, ok := s.t.open.state.Plan.Step(s.about.Step)
	if !ok {
		return nil
	}
	if s.t.steps[i].flags.has(unknown) {
		return faultf("P6", "step %q is skipped after an attempt that may have had an effect, which nothing would undo", s.about.Step)
	}
	return s.checkStart(i)
}

func (s *eventCheck) checkStarted() *Fault { return s.checkStartIf(true) }
func (s *eventCheck) checkUnsent() *Fault  { return s.checkStartIf(!s.run.running) }
func (s *eventCheck) checkErrored() *Fault {
	return s.checkStartIf(s.t.open.state.State == events.StateProcessing)
}

// checkStartIf is checkStart if the event is about the step's own operation.
func (s *eventCheck) checkStartIf(begins bool) *Fault {
	if !begins || s.about.Kind != events.Do {
		return nil
	}
	return s.checkStart(s.index)
}

func (s *eventCheck) checkProcessed() *Fault {
	if i, ok := s.t.notDone(); ok {
		return faultf("P2", "processed, and step %q is neither completed, skipped nor caught", s.t.plan.Steps[i].ID)
	}
	return nil
}

// checkStart checks that a step starts, or is skipped, only when the steps that it needs are done and no step is
// in error.
func (s *eventCheck) checkStart(i int) *Fault {
	steps := s.t.open.state.Plan.Steps
	for _, n := range steps[i].Needs {
		if !s.t.steps[n].flags.has(done) {
			return faultf("P2", "%s of step %q before step %q, which it needs, was done", s.e.Fact.Type(), steps[i].ID, steps[n].ID)
		}
	}
	if s.t.open.erred > 0 {
		return faultf("P2", "%s of step %q while another is in error", s.e.Fact.Type(), steps[i].ID)
	}
	return nil
}

// notDone returns a step that isn't done, if there is one.
func (t *task) notDone() (step int, ok bool) {
	if t.open.done == len(t.steps) {
		return 0, false
	}
	for i := range t.steps {
		if !t.steps[i].flags.has(done) {
			return i, true
		}
	}
	return 0, false
}

// The functions from checkHold to checkResume check that a task continues or ends as its plan or an operator decided.

func (s *eventCheck) checkHold() *Fault {
	g := &s.t.open.gaveUp
	undo := g.undo && g.seq == s.e.Seq-1
	if t := s.t.open.state; t.State != events.StateUndoing && s.t.onError() != events.OnErrorHold && !undo {
		return faultf("P2", "held, and the plan says %s", t.Plan.OnError)
	}
	return s.checkReason(s.about.Error())
}

func (s *eventCheck) checkUndoing() *Fault {
	f, ok := s.e.Fact.(*events.TaskUndoing)
	if !ok {
		return nil
	}
	t := s.t.open.state
	switch own := f.RequestID == ""; {
	case own && s.first && s.e.Cause.Inbox == events.Tasks:
		return s.checkWithdrawing(f)
	case t.State == events.StateError && t.Ending != "":
		return faultf("P2", "undoing again, while an undo of it is held")
	case own && t.State == events.StateProcessed:
		return faultf("P2", "undoing a processed task, which nobody asked for")
	case own && t.Plan.OnError != events.OnErrorUndo:
		return faultf("P2", "undoing, which nobody asked for, and the plan says %s", t.Plan.OnError)
	case own && s.t.onError() != events.OnErrorUndo:
		return faultf("P2", "undoing, which nobody asked for, and a pivot is completed")
	case own && s.t.open.gaveUp.undo && s.t.open.gaveUp.seq == s.e.Seq-1:
		return faultf("P2", "undoing, and an undo of it just failed: it must be held")
	case own && (f.Ending != events.StateUndone || f.Keep):
		return faultf("P2", "undoing to be %s (keep: %v), which nobody asked for", f.Ending, f.Keep)
	case own:
		return s.checkReason(f.Error)
	}
	return nil
}

func (s *eventCheck) checkUndone() *Fault { return s.checkEnd(events.StateUndone) }

func (s *eventCheck) checkCancelled() *Fault {
	switch t := s.t.open.state; {
	case t.State != events.StateError:
		return s.checkEnd(events.StateCancelled)
	case t.Ending == "":
		return faultf("P2", "cancelled in a hold, and it wasn't being undone: that would come first")
	}
	return nil
}

func (s *eventCheck) checkRelease() *Fault {
	undoing := s.t.open.state.Ending != ""
	if i, ok := s.t.plan.Step(s.about.Step); ok && s.t.steps[i].flags.has(catching) {
		undoing = true // its undo is released
	}
	if undoing != (s.about.As == events.StepUndone) {
		return faultf("P2", "step %q is released as %s; the task is being undone: %v", s.about.Step, s.about.As, undoing)
	}
	return nil
}

func (s *eventCheck) checkResume() *Fault {
	switch own := s.request() == ""; {
	case own == s.first:
		return faultf("P10", "resumed by the request %q; it is the first that %s led to: %v", s.request(), s.e.Cause, s.first)
	case own && stillHeld(s.t.open.state):
		return faultf("P2", "resumed after a release, while another step is in error")
	}
	return nil
}

// checkReason checks the error for which a task is held or undone without a command. It is the error of the step that
// just gave up, or an error of the task's own.
func (s *eventCheck) checkReason(err *events.Error) *Fault {
	g := s.t.open.gaveUp
	if err == nil || g.any || err.Code == events.CodeTooLarge {
		return nil
	}
	if s.fires() {
		if err.Code != events.CodeExpired || err.Step != "" {
			return faultf("P2", "%s for the error %s of step %q; the task's own time was over", s.e.Fact.Type(), err.Code, err.Step)
		}
		return nil
	}
	i, ok := s.t.plan.Step(err.Step)
	switch after := g.seq == s.e.Seq-1; {
	case after && g.caught:
		return faultf("P2", "%s for the error %s of step %q, which catches it", s.e.Fact.Type(), err.Code, err.Step)
	case after && (!ok || i != g.step || sumOfError(err) != g.err):
		return faultf("P2", "%s for the error %s of step %q; it was another of step %q", s.e.Fact.Type(), err.Code, err.Step, s.t.plan.Steps[g.step].ID)
	case !after && err.Step != "":
		return faultf("P2", "%s for the error %s of step %q, which didn't give up", s.e.Fact.Type(), err.Code, err.Step)
	}
	return nil
}

// checkEnd checks that an undo ends in the decided state, once no attempt runs (P6).
func (s *eventCheck) checkEnd(end events.TaskState) *Fault {
	o := s.t.open
	if o.state.Ending != end {
		return faultf("P2", "%s, and it was decided that it should be %s", end, o.state.Ending)
	}
	for i := range o.runs {
		if o.runs[i].running {
			return faultf("P6", "%s while an attempt at step %q runs", end, s.t.plan.Steps[i/runsPerStep].ID)
		}
	}
	return nil
}

// stillHeld reports whether a step holds the task: one in error during processing, or one whose undo is in error
// during the undo.
func stillHeld(t *events.Task) bool {
	for _, x := range t.Steps {
		if t.Ending == "" && x.State == events.StepError || x.Undo != nil && x.Undo.State == events.StepError {
			return true
		}
	}
	return false
}

// decision is the decision that the last event of a partition belongs to: the events of one task that an input led
// to, or those of a step that started in a freed slot.
type decision struct {
	task   *task // nil: the task isn't checked
	cause  events.Cause
	queued bool
	offset int64  // of the last event so far
	fact   string // the type of the last event
	// loose is true if an attempt ended and no event yet says how its run continues.
	loose bool
}

// contains reports whether an event continues the decision.
func (d *decision) contains(e *events.Event) bool {
	return d.task != nil && d.task.id == e.Task && d.cause == e.Cause && d.queued == e.Queued
}

// extendDecision adds the event to the decision.
func (s *eventCheck) extendDecision(d *decision) {
	released := (*events.RunReleased)(nil).Type()
	if s.about.Verb != events.VerbCaught || d.fact != released { // what follows a release also follows a caught error after it
		d.fact = s.e.Fact.Type()
	}
	d.offset, d.loose = s.r.Offset, false
	if s.rule.loose {
		d.loose = s.e.Policy == nil && s.mayRetry()
	}
	if s.about.Kind == events.Check && s.run.checked == s.run.of {
		d.loose = s.mustGoOn()
	}
}

// whyIncomplete returns why a decision can't end with its last event; empty: it can. A decision is written in one
// transaction and continues until it waits for an attempt, a timer or an operator (P10).
func (d *decision) whyIncomplete() string {
	if d.task == nil || d.task.broken || d.task.open == nil {
		return ""
	}
	why, o := "", d.task.open
	if o.uncaught > 0 {
		return fmt.Sprintf("what %s led to ends with %s: the undo of a step is complete, and its error isn't caught", d.cause, d.fact)
	}
	if o.unwithdrawn {
		return fmt.Sprintf("what %s led to ends with %s: a child is withdrawn, and the token of the parent isn't recorded", d.cause, d.fact)
	}
	switch t := o.state; t.State {
	case events.StatePending:
		why = "it wasn't started"
	case events.StateProcessing:
		_, open := d.task.notDone()
		switch {
		case o.erred > 0:
			why = "a step is in error, and the task is neither held nor undone"
		case d.loose:
			why = "an attempt ended, and it isn't said how the step goes on"
		case !open:
			why = "all steps are done, and the task isn't processed"
		default:
			why = d.task.leftSignal()
		}
	case events.StateUndoing:
		switch {
		case d.loose:
			why = "an attempt ended, and it isn't said how the undo goes on"
		case len(o.timers.Armed) == 0 && !d.task.withdraws():
			why = "nothing runs or waits, and the undo doesn't go on"
		}
	case events.StateError:
		if d.fact == (*events.RunReleased)(nil).Type() && !stillHeld(t) {
			why = "no step is in error any more, and the task isn't resumed"
		} else {
			why = d.task.leftSignal()
		}
	case events.StateProcessed, events.StateUndone, events.StateCancelled: // nothing follows
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("what %s led to ends with %s: %s", d.cause, d.fact, why)
}

// close keeps an incomplete decision until the task's next event shows, by the hash that it contains, whether the
// last event was changed.
func (d *decision) close() {
	if what := d.whyIncomplete(); what != "" {
		d.task.open.cut = &cutDecision{d.offset, what}
	}
}

// cutDecision is a decision that can't have ended as it did.
type cutDecision struct {
	offset int64 // of its last event
	what   string
}

// checkPreviousDecision reports that the decision before the event was incomplete.
func (c *Checker) checkPreviousDecision(t *task, e *events.Event, r *events.Record) {
	if t.open == nil || t.open.cut == nil {
		return
	}
	x := t.open.cut
	c.addFirstFaultAt(t, Fault{"P10", t.id, topicEvents, r.Partition, x.offset,
		fmt.Sprintf("%s; the next, event %d at events/%d/%d, comes of %s", x.what, e.Seq, r.Partition, r.Offset, e.Cause)})
}

// reportCutDecisions reports incomplete decisions that no event of their task follows.
func (f *finish) reportCutDecisions() {
	for _, t := range f.c.order {
		if t.open != nil && t.open.cut != nil && !t.broken {
			f.faults.add(Fault{"P10", t.id, topicEvents, t.partition, t.open.cut.offset, t.open.cut.what})
		}
	}
	if !f.c.o.Whole {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(f.c.parts)) {
		d := &f.c.parts[number].doing
		if what := d.whyIncomplete(); what != "" {
			f.faults.add(Fault{"P10", d.task.id, topicEvents, number, d.offset, what})
		}
	}
}

// inError returns the steps in error.
func inError(t *events.Task) (steps []string) {
	for i, x := range t.Steps {
		if x.State == events.StepError {
			steps = append(steps, t.Plan.Steps[i].ID)
		}
	}
	return steps
}

package events

import "slices"

// anyCode in a list of codes to catch stands for every code.
const anyCode = "*"

// notCatchable are the codes of errors that aren't failures of an operation.
var notCatchable = []string{CodeNoSuchWorkflow, CodeCancelled, CodeUndoRequested}

// CanCatch reports whether a step may catch errors with this code.
func CanCatch(code string) bool { return !slices.Contains(notCatchable, code) }

// Catches reports whether a step catches an error that has any of these codes.
func (p *Plan) Catches(step int, codes ...string) bool {
	return slices.ContainsFunc(codes, func(code string) bool {
		return CanCatch(code) && (slices.Contains(p.Steps[step].Catch, code) || slices.Contains(p.Steps[step].Catch, anyCode))
	})
}

// RunCaught records that the task goes on after the step ended in error. The step counts as done. What it may have
// changed was undone before, if it has an undo.
type RunCaught struct {
	Step string
	// Error is the error of the step, or of its last attempt if its tries are exhausted.
	Error *Error
}

func (*RunCaught) Type() string { return "waybill.step.caught.v1" }

func (f *RunCaught) About() About {
	return About{Verb: VerbCaught, Step: f.Step, Kind: Do, AnyKind: true, Disarms: DisarmsOwn, Failure: &f.Error}
}

func (f *RunCaught) apply(t *Task, e *Event) error {
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		r.Error, r.EndedAt = f.Error, e.At
		r.DropProgress()
		s.Output = nil // of the last call, if the step is repeated
	})
}

func (f *RunCaught) fields(c *codec) {
	c.interned("step", &f.Step)
	c.errorField("error", &f.Error)
}

// BeingCaught reports whether a step's undo has begun as part of catching its error, and not as part of the task's undo.
func (t *Task) BeingCaught(step int) bool {
	return t.Ending == "" && t.Steps[step].Undo != nil && t.Steps[step].State != StepCaught
}

// CatchFailed reports whether a hold with this error is due to the undo of a step that is being caught.
func (t *Task) CatchFailed(err *Error) bool {
	if err == nil {
		return false
	}
	i, ok := t.Plan.Step(err.Step)
	return ok && t.BeingCaught(i) && t.Steps[i].Undo.State == StepError
}

// CatchFailed is Task.CatchFailed.
func (s *Summary) CatchFailed(err *Error) bool {
	return err != nil && s.Ending == "" && slices.ContainsFunc(s.Steps, func(p StepSummary) bool {
		return p.ID == err.Step && p.State != StepCaught && p.Undo == StepError
	})
}

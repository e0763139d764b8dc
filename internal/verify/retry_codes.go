package verify

import "github.com/waybill-run/waybill/events"

// countCode records the error of a failed attempt, and whether its code may be retried.
func (s *eventCheck) countCode(err *events.Error) {
	code := ""
	if err != nil {
		code = err.Code
	}
	r := s.run
	r.code, r.final = sumOfText(code), !s.t.plan.RetryCodesOf(s.index, s.slot.Kind).Allow(code)
}

// checkRetryable checks that the code of the last failure allows another attempt (P5).
func (s *eventCheck) checkRetryable() *Fault {
	if s.run.final {
		return faultf("P5", "%s of step %q after an error whose code isn't retried", s.e.Fact.Type(), s.about.Step)
	}
	return nil
}

// checkGivenUp checks that a run was given up for a reason: its last error isn't retried, and then it ends with that very error;
// or it has used all its tries.
func (s *eventCheck) checkGivenUp(attempts events.Attempts) *Fault {
	err, used := s.about.Error(), s.run.failures
	if err != nil && s.about.Kind == events.Do && (err.Code == events.CodeTriesExhausted || s.run.final && !isOwn[err.Code]) && s.e.At.Before(s.t.open.state.CompleteBy) {
		if fault := s.checkAskedBefore("giving it up"); fault != nil {
			return fault
		}
	}
	switch {
	case err == nil || used >= attempts.MaxAttempts && !s.run.final:
	case err.Code == events.CodeTriesExhausted && s.run.final:
		return faultf("P5", "the tries of step %q are exhausted, and its last error isn't retried: it ends with that error", s.about.Step)
	case err.Code == events.CodeTriesExhausted, !s.run.final && !s.first && s.run.code == sumOfText(err.Code) && !isOwn[err.Code]:
		return faultf("P5", "step %q was given up after %d failures of %d", s.about.Step, used, attempts.MaxAttempts)
	}
	return s.checkRepeatExhausted()
}

// isOwn lists the codes of errors that end a run whatever its budget.
var isOwn = map[string]bool{events.CodeExpressionFailed: true, events.CodeTooLarge: true, events.CodeNoSuchWorkflow: true}

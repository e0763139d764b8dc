package events

import "slices"

// RetryCodes says by error code which failures of an operation are retried. The zero value allows all. At most one of the
// lists is set.
type RetryCodes struct {
	Only   []string // the codes that are retried; empty: all
	Except []string // the codes that aren't retried
}

// Allow reports whether an attempt that failed with this code may be followed by another one.
func (r *RetryCodes) Allow(code string) bool {
	return (len(r.Only) == 0 || slices.Contains(r.Only, code)) && !slices.Contains(r.Except, code)
}

func (r *RetryCodes) fields(c *codec) {
	c.texts("retry_only", &r.Only)
	c.texts("retry_except", &r.Except)
}

// RetryCodesOf returns the lists for a step's operation, its undo or its check.
func (p *Plan) RetryCodesOf(step int, k Kind) *RetryCodes {
	if o := p.other(step, k); o != nil {
		return &o.RetryCodes
	}
	return &p.Steps[step].RetryCodes
}

// Retries reports whether a run of a step's operation or its undo may be retried after an error.
func (p *Plan) Retries(step int, k Kind, err *Error) bool {
	return p.RetryCodesOf(step, k).Allow(codeOrEmpty(err))
}

func codeOrEmpty(err *Error) string {
	if err == nil {
		return ""
	}
	return err.Code
}

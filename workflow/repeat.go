package workflow

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxRepeats bounds Repeat.Max.
const MaxRepeats = 1000

// Repeat makes a step call its operation again, until its output says that the work is done. All fields are required.
type Repeat struct {
	// Until is an expression "${ ... }" with a boolean result. It is evaluated after each call that completed; output is
	// the output of that call. true completes the step.
	Until string   `json:"until"`
	Every Duration `json:"every"` // wait between a call that completed and the next call
	Max   int      `json:"max"`   // the most calls that may complete; 1 to MaxRepeats
}

func (c *decoder) repeat(n *node, path string) *Repeat {
	r := &Repeat{}
	c.object(n, path, fieldsOf[Repeat](), func(m member, path string) {
		switch v := m.value; m.key {
		case "until":
			if v.kind == kindBool {
				c.f.addAt(v.at, path, "this is a boolean, want an expression", `write "${ output.status == 'done' }"`)
				return
			}
			r.Until = c.text(v, path)
		case "every":
			r.Every = c.duration(v, path)
		case "max":
			r.Max = c.integer(v, path, fmt.Sprintf("write a whole number from 1 to %d", MaxRepeats))
		}
	})
	return r
}

func (w *writer) repeat(r *Repeat) {
	if r == nil {
		return
	}
	w.field("repeat")
	w.openObject()
	w.text("until", r.Until)
	w.duration("every", r.Every)
	w.integer("max", r.Max)
	w.closeObject()
}

func checkRepeat(f *faults, d *Definition, r *Repeat, path string) {
	if r == nil {
		return
	}
	if r.Until == "" {
		f.missing(path+".until", true, "", `write "${ output.status == 'done' }"`)
	}
	checkDuration(f, path+".every", r.Every, true)
	if d.CompleteWithin > 0 && r.Every >= d.CompleteWithin {
		f.add(path+".every", fmt.Sprintf("the wait between two calls is %s, but the whole task has only %s", r.Every, d.CompleteWithin),
			"shorten it, or lengthen the task's complete_within")
	}
	if r.Max < 1 || r.Max > MaxRepeats {
		f.missing(path+".max", r.Max == 0, fmt.Sprintf("%d is out of range", r.Max), fmt.Sprintf("write a whole number from 1 to %d", MaxRepeats))
	}
}

// repeatOf says in a graph how a step is repeated; empty: it isn't.
func repeatOf(s *Step) string {
	if s.Repeat == nil {
		return ""
	}
	return fmt.Sprintf("again every %s, at most %d calls, until %s", s.Repeat.Every, s.Repeat.Max, bare(s.Repeat.Until))
}

// Until reports whether a step is done after a call that completed with this output. It returns an *Error if the
// expression fails or its result isn't a boolean. It panics if the step has no Repeat.
func (p *Program) Until(step int, s Scope, output json.RawMessage) (bool, error) {
	x := p.steps[step].until
	s.CallOutput = output
	return x.evalBoolean(newActivation(p, &s))
}

// Wait returns Every as a time.Duration, in whole milliseconds, rounded up: no call begins early.
func (r *Repeat) Wait() time.Duration { return ceilMillis(time.Duration(r.Every)) }

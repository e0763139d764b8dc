package workflow

import (
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/waybill-run/waybill/events"
)

func init() {
	registerStepKind(stepKind{
		kind: events.WaitStep,
		texts: func(s *Step) []stepText {
			return []stepText{{"wait", &s.Wait, "write a duration such as 10m"}, {"wait_until", &s.WaitUntil, "write an instant such as 2027-01-31T08:00:00Z"}}
		},
		instead: map[string]string{"complete_within": "the wait ends by itself", "heartbeat": "no agent works on it", "retry": "a wait can't fail", "undo": "a wait has no effect", "repeat": "a wait is not repeated", "check": "a wait has no effect",
			"input": "a wait gets none", "for_each": "one wait is enough for all items: put it before or after the step"},
		normalize: normalizeWait,
		check:     checkWait,
		compile:   compileWait,
		label: func(d *Definition, step int) (what, detail string) {
			s := &d.Steps[step]
			what = "wait " + s.Wait
			if s.WaitUntil != "" {
				what = "wait until " + s.WaitUntil
			}
			return strings.Join(strings.Fields(what), " "), ""
		},
	})
}

func hasExpression(text string) bool { return strings.Contains(text, "${") }

// normalizeWait writes literals in one form, since the same meaning must give the same bytes.
func normalizeWait(s *Step) {
	if v, err := ParseDuration(s.Wait); err == nil {
		s.Wait = v.String()
	}
	if at, err := events.ParseInstant(s.WaitUntil); err == nil {
		s.WaitUntil = at.UTC().Format(time.RFC3339Nano)
	}
}

func checkWait(f *faults, d *Definition, s *Step, path string) {
	if s.Wait != "" && s.WaitUntil != "" {
		f.add(path+".wait_until", "wait and wait_until are both given", "remove one of them")
	}
	if s.Wait != "" && !hasExpression(s.Wait) {
		path := path + ".wait"
		switch v, err := ParseDuration(s.Wait); {
		case err != nil:
			what, fix, _ := strings.Cut(err.Error(), "; ")
			f.add(path, what, fix)
		case v == 0:
			f.add(path, "a wait of zero", "remove the step, or write a duration of at least "+MinDuration.String())
		default:
			checkDuration(f, path, v, true)
			if d.CompleteWithin > 0 && v >= d.CompleteWithin {
				f.add(path, fmt.Sprintf("the wait takes %s, but the whole task has only %s", v, d.CompleteWithin), "shorten it, or lengthen the task's complete_within")
			}
		}
	}
	if s.WaitUntil != "" && !hasExpression(s.WaitUntil) {
		if _, err := events.ParseInstant(s.WaitUntil); err != nil {
			f.add(path+".wait_until", fmt.Sprintf("%q is not an instant", s.WaitUntil), "write one such as 2027-01-31T08:00:00Z, or an expression such as ${ timestamp(input.ship_at) }")
		}
	}
}

// Wait is for how long, or until when, a step waits. One of the two is set, in whole milliseconds. A Wait of zero ends at
// once.
type Wait struct {
	For   time.Duration
	Until time.Time
}

// waitProgram is a compiled wait.
type waitProgram struct {
	fixed       Wait        // if x is nil
	x           *expression // gives a duration or a timestamp
	untilWanted bool
}

var (
	wantDuration  = wanted{cel.DurationType, "a duration", `write duration(...), as in "${ duration(input.delay) }"`}
	wantTimestamp = wanted{cel.TimestampType, "a timestamp", `write timestamp(...), as in "${ timestamp(input.ship_at) }"`}
)

func compileWait(c *compiler, s *Step, path string, sc scope) any {
	p := &waitProgram{untilWanted: s.WaitUntil != ""}
	switch {
	case hasExpression(s.Wait):
		p.x = c.single(s.Wait, path+".wait", sc, &wantDuration)
	case hasExpression(s.WaitUntil):
		p.x = c.single(s.WaitUntil, path+".wait_until", sc, &wantTimestamp)
	case s.Wait != "":
		v, _ := ParseDuration(s.Wait) // checkWait reports an error
		p.fixed.For = ceilMillis(time.Duration(v))
	default:
		at, _ := events.ParseInstant(s.WaitUntil)
		p.fixed.Until = ceilMillisOf(at)
	}
	return p
}

// Wait returns how long a step of kind wait waits. It returns an *Error if the expression fails or its result has another
// type. It panics if the step isn't a wait.
func (p *Program) Wait(step int, s Scope) (Wait, error) {
	w := p.steps[step].own.(*waitProgram)
	if w.x == nil {
		return w.fixed, nil
	}
	v, err := w.x.eval(newActivation(p, &s))
	if err != nil {
		return Wait{}, err
	}
	return w.of(v)
}

func (w *waitProgram) of(v ref.Val) (Wait, error) {
	want := wantDuration
	if w.untilWanted {
		want = wantTimestamp
	}
	switch v := v.(type) {
	case types.Duration:
		if !w.untilWanted {
			return Wait{For: ceilMillis(max(0, v.Duration))}, nil
		}
	case types.Timestamp:
		if w.untilWanted {
			return Wait{Until: ceilMillisOf(v.Time)}, nil
		}
	}
	e := w.x.errorOf(fmt.Errorf("it gives a value of type %s, want %s", v.Type().TypeName(), want.name))
	e.Fix = want.fix
	return Wait{}, e
}

// ceilMillis rounds up, so that no wait is shorter than asked for.
func ceilMillis(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Millisecond); whole < d {
		return whole + time.Millisecond
	}
	return d.Truncate(time.Millisecond)
}

func ceilMillisOf(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); whole.Before(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}

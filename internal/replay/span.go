package replay

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Span is what an event of a timeline tells of time: how long the agent had the
// attempt that it ends, how long the attempt that it starts had to wait, and how much
// of the attempt's time was left. A nil is not told by this event.
type Span struct {
	Work *time.Duration
	Wait *time.Duration // since the step could start, or since its last attempt or a hold ended
	Left *time.Duration // negative: the time was over
}

// Spans are those of the lines of a task's timeline, which begins with its first
// event; of one that begins later, what can be told.
func Spans(lines []events.Line) []Span {
	s := &spanning{started: map[events.RequestRef]begun{}, ended: map[run]time.Time{}}
	spans := make([]Span, len(lines))
	for i := range lines {
		spans[i] = s.of(&lines[i])
	}
	return spans
}

// run is a step's, or its undo's.
type run struct {
	step string
	kind events.Kind
}

// begun is an attempt.
type begun struct{ at, due time.Time }

// spanning reads a timeline.
type spanning struct {
	steps   []spanStep // of the plan
	first   time.Time  // when the task was started
	resumed time.Time  // when its last hold ended
	started map[events.RequestRef]begun
	ended   map[run]time.Time
	// free is when an undo could begin: undos are one at a time, after all that ran.
	free time.Time
}

// spanStep is what a plan says of a step's beginning.
type spanStep struct {
	ID    string `json:"id"`
	Needs []int  `json:"needs"`
}

// ofEvent is what spans read of an event's data.
type ofEvent struct {
	Due  time.Time `json:"due"`
	Plan struct {
		Steps []spanStep `json:"steps"`
	} `json:"plan"`
}

func (s *spanning) of(l *events.Line) (span Span) {
	at, err := time.Parse(time.RFC3339, l.At)
	if err != nil {
		return span
	}
	var data ofEvent
	if err := json.Unmarshal(l.Data, &data); err != nil {
		return span // it is shown as it is; there is nothing to tell of its time
	}
	of, verb, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(l.Type, "waybill."), ".v1"), ".")
	r := run{l.Step, events.Do}
	if of == "undo" {
		r.kind = events.Undo
	}
	ref := events.RequestRef{Step: l.Step, Kind: r.kind, Attempt: l.Attempt}
	switch {
	case of == "task" && verb == "received":
		s.steps = data.Plan.Steps
	case of == "task" && verb == "started":
		s.first = at
	case of == "task" && verb == "resumed":
		s.free, s.resumed = at, at
	case of == "task" && verb == "undoing":
		s.free = at
	case l.Step == "":
	case verb == "started":
		s.started[ref] = begun{at, data.Due}
		span.Wait = s.waited(r, at)
	case verb == "completed" || verb == "failed" || verb == "rejected" || verb == "expired":
		if a, ok := s.started[ref]; ok {
			work := at.Sub(a.at)
			span.Work = &work
			if !a.due.IsZero() {
				left := a.due.Sub(at)
				span.Left = &left
			}
		}
		s.ended[r], s.free = at, at
	case verb == "skipped":
		s.ended[r] = at
	}
	return span
}

// waited is how long after it could an attempt starts: in a hold none can.
func (s *spanning) waited(r run, at time.Time) *time.Duration {
	since, again := s.ended[r]
	switch {
	case again:
	case r.kind == events.Undo:
		if since = s.free; since.IsZero() {
			return nil
		}
	default:
		if since = s.first; since.IsZero() {
			return nil
		}
		for i := range s.steps {
			if s.steps[i].ID != r.step {
				continue
			}
			for _, n := range s.steps[i].Needs {
				if n >= 0 && n < len(s.steps) {
					since = later(since, s.ended[run{s.steps[n].ID, events.Do}])
				}
			}
		}
	}
	wait := at.Sub(later(since, s.resumed))
	return &wait
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

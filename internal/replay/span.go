package replay

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Span holds durations that an event of a timeline shows: how long the agent had the attempt that the event ends, how
// long the attempt that it starts had waited, and how much of the attempt's time was left. nil: the event doesn't show
// it.
type Span struct {
	Work *time.Duration
	Wait *time.Duration // since the step could start, or since its last attempt or a hold ended
	Left *time.Duration // negative: the complete-by had passed
}

// Spans returns the Span of each line of a task's timeline. If the timeline doesn't begin with the task's first event,
// some are unknown.
func Spans(lines []events.Line) []Span {
	s := &spanning{started: map[events.RequestRef]begun{}, ended: map[run]time.Time{}}
	spans := make([]Span, len(lines))
	for i := range lines {
		spans[i] = s.of(&lines[i])
	}
	return spans
}

// run names the run of a step, or of its undo.
type run struct {
	step string
	kind events.Kind
}

// begun is when an attempt began, and its complete-by.
type begun struct{ at, due time.Time }

// spanning is the state while a timeline is read.
type spanning struct {
	steps   []spanStep // of the plan
	first   time.Time  // when the task was started
	resumed time.Time  // when its last hold ended
	started map[events.RequestRef]begun
	ended   map[run]time.Time
	// free is when an undo could begin. Undos run one at a time, after all running attempts have ended.
	free time.Time
}

// spanStep is the part of a plan's step that determines when the step can start.
type spanStep struct {
	ID    string `json:"id"`
	Needs []int  `json:"needs"`
}

// ofEvent holds the members of an event's data that spans need.
type ofEvent struct {
	Due        time.Time `json:"due"`
	CompleteBy time.Time `json:"complete_by"` // of an attempt with a heartbeat
	Plan       struct {
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
		return span // an event without such members has no durations
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
		if !data.CompleteBy.IsZero() {
			s.started[ref] = begun{at, data.CompleteBy}
		}
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

// waited returns how long a run's attempt, which starts at an instant, has waited since it could start. No attempt can
// start during a hold.
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

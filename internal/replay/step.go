package replay

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// PoisonType is the type of what stands for a record that is no event. No event of the log has such a type.
const PoisonType = "poison"

// Step is one event of a task, and what it made of it. One of PoisonType is a record that is no event.
type Step struct {
	events.Line
	Changes []Change `json:"changes"`
	// Fault says why the event can't be folded. The state then is that before it,
	// and so is that of every event after it.
	Fault string `json:"fault,omitempty"`
	// Task is the state after the event, if it was asked for.
	Task *events.TaskView `json:"task,omitempty"`
}

// Until says where a replay ends: after a seq, after an offset, or with the last
// event at an instant. The zero value is the end of the log.
type Until struct {
	Seq    uint64
	Offset *int64
	At     time.Time
}

// ParseUntil reads SEQ, offset:N, a duration back from now, or an instant as in RFC 3339.
func ParseUntil(s string, now time.Time) (u Until, err error) {
	if offset, is := strings.CutPrefix(s, "offset:"); is {
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil || n < 0 {
			return u, fmt.Errorf("%q is no offset; offset:42 is one", s)
		}
		return Until{Offset: &n}, nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && n > 0 {
		return Until{Seq: n}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return Until{At: now.Add(-d)}, nil
	}
	if u.At, err = events.ParseInstant(s); err != nil {
		return Until{}, fmt.Errorf("%q is no seq (7), offset (offset:42), duration back from now (15m) or instant (2026-01-31T12:00:00Z)", s)
	}
	return u, nil
}

// covers reports whether the event of a line is before the end.
func (u Until) covers(l *events.Line, offset int64, at time.Time) bool {
	switch {
	case u.Seq > 0:
		return l.Seq <= u.Seq
	case u.Offset != nil:
		return offset <= *u.Offset
	case !u.At.IsZero():
		return !at.After(u.At)
	}
	return true
}

// Stepper folds the events of one task, one by one. One goroutine uses it.
type Stepper struct {
	until  Until
	states bool
	seq    uint64 // of the last record that has one
	task   *events.Task
	shown  *jsonState
	fault  string
}

// NewStepper begins before the first event of a task. states: each step has the
// whole state after it.
func NewStepper(until Until, states bool) *Stepper { return &Stepper{until: until, states: states} }

// Add folds the next event of the task; nil if it is past the end that was asked
// for. An error: the record is no event at all, and the step is of PoisonType.
func (s *Stepper) Add(r *events.Record) (*Step, error) {
	l, none := events.TimelineLine(r)
	if none != nil {
		l = PoisonLine(r)
	}
	return s.add(r, l, none), none
}

// Lost takes what of the task can't be read, for a reason; nil if it is past the end that was asked for.
func (s *Stepper) Lost(partition int32, offset int64, why error) *Step {
	return s.add(&events.Record{Partition: partition, Offset: offset}, LostLine(partition, offset), why)
}

// add takes the next record; none says why it is no event.
func (s *Stepper) add(r *events.Record, l events.Line, none error) *Step {
	at, err := time.Parse(events.TimeLayout, l.At)
	if err != nil {
		at = r.Time
	}
	place := l // among the events; what has no seq of its own follows the event before
	if place.Seq == 0 {
		place.Seq = s.seq + 1
	} else {
		s.seq = l.Seq
	}
	if !s.until.covers(&place, r.Offset, at) {
		return nil
	}
	step := &Step{Line: l, Changes: []Change{}}
	switch {
	case none != nil:
		step.Fault = none.Error()
		s.fault = cmp.Or(s.fault, step.Fault)
	case s.fault == "":
		s.fold(r, step)
	default:
		step.Fault = "not folded: an event before it can't be"
	}
	if s.states {
		step.Task = s.View()
	}
	return step
}

// PoisonLine stands in a timeline for a record that is no event: what Kafka knows of it, and its seq if
// its headers have one.
func PoisonLine(r *events.Record) events.Line {
	_, seq, _ := events.EventName(r) // zero where they don't
	return events.Line{Seq: seq, Type: PoisonType, At: r.Time.UTC().Format(events.TimeLayout), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

// LostLine stands in a timeline for what can't be read from an offset on.
func LostLine(partition int32, offset int64) events.Line {
	return events.Line{Type: PoisonType, Partition: partition, Offset: strconv.FormatInt(offset, 10)}
}

func (s *Stepper) fold(r *events.Record, step *Step) {
	var err error
	if s.task, _, err = events.FoldRecord(s.task, r); err != nil {
		s.fault = errors.Unwrap(err).Error() // where it is, the line says
		step.Fault = s.fault
		return
	}
	view := s.task.View(ownerOf(r), r.Partition, r.Offset+1)
	now := newJSONState(&view, s.shown)
	step.Changes = changes(s.shown, now)
	s.shown = now
}

// Task is the state after the last event that was added; nil before the first.
// It is the stepper's own.
func (s *Stepper) Task() *events.Task { return s.task }

// View is Task as it is shown.
func (s *Stepper) View() *events.TaskView {
	if s.shown == nil {
		return nil
	}
	return s.shown.view
}

// ownerOf is who owned the partition when he wrote an event: a task's events say it
// without the claims of their partition.
func ownerOf(r *events.Record) string {
	source, _ := r.Header(events.HeaderSource)
	_, owner, _ := strings.Cut(strings.TrimPrefix(source, strings.TrimSuffix(r.Topic, "events")), "scheduler/")
	return owner
}

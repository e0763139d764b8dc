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

// UnreadableType is the type of a line for an unreadable record. No event of the log has this type.
const UnreadableType = "unreadable"

// Step is one event of a task, and its effect on the task. A Step of UnreadableType is an unreadable record.
type Step struct {
	events.Line
	Changes []Change `json:"changes"`
	// Fault says why the event can't be folded. The state of this and every later Step is then that before the event.
	Fault string `json:"fault,omitempty"`
	// Task is the state after the event, if it was asked for.
	Task *events.TaskView `json:"task,omitempty"`
}

// Until says where a replay ends: after a seq, after an offset, or with the last event up to an instant. The zero value
// means the end of the log.
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

// Stepper folds the events of one task one at a time. One goroutine uses it.
type Stepper struct {
	until  Until
	states bool
	seq    uint64 // of the last record that has one
	fold   events.Fold
	shown  *jsonState
	hidden *skipped // the last record that was skipped; nil: shown is that of the state
}

// skipped is what a state shows of the record that led to it.
type skipped struct {
	owner     string
	partition int32
	next      int64
}

// NewStepper creates a Stepper before the first event of a task. If states is true, each Step has the whole state after
// it.
func NewStepper(until Until, states bool) *Stepper { return &Stepper{until: until, states: states} }

// Add folds the next event of the task. It returns nil if the event is past the end (Until). An error means that the
// record is unreadable; the Step then has UnreadableType.
func (s *Stepper) Add(r *events.Record) (*Step, error) {
	l, none := events.TimelineLine(r)
	if none != nil {
		l = UnreadableLine(r)
	}
	return s.add(r, l, none), none
}

// Skip folds the next record of the task without a Step: a task can have many events, and their differences take much
// longer than their fold. lost says why the record can't be read; nil: it can.
func (s *Stepper) Skip(r *events.Record, lost error) {
	if _, seq, err := events.EventName(r); err == nil {
		s.seq = seq
	}
	if lost != nil {
		s.fold.Err = cmp.Or(s.fold.Err, lost)
	} else if _, err := s.fold.Add(r); err == nil {
		s.hidden = &skipped{ownerOf(r), r.Partition, r.Offset + 1}
	}
}

// Clone returns a Stepper that goes on from the same event. Both share what neither changes. It writes to s, so only
// the owner of s may call it.
func (s *Stepper) Clone() *Stepper {
	c := *s
	c.fold.Task = s.fold.Task.Clone()
	return &c
}

// showHidden has the state that skipped events led to.
func (s *Stepper) showHidden() {
	if s.hidden != nil {
		view := s.fold.Task.View(s.hidden.owner, s.hidden.partition, s.hidden.next)
		s.shown, s.hidden = newJSONState(&view, nil), nil
	}
}

// Lost adds a lost part of the log, with the reason. It returns nil if the part is past the end (Until).
func (s *Stepper) Lost(partition int32, offset int64, why error) *Step {
	return s.add(&events.Record{Partition: partition, Offset: offset}, LostLine(partition, offset), why)
}

// add adds the next record. none says why it is unreadable; nil: it is an event.
func (s *Stepper) add(r *events.Record, l events.Line, none error) *Step {
	at, err := time.Parse(events.TimeLayout, l.At)
	if err != nil {
		at = r.Time
	}
	place := l // position among the events; a record without a seq follows the previous event
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
		s.fold.Err = cmp.Or(s.fold.Err, none)
	case s.fold.Err == nil:
		s.apply(r, step)
	default:
		step.Fault = "not folded: an event before it can't be"
	}
	if s.states {
		step.Task = s.View()
	}
	return step
}

// UnreadableLine returns the line of an unreadable record in a timeline: its timestamp and position in Kafka, and its
// seq if its headers have one.
func UnreadableLine(r *events.Record) events.Line {
	_, seq, _ := events.EventName(r) // 0 if they have none
	return events.Line{Seq: seq, Type: UnreadableType, At: r.Time.UTC().Format(events.TimeLayout), Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10)}
}

// LostLine returns the line of a lost part in a timeline, from an offset on.
func LostLine(partition int32, offset int64) events.Line {
	return events.Line{Type: UnreadableType, Partition: partition, Offset: strconv.FormatInt(offset, 10)}
}

func (s *Stepper) apply(r *events.Record, step *Step) {
	s.showHidden()
	if _, err := s.fold.Add(r); err != nil {
		step.Fault = errors.Unwrap(err).Error() // the line has the position
		return
	}
	view := s.fold.Task.View(ownerOf(r), r.Partition, r.Offset+1)
	now := newJSONState(&view, s.shown)
	step.Changes = changes(s.shown, now)
	s.shown = now
}

// Err returns why nothing more can be folded; nil: it can.
func (s *Stepper) Err() error { return s.fold.Err }

// Task returns the state after the last event that was added; nil before the first. It belongs to the Stepper.
func (s *Stepper) Task() *events.Task { return s.fold.Task }

// View returns Task in JSON form.
func (s *Stepper) View() *events.TaskView {
	s.showHidden()
	if s.shown == nil {
		return nil
	}
	return s.shown.view
}

// ownerOf returns the owner that wrote an event, from its headers. So the partition's claims aren't needed.
func ownerOf(r *events.Record) string {
	source, _ := r.Header(events.HeaderSource)
	_, owner, _ := strings.Cut(strings.TrimPrefix(source, strings.TrimSuffix(r.Topic, "events")), "scheduler/")
	return owner
}

package events

import (
	"bytes"
	"fmt"
	"time"
)

// SummaryReader reads of events what Summary.Evolve needs, and no more, at about a fifth of what
// DecodeEvent takes. It belongs to one goroutine. The zero value is good.
type SummaryReader struct {
	event    Event
	claimed  PartitionClaimed
	received TaskReceived
	undoing  TaskUndoing
	held     TaskHeld
	skipped  RunSkipped
	released RunReleased
	started  AttemptStarted
	other    attempt
	errored  RunErrored
}

// attempt has a fact for each of the events of an attempt that say nothing but which one.
type attempt struct {
	completed AttemptCompleted
	failed    AttemptFailed
	rejected  AttemptRejected
	expired   AttemptExpired
	waiting   AttemptWaiting
}

// wanted are the members of an event that a summary needs.
type wanted int

const (
	wantAt wanted = iota
	wantEpoch
	wantDue
	wantStep
	wantDeferred
	wantAttempt
	wantAgent
	wantAs
	wantEnding
	wantError
	wantOwner
	wantWorkflow
	wantVersion
	wantPriority
	wantLabels
	wantCompleteBy
	wantPlan
	wantNothing // none of them
)

// want is the member of a name.
func want(name []byte) wanted {
	switch string(name) {
	case "at":
		return wantAt
	case "epoch":
		return wantEpoch
	case "due":
		return wantDue
	case "step":
		return wantStep
	case "deferred":
		return wantDeferred
	case "attempt":
		return wantAttempt
	case "agent":
		return wantAgent
	case "as":
		return wantAs
	case "ending":
		return wantEnding
	case "error":
		return wantError
	case "owner":
		return wantOwner
	case "workflow":
		return wantWorkflow
	case "version":
		return wantVersion
	case "priority":
		return wantPriority
	case "labels":
		return wantLabels
	case "complete_by":
		return wantCompleteBy
	case "plan":
		return wantPlan
	}
	return wantNothing
}

// DecodeSummaryEvent reads a record of the events topic for Summary.Evolve: seq, at, epoch, due, and of the fact what a
// Summary has. The event, and all text in it, is good until the next call or until
// the record's value changes. The error wraps ErrUnknownType, or says what is malformed.
//
// What comes after the last member that is wanted isn't looked at: outputs, inputs and
// the details of errors stand there, as Waybill writes them.
func (d *SummaryReader) DecodeSummaryEvent(r *Record) (*Event, error) {
	ceType, seq, err := EventName(r)
	if err != nil {
		return nil, err
	}
	return d.DecodeNamed(r, ceType, seq)
}

// DecodeNamed is DecodeSummaryEvent for who has asked EventName.
func (d *SummaryReader) DecodeNamed(r *Record, ceType string, seq uint64) (*Event, error) {
	id := r.header(HeaderID)
	s, ok := shapes[ceType]
	if !ok {
		return nil, fmt.Errorf("%w %q (ce_id %q)", ErrUnknownType, ceType, id)
	}
	at := bytes.LastIndexByte(id, '/')
	if at < 0 || seq == 0 {
		return nil, fmt.Errorf("event %s: ce_id %q: not <task>/<seq>", ceType, id)
	}
	var m members
	if err := m.pick(r.Value, s.last); err != nil {
		return nil, fmt.Errorf("event %s %q: %w", ceType, id, err)
	}
	d.event = Event{Seq: seq, At: m.instant(wantAt), Epoch: uint64(m.number(wantEpoch)), Due: m.instant(wantDue), Fact: d.fact(s, &m)}
	if m.err != nil {
		return nil, fmt.Errorf("event %s %q: %w", ceType, id, m.err)
	}
	if s.of == wantOwner {
		return &d.event, nil
	}
	if !bytes.Equal(r.Key, id[:at]) {
		return nil, fmt.Errorf("event %s: key %q is not the task of ce_id %q", ceType, r.Key, id)
	}
	d.event.Task = aliased(r.Key)
	return &d.event, nil
}

// shape is how a type is read.
type shape struct {
	fact Fact // of the type, empty
	kind Kind
	of   wanted // wantOwner: of a partition, not of a task
	last wanted // of the members that are wanted, as they are written
}

// shapes are those of all types that this build can read.
var shapes = map[string]*shape{}

func init() {
	for name, kind := range facts {
		shapes[name] = shapeOf(kind.make())
	}
}

func shapeOf(f Fact) *shape {
	s := &shape{fact: f, of: wantNothing, last: wantNothing}
	switch f := f.(type) {
	case *PartitionClaimed:
		s.of, s.last = wantOwner, wantOwner
	case *TaskReceived:
		s.last = wantPlan
	case *RunSkipped:
		s.last = wantStep
	case *AttemptStarted:
		s.kind, s.last = f.Kind, wantAgent
	case *AttemptCompleted:
		s.kind, s.last = f.Kind, wantAttempt
	case *AttemptFailed:
		s.kind, s.last = f.Kind, wantAttempt
	case *AttemptRejected:
		s.kind, s.last = f.Kind, wantAttempt
	case *AttemptExpired:
		s.kind, s.last = f.Kind, wantAttempt
	case *AttemptWaiting:
		s.kind, s.last = f.Kind, wantAttempt
	case *RunErrored:
		s.kind, s.last = f.Kind, wantStep
	case *RunReleased:
		s.last = wantAs
	}
	return s
}

// fact reads what is wanted of a fact.
func (d *SummaryReader) fact(s *shape, m *members) Fact {
	step, number := m.text(wantStep), int(m.number(wantAttempt))
	switch s.fact.(type) {
	case *PartitionClaimed:
		d.claimed = PartitionClaimed{Owner: m.text(wantOwner)}
		return &d.claimed
	case *TaskReceived:
		d.received = TaskReceived{Workflow: m.text(wantWorkflow), Version: int(m.number(wantVersion)), Priority: int(m.number(wantPriority)),
			Labels: m.labels(), CompleteBy: m.instant(wantCompleteBy), Plan: m.plan()}
		return &d.received
	case *TaskUndoing:
		d.undoing = TaskUndoing{Ending: known0[TaskState](m.text(wantEnding)), Error: m.error()}
		return &d.undoing
	case *TaskHeld:
		d.held = TaskHeld{Error: m.error()}
		return &d.held
	case *RunSkipped:
		d.skipped = RunSkipped{Step: step}
		return &d.skipped
	case *RunReleased:
		d.released = RunReleased{Step: step, As: known0[StepState](m.text(wantAs))}
		return &d.released
	case *AttemptStarted:
		d.started = AttemptStarted{Kind: s.kind, Step: step, Attempt: number, Agent: m.text(wantAgent)}
		return &d.started
	case *AttemptCompleted:
		d.other.completed = AttemptCompleted{Kind: s.kind, Step: step, Attempt: number}
		return &d.other.completed
	case *AttemptFailed:
		d.other.failed = AttemptFailed{Kind: s.kind, Step: step, Attempt: number, Deferred: m.flag(wantDeferred)}
		return &d.other.failed
	case *AttemptRejected:
		d.other.rejected = AttemptRejected{Kind: s.kind, Step: step, Attempt: number}
		return &d.other.rejected
	case *AttemptExpired:
		d.other.expired = AttemptExpired{Kind: s.kind, Step: step, Attempt: number}
		return &d.other.expired
	case *AttemptWaiting:
		d.other.waiting = AttemptWaiting{Kind: s.kind, Step: step, Attempt: number}
		return &d.other.waiting
	case *RunErrored:
		d.errored = RunErrored{Kind: s.kind, Step: step}
		return &d.errored
	}
	return s.fact // which says nothing but its type
}

// known0 is a word of a closed vocabulary, not aliased where it is one.
func known0[T ~string](s string) T {
	if w, ok := words[s]; ok {
		return T(w)
	}
	return T([]byte(s))
}

// members are the values of the members that are wanted, as they stand; nil: absent, or null.
type members struct {
	values [wantNothing][]byte
	err    error
}

// pick finds the members that are wanted, up to the last one.
func (m *members) pick(data []byte, last wanted) error {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return errNotObject
	}
	if i = skipSpace(data, i+1); i < len(data) && data[i] == '}' {
		return atEnd(data, i+1)
	}
	for {
		nameEnd, err := skipString(data, i)
		if err != nil {
			return err
		}
		w := want(data[i+1 : nameEnd-1])
		if i = skipSpace(data, nameEnd); i >= len(data) || data[i] != ':' {
			return syntax(data, i)
		}
		i = skipSpace(data, i+1)
		end, err := skipValue(data, i, 1)
		if err != nil {
			return err
		}
		if w != wantNothing {
			m.values[w] = nil
			if data[i] != 'n' {
				m.values[w] = data[i:end]
			}
			if w == last {
				return nil
			}
		}
		if i = skipSpace(data, end); i >= len(data) {
			return syntax(data, i)
		}
		switch data[i] {
		case ',':
			i = skipSpace(data, i+1)
		case '}':
			return atEnd(data, i+1)
		default:
			return syntax(data, i)
		}
	}
}

func (m *members) fail(w wanted, what string) {
	if m.err == nil {
		m.err = badValue(wantedNames[w], what)
	}
}

// wantedNames are the names of the members, for errors.
var wantedNames = func() (names [wantNothing]string) {
	for _, n := range []string{"at", "epoch", "due", "step", "deferred", "attempt", "agent", "as", "ending", "error", "owner", "workflow", "version",
		"priority", "labels", "complete_by", "plan"} {
		names[want([]byte(n))] = n
	}
	return names
}()

// text may alias the record.
func (m *members) text(w wanted) string {
	val := m.values[w]
	if val == nil {
		return ""
	}
	if val[0] != '"' {
		m.fail(w, "not a string")
		return ""
	}
	return aliased(unquoteBytes(val))
}

func (m *members) number(w wanted) int64 {
	val := m.values[w]
	if val == nil {
		return 0
	}
	n, ok := wholeNumber(val)
	if !ok {
		m.fail(w, "not a whole number")
	}
	return n
}

func (m *members) flag(w wanted) bool {
	val := m.values[w]
	if s := aliased(val); val != nil && s != "true" && s != "false" {
		m.fail(w, "neither true nor false")
	}
	return val != nil && val[0] == 't'
}

func (m *members) instant(w wanted) time.Time {
	if m.values[w] == nil {
		return time.Time{}
	}
	t, err := readInstant(bytesOf(m.text(w)))
	if err != nil {
		m.fail(w, err.Error())
	}
	return t
}

func (m *members) error() *Error {
	val := m.values[wantError]
	if val == nil {
		return nil
	}
	e := &Error{}
	if err := decodeObject(val, e); err != nil {
		m.fail(wantError, err.Error())
	}
	return e
}

func (m *members) plan() *Plan {
	val := m.values[wantPlan]
	if val == nil {
		m.fail(wantPlan, "missing")
		return nil
	}
	p, err := decodePlan(val)
	if err != nil {
		m.fail(wantPlan, err.Error())
	}
	return p
}

// labels are copied out of the record.
func (m *members) labels() map[string]string {
	val := m.values[wantLabels]
	if val == nil {
		return nil
	}
	c := codec{decoding: true}
	c.obj.members = make([]member, 0, 4)
	labels := map[string]string{}
	err := c.obj.scanPart(val, 0)
	for i := range c.obj.members {
		v := c.obj.value(i)
		if v[0] != '"' {
			m.fail(wantLabels, "not an object of strings")
			return nil
		}
		labels[string(c.obj.name(i))] = unquote(v)
	}
	if err != nil {
		m.fail(wantLabels, err.Error())
	}
	return labels
}

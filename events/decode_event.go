package events

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ErrUnknownType is wrapped by DecodeEvent for a type, or a version of a type, that this build
// doesn't know. A reader must stop the task there, since the event may have changed it.
var ErrUnknownType = errors.New("unknown event type")

// DecodeEvent reads a record of the events topic. The event doesn't alias the record.
// The error wraps ErrUnknownType, or says what is malformed.
func DecodeEvent(r *Record) (*Event, error) {
	kind, err := factKindOf(r)
	if err != nil {
		return nil, err
	}
	e := &Event{Fact: kind.newFact()}
	c := codecs.Get().(*codec)
	read := c.readInOrder(r.Value, e)
	c.release()
	if read {
		return e.setIdentity(r, false)
	}
	e = &Event{Fact: kind.newFact()}
	if err := decodeObject(r.Value, e); err != nil {
		return nil, decodeError(r, err)
	}
	return e.setIdentity(r, false)
}

// EventReader decodes events one after another into the same memory. It caches names, rules and plans, since most
// repeat. The event, its fact and its policy are valid until the next Decode. Task, Prev and Sum alias the record:
// callers must copy what they retain. The zero value is ready. It is for one goroutine.
type EventReader struct {
	// AliasJSON is true if raw JSON aliases the record too. It is for readers that retain none.
	AliasJSON bool

	event     Event
	policy    Policy
	facts     []Fact // by factKind.number
	codec     codec
	hasher    Hasher
	hash      string // of the event's record, if CheckSum computed it
	interner  interner
	lastRules []cachedRule
	kinds     kindCache
}

// Hash returns the Hash of the last record that Decode read.
func (d *EventReader) Hash(r *Record) string {
	if d.hash != "" {
		return d.hash
	}
	return d.hasher.Hash(d.event.Fact.Type(), r.Value)
}

// CheckSum is Event.CheckSum of the last record that Decode read.
func (d *EventReader) CheckSum(r *Record) (err error) {
	d.hash, err = d.event.checkSum(r, &d.hasher)
	return err
}

// Decode is DecodeEvent into the reader's memory.
func (d *EventReader) Decode(r *Record) (*Event, error) {
	d.hash = ""
	kind, err := d.kinds.get(r)
	if err != nil {
		return nil, err
	}
	if d.facts == nil {
		d.facts, d.lastRules = make([]Fact, len(facts)), make([]cachedRule, len(facts))
		d.codec.inOrder.interner = &d.interner
	}
	fact := d.facts[kind.number]
	if fact == nil {
		fact = kind.newFact()
		d.facts[kind.number] = fact
	}
	kind.reset(fact)
	d.event = Event{Fact: fact}
	d.codec.reusedPolicy, d.codec.aliasJSON, d.codec.inOrder.lastRule = &d.policy, d.AliasJSON, &d.lastRules[kind.number]
	if !d.codec.readInOrder(r.Value, &d.event) {
		kind.reset(fact)
		d.event = Event{Fact: fact}
		c := codecs.Get().(*codec)
		c.reusedPolicy, c.aliasJSON = &d.policy, d.AliasJSON
		if err := c.decode(r.Value, &d.event, 0); err != nil {
			return nil, decodeError(r, err)
		}
	}
	if f, first := fact.(*TaskReceived); first {
		d.codec.inOrder.lastPlan = f.Plan
	}
	return d.event.setIdentity(r, true)
}

func factKindOf(r *Record) (*factKind, error) {
	ceType := r.header(HeaderType)
	kind, ok := facts[string(ceType)]
	if !ok {
		return nil, fmt.Errorf("%w %q (ce_id %q)", ErrUnknownType, ceType, r.header(HeaderID))
	}
	return kind, nil
}

// decodeError adds the event to an error.
func decodeError(r *Record, err error) error {
	return fmt.Errorf("event %s %q: %w", r.header(HeaderType), r.header(HeaderID), err)
}

// setIdentity sets the task and the seq from the headers and the key. The task's id aliases the key if alias is true,
// else it is a copy.
func (e *Event) setIdentity(r *Record, alias bool) (*Event, error) {
	id := r.header(HeaderID)
	at := bytes.LastIndexByte(id, '/')
	n, ok := parseNumber(id[at+1:])
	if !ok {
		u, err := strconv.ParseUint(string(id[at+1:]), 10, 63)
		n, ok = int64(u), err == nil
	}
	if at < 0 || !ok || n == 0 {
		return nil, fmt.Errorf("event %s: ce_id %q: not <task>/<seq>", r.header(HeaderType), id)
	}
	e.Seq = uint64(n)
	if OfPartition(e.Fact) {
		return e, nil
	}
	if !bytes.Equal(r.Key, id[:at]) {
		return nil, fmt.Errorf("event %s: key %q is not the task of ce_id %q", r.header(HeaderType), r.Key, id)
	}
	if e.Task = aliasString(r.Key); !alias {
		e.Task = string(r.Key)
	}
	return e, nil
}

// DecodeEnvelope reads the members that every type of event has: at, cause and epoch. A reader that stops a task at an
// event of unknown type needs them for the partition's state. The fact is opaque.
func DecodeEnvelope(r *Record) (*Event, error) {
	ceType, _ := r.Header(HeaderType)
	id, _ := r.Header(HeaderID)
	e := &Event{Task: string(r.Key), Fact: opaque(ceType)}
	if err := decodeObject(r.Value, e); err != nil {
		return nil, fmt.Errorf("event %s %q: %w", ceType, id, err)
	}
	return e, nil
}

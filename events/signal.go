package events

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// TypeSignal is the ce_type of a record of waybill.signals.
const TypeSignal = "waybill.signal.v1"

// MaxSignalBytes bounds the value of a signal's record.
const MaxSignalBytes = 64 << 10

// Signal is a message to a task. A step that waits for a signal of this name completes with it. DecodeInput checks it
// against the bounds that its fields name.
type Signal struct {
	Task string // see CheckTaskID
	Name string // 1 to MaxNameBytes
	// ID identifies the signal among those of its task and name. A repeated one has no effect. If the record's value has
	// none, DecodeInput takes the record's ce_id. If it has none either, it takes the position where the record was
	// written first: "signals/<partition>/<offset>". At most MaxNameBytes.
	ID      string
	Data    json.RawMessage // any JSON; empty: null
	By      string          // who sent it, by a console's token or by the writer of the record; at most MaxNameBytes
	Claimed string          // unverified, as By.Claimed; at most MaxNameBytes
}

func (*Signal) input() {}
func (s *Signal) fields(c *codec) {
	c.str("task", &s.Task)
	c.str("name", &s.Name)
	c.str("id", &s.ID)
	c.str("by", &s.By)
	c.str("by_claimed", &s.Claimed)
	c.raw("data", &s.Data)
}

// Check returns why a signal that this process made can't be encoded, as Submission.Check does.
func (s *Signal) Check() error {
	return checkUTF8(utf8Text{"task", s.Task}, utf8Text{"name", s.Name}, utf8Text{"id", s.ID}, utf8Text{"by", s.By}, utf8Text{"by_claimed", s.Claimed})
}

// Record makes the signal's record, for waybill.signals. Its ce_id is the signal's id.
func (s *Signal) Record(ns Namespace, source string) Record {
	return Record{Topic: ns.Inbox(Signals), Partition: -1, Key: []byte(s.Task), Value: encodeObject(s),
		Headers: CloudHeaders(TypeSignal, source, s.ID)}
}

// signalBody reads a signal and finds unknown members, as submissionBody.
type signalBody struct {
	of      *Signal
	unknown string
}

func (s *signalBody) fields(c *codec) {
	s.of.fields(c)
	for i := range c.obj.members {
		switch name := c.obj.name(i); string(name) {
		case "task", "name", "id", "data", "by", "by_claimed":
		default:
			if s.unknown == "" && !bytes.HasPrefix(name, extension) {
				s.unknown = string(name)
			}
		}
	}
}

// decodeSignal accepts the three forms: a CloudEvent in binary mode, in structured mode, and the bare object.
func decodeSignal(r *Record) (string, Input, error) {
	if err := checkRecordType(r, TypeSignal); err != nil {
		return "", nil, err
	}
	s, data, id := &Signal{}, r.Value, string(r.header(HeaderSignal))
	if id == "" {
		id = string(r.header(HeaderID))
	}
	if bytes.HasPrefix(r.header(HeaderContentType), []byte("application/cloudevents+json")) {
		var ev structuredEvent
		if err := decodeUntrusted(r.Value, &ev, -1); err != nil {
			return "", nil, badJSON(err)
		}
		if err := checkType(ev.Type, TypeSignal); err != nil {
			return "", nil, err
		}
		var err error
		if data, err = ev.body(); err != nil {
			return "", nil, err
		}
		id = ev.ID
	}
	body := signalBody{of: s}
	if err := decodeUntrusted(data, &body, 0); err != nil {
		return "", nil, badJSON(err)
	}
	if body.unknown != "" {
		return "", nil, unusable(ReasonBadField, "no member %q: a signal has task, name, id, data and by; names of your own begin with %q", body.unknown, extensionPrefix)
	}
	if s.ID == "" {
		s.ID = id
	}
	if s.ID == "" {
		s.ID = originOf(r)
	}
	if err := CheckTaskID(s.Task); err != nil {
		return "", nil, err
	}
	if s.Name == "" {
		return "", nil, unusable(ReasonBadField, "name: missing")
	}
	for _, l := range []boundedText{{"name", s.Name, MaxNameBytes}, {"id", s.ID, MaxNameBytes}, {"by", s.By, MaxNameBytes}, {"by_claimed", s.Claimed, MaxNameBytes}} {
		if err := checkLengths(l); err != nil {
			return "", nil, err
		}
		if !utf8.ValidString(l.text) || bytes.ContainsFunc([]byte(l.text), unicode.IsControl) {
			return "", nil, unusable(ReasonBadField, "%s: holds a control character or no UTF-8", l.name)
		}
	}
	return s.Task, s, nil
}

// originOf returns the position where a record of the inbox was written first: a forwarded record names it.
func originOf(r *Record) string {
	if hop := r.header(HeaderHop); len(hop) > 0 {
		return Signals.String() + "/" + string(hop)
	}
	return Cause{Signals, r.Partition, r.Offset}.String()
}

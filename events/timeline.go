package events

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Line is one line of a task's timeline: one event as it is in the log.
type Line struct {
	Task      string          `json:"task,omitempty" jsonschema:"The task's id. Absent in answers about one task."`
	Seq       uint64          `json:"seq" jsonschema:"The number of the event in its task, from 1."`
	Type      string          `json:"type" jsonschema:"The type of the event."`
	At        string          `json:"at" format:"date-time" jsonschema:"When the event was decided."`
	Step      string          `json:"step,omitempty" jsonschema:"The step that the event is about. Absent: it is about the task."`
	Attempt   int             `json:"attempt,omitempty" jsonschema:"The attempt that the event is about. Absent: none."`
	Partition int32           `json:"partition" jsonschema:"The partition of waybill.events."`
	Offset    string          `json:"offset" jsonschema:"The offset of the event, as a string."`
	Data      json.RawMessage `json:"data" jsonschema:"The value of the event: an object, by the schema of its type."`
}

// lineFields are the members of an event that a line shows separately.
type lineFields struct {
	at, step string
	attempt  int
}

func (l *lineFields) fields(c *codec) {
	c.str("at", &l.at)
	c.str("step", &l.step)
	c.int("attempt", &l.attempt)
}

// EventName returns the type and the seq of a record of the events topic, from its headers. The type may be unknown to
// this build.
func EventName(r *Record) (ceType string, seq uint64, err error) {
	id := r.header(HeaderID)
	seq, err = strconv.ParseUint(string(id[bytes.LastIndexByte(id, '/')+1:]), 10, 63)
	if err != nil {
		return "", 0, unusable(ReasonBadHeader, "%s %q: not <task>/<seq>", HeaderID, id)
	}
	t := r.header(HeaderType)
	if kind, known := facts[string(t)]; known {
		return kind.name, seq, nil
	}
	return string(t), seq, nil
}

// TimelineLine makes the line of a record of the events topic. It reads types that are unknown to this build too, so
// that a timeline shows events that can't be folded.
func TimelineLine(r *Record) (Line, error) {
	ceType, seq, err := EventName(r)
	if err != nil {
		return Line{}, err
	}
	var f lineFields
	if err := decodeObject(r.Value, &f); err != nil {
		return Line{}, badJSON(err)
	}
	return Line{Seq: seq, Type: ceType, At: f.at, Step: f.step, Attempt: f.attempt,
		Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Data: r.Value}, nil
}

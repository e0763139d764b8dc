package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/jsonscan"
	"github.com/waybill-run/waybill/workflow"
)

// Program is a compiled intake. It is immutable and safe for concurrent use.
type Program struct {
	Definition *Definition

	ns     events.Namespace
	source string // ce_source of what it writes

	when     *workflow.Condition // nil: all records
	id       *workflow.Template  // of the task, or of the signal; nil: a signal's default
	input    *workflow.Template  // or the data
	labels   *workflow.Texts
	priority *workflow.Template // nil: 0
	task     *workflow.Template // of a signal
	name     *workflow.Template
}

// Result is what a record leads to.
type Result struct {
	// Record is a submission, a signal or a dead letter; without a topic the record is skipped.
	Record events.Record
	// Reason is that of a dead letter; empty: it is none.
	Reason events.Reason
}

// Skipped reports whether the condition of the intake left the record out.
func (r *Result) Skipped() bool { return r.Record.Topic == "" }

// Map maps a record of the intake's topic. topicID is the id of the topic. avro has the value of a record of the format
// avro, as JSON; decodeErr, if it isn't nil, says why there is none.
func (p *Program) Map(r *events.Record, topicID string, avro json.RawMessage, decodeErr *events.Unusable) Result {
	ref := &events.IntakeRef{Name: p.Definition.Name, Topic: r.Topic, TopicID: topicID, Partition: r.Partition, Offset: r.Offset}
	out, err := p.mapped(r, ref, avro, decodeErr)
	if err == nil {
		return Result{Record: out}
	}
	u, is := errors.AsType[*events.Unusable](err)
	if !is {
		u = &events.Unusable{Reason: events.ReasonUnmappable, Detail: err.Error()}
	}
	return Result{Record: events.IntakeDeadletter(p.ns, p.source, r, ref, u), Reason: u.Reason}
}

// Deadletter returns the dead letter of a record that the cluster refused in the form that Map gave it.
func (p *Program) Deadletter(r *events.Record, topicID string, why *events.Unusable) events.Record {
	ref := &events.IntakeRef{Name: p.Definition.Name, Topic: r.Topic, TopicID: topicID, Partition: r.Partition, Offset: r.Offset}
	return events.IntakeDeadletter(p.ns, p.source, r, ref, why)
}

func (p *Program) mapped(r *events.Record, ref *events.IntakeRef, avro json.RawMessage, decodeErr *events.Unusable) (out events.Record, err error) {
	if decodeErr != nil {
		return out, decodeErr
	}
	value, headers, err := p.value(r, avro)
	if err != nil {
		return out, err
	}
	values := valuesOf(r, value, headers)
	if p.when != nil {
		if holds, err := p.when.Holds(values); err != nil || !holds {
			return out, err
		}
	}
	if p.Definition.Submit != nil {
		return p.submission(r, ref, values)
	}
	return p.signal(r, ref, values)
}

// value returns the value of a record as JSON, and its headers as an object.
func (p *Program) value(r *events.Record, avro json.RawMessage) (value, headers json.RawMessage, err error) {
	switch p.Definition.Format {
	case CloudEvents:
		return cloudEvent(r)
	case Avro:
		return avro, events.HeadersJSON(r.Headers), nil
	case JSON:
	}
	if len(r.Value) > 0 { // the value of a deletion is null
		if err := events.CheckJSON(r.Value); err != nil {
			return nil, nil, &events.Unusable{Reason: events.ReasonBadJSON, Detail: err.Error()}
		}
	}
	return r.Value, events.HeadersJSON(r.Headers), nil
}

func valuesOf(r *events.Record, value, headers json.RawMessage) []workflow.Value {
	key := json.RawMessage("null")
	if r.Key != nil && utf8.Valid(r.Key) {
		key = jsonscan.AppendString(nil, string(r.Key))
	}
	return []workflow.Value{{JSON: value}, {JSON: key}, {JSON: headers}, {JSON: jsonscan.AppendString(nil, r.Topic)},
		{JSON: strconv.AppendInt(nil, int64(r.Partition), 10)}, {JSON: strconv.AppendInt(nil, r.Offset, 10)}, {Instant: r.Time.UTC()}}
}

func (p *Program) submission(r *events.Record, ref *events.IntakeRef, values []workflow.Value) (out events.Record, err error) {
	def := p.Definition.Submit
	s := events.Submission{Workflow: def.Workflow, Version: def.Version, ReplyTo: def.ReplyTo, Intake: ref}
	s.Traceparent, _ = r.Header(events.HeaderTraceparent)
	if s.ID, err = required(p.id, values, "submit.id"); err != nil {
		return out, err
	}
	if s.Input, err = p.input.Render(values); err != nil {
		return out, err
	}
	if s.Labels, err = p.labels.Texts(values); err != nil {
		return out, err
	}
	if p.priority != nil {
		text, given, err := p.priority.Text(values)
		if err != nil {
			return out, err
		}
		if given {
			if s.Priority, err = strconv.Atoi(text); err != nil {
				return out, fmt.Errorf("submit.priority: %q is no whole number", text)
			}
		}
	}
	if err := s.Check(); err != nil {
		return out, err
	}
	out = s.Record(p.ns, p.source)
	return out, checkInput(events.Tasks, &out)
}

func (p *Program) signal(r *events.Record, ref *events.IntakeRef, values []workflow.Value) (out events.Record, err error) {
	s := events.Signal{By: "intake " + p.Definition.Name, ID: events.Origin(r)}
	if s.Task, err = required(p.task, values, "signal.task"); err != nil {
		return out, err
	}
	if s.Name, err = required(p.name, values, "signal.name"); err != nil {
		return out, err
	}
	if p.id != nil {
		if s.ID, err = required(p.id, values, "signal.id"); err != nil {
			return out, err
		}
	}
	if s.Data, err = p.input.Render(values); err != nil {
		return out, err
	}
	if err := s.Check(); err != nil {
		return out, err
	}
	out = s.Record(p.ns, p.source)
	out.Headers = append(out.Headers, ref.Header())
	return out, checkInput(events.Signals, &out)
}

// required returns the text of a template that may not give null.
func required(t *workflow.Template, values []workflow.Value, path string) (string, error) {
	text, given, err := t.Text(values)
	if err == nil && (!given || text == "") {
		err = fmt.Errorf("%s: this record gives none", path)
	}
	return text, err
}

// checkInput returns why a scheduler wouldn't accept a record of an inbox.
func checkInput(inbox events.Inbox, r *events.Record) error {
	_, _, err := events.DecodeInput(inbox, r)
	return err
}

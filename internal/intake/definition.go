package intake

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Schema is the JSON Schema of a definition.
//
//go:embed intake.schema.json
var Schema []byte

// The fields of a definition.
var (
	definitionFields = []string{"intake", "topic", "format", "start", "when", "submit", "signal"}
	submitFields     = []string{"workflow", "version", "id", "input", "labels", "priority", "reply_to"}
	signalFields     = []string{"task", "name", "id", "data"}
)

// Format is how the values of a topic are written.
type Format string

// The formats.
const (
	JSON        Format = "json"        // one JSON value
	CloudEvents Format = "cloudevents" // a CloudEvent in binary or structured mode, with JSON data
	Avro        Format = "avro"        // Confluent's wire format: a zero, a schema's id in four bytes, Avro's binary encoding
)

// The words of Definition.Start, besides an instant.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// Definition is an intake.
type Definition struct {
	Name   string `json:"intake"`
	Topic  string `json:"topic"`  // of the same cluster, not of the namespace
	Format Format `json:"format"` // default: json
	// Start is where the intake begins if its group has no position yet: earliest (the default), latest, or an instant as
	// in RFC 3339.
	Start  string  `json:"start"`
	When   string  `json:"when,omitempty"` // an expression; false: the record is skipped
	Submit *Submit `json:"submit,omitempty"`
	Signal *Signal `json:"signal,omitempty"`
}

// Submit says how a record becomes a submission. Texts and trees may contain expressions.
type Submit struct {
	Workflow string            `json:"workflow"`
	Version  int               `json:"version,omitempty"` // 0: the newest
	ID       string            `json:"id"`
	Input    any               `json:"input"` // default: the record's value
	Labels   map[string]string `json:"labels,omitempty"`
	Priority any               `json:"priority,omitempty"`
	ReplyTo  string            `json:"reply_to,omitempty"`
}

// Signal says how a record becomes a signal.
type Signal struct {
	Task string `json:"task"`
	Name string `json:"name"`
	ID   string `json:"id,omitempty"` // default: <topic>/<partition>/<offset>
	Data any    `json:"data"`         // default: the record's value
}

// wholeValue is the default of inputs and data.
const wholeValue = "${ value }"

// variables are what expressions can use, in the order of Program.values.
var variables = []workflow.Variable{
	{Name: "value", Type: workflow.JSONVariable},
	{Name: "key", Type: workflow.JSONVariable},
	{Name: "headers", Type: workflow.TextsVariable},
	{Name: "topic", Type: workflow.TextVariable},
	{Name: "partition", Type: workflow.IntegerVariable},
	{Name: "offset", Type: workflow.IntegerVariable},
	{Name: "timestamp", Type: workflow.InstantVariable},
}

// Parse reads, checks and compiles the YAML of an intake. file only names the source in errors. The error is
// workflow.Errors, with all faults.
func Parse(file string, src []byte, ns events.Namespace) (*Program, error) {
	return compile(workflow.ParseForm(file, src), ns)
}

// ParseStored reads the JSON of an intake, as MarshalJSON of its Definition writes it.
func ParseStored(src []byte, ns events.Namespace) (*Program, error) {
	return compile(workflow.ParseStoredForm(src), ns)
}

func compile(form *workflow.Form, ns events.Namespace) (*Program, error) {
	d := read(form)
	d.check(form, ns)
	p := &Program{Definition: d, ns: ns, source: string(ns) + "intake/" + d.Name}
	x := form.Expressions(variables)
	if d.When != "" {
		p.when = x.Condition(d.When, "when")
	}
	if s := d.Submit; s != nil {
		p.id = x.Template(s.ID, "submit.id")
		p.input = x.Template(s.Input, "submit.input")
		p.labels = x.Labels(s.Labels, "submit.labels")
		if s.Priority != nil {
			p.priority = x.Template(s.Priority, "submit.priority")
		}
	}
	if s := d.Signal; s != nil {
		p.task = x.Template(s.Task, "signal.task")
		p.name = x.Template(s.Name, "signal.name")
		if s.ID != "" {
			p.id = x.Template(s.ID, "signal.id")
		}
		p.input = x.Template(s.Data, "signal.data")
	}
	if err := form.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

func read(form *workflow.Form) *Definition {
	d := &Definition{Format: JSON, Start: StartEarliest}
	form.Fields(definitionFields, func(name string, v workflow.Field) {
		switch name {
		case "intake":
			d.Name = v.Text()
		case "topic":
			d.Topic = v.Text()
		case "format":
			d.Format = Format(v.Text())
		case "start":
			d.Start = v.Text()
		case "when":
			d.When = v.Text()
		case "submit":
			d.Submit = readSubmit(v)
		case "signal":
			d.Signal = readSignal(v)
		}
	})
	return d
}

func readSubmit(v workflow.Field) *Submit {
	s := &Submit{Input: wholeValue}
	v.Fields(submitFields, func(name string, v workflow.Field) {
		switch name {
		case "workflow":
			s.Workflow = v.Text()
		case "version":
			s.Version = v.Integer("write the version of a workflow, or remove the field: then it is the newest")
		case "id":
			s.ID = v.Text()
		case "input":
			s.Input = v.Tree()
		case "labels":
			s.Labels = v.Labels()
		case "priority":
			s.Priority = v.Tree()
		case "reply_to":
			s.ReplyTo = v.Text()
		}
	})
	return s
}

func readSignal(v workflow.Field) *Signal {
	s := &Signal{Data: wholeValue}
	v.Fields(signalFields, func(name string, v workflow.Field) {
		switch name {
		case "task":
			s.Task = v.Text()
		case "name":
			s.Name = v.Text()
		case "id":
			s.ID = v.Text()
		case "data":
			s.Data = v.Tree()
		}
	})
	return s
}

func (d *Definition) check(form *workflow.Form, ns events.Namespace) {
	missing := func(path, text, fix string) {
		if text == "" {
			form.Fault(path, "missing", fix)
		}
	}
	if err := events.CheckDefinitionName(d.Name); err != nil {
		form.Fault("intake", err.Error(), "")
	}
	switch {
	case !events.TopicName(d.Topic):
		form.Fault("topic", fmt.Sprintf("%q can't be a topic's name", d.Topic), "name the topic to read, as in shop.orders")
	case ns.Owns(d.Topic):
		form.Fault("topic", fmt.Sprintf("%s is a topic of the namespace %s", d.Topic, ns), "name a topic of another application")
	}
	if !slices.Contains([]Format{JSON, CloudEvents, Avro}, d.Format) {
		form.Fault("format", fmt.Sprintf("no format %q", d.Format), "write json, cloudevents or avro")
	}
	if _, err := d.StartAt(); err != nil {
		form.Fault("start", err.Error(), "write earliest, latest, or an instant such as 2027-01-31T08:00:00Z")
	}
	switch {
	case d.Submit == nil && d.Signal == nil:
		form.Fault("", "neither submit nor signal is given", "write submit: {workflow: ..., id: ...}, or signal: {task: ..., name: ...}")
	case d.Submit != nil && d.Signal != nil:
		form.Fault("signal", "submit and signal are both given", "write two intakes")
	}
	if s := d.Submit; s != nil {
		missing("submit.workflow", s.Workflow, "name a workflow")
		missing("submit.id", s.ID, `write what identifies a record's task, as in "${ value.order_id }"`)
		if strings.Contains(s.Workflow, "${") {
			form.Fault("submit.workflow", "expressions are not evaluated here", "name the workflow, and write an intake for each, with its own when")
		}
		if s.ID != "" && !strings.Contains(s.ID, "${") {
			form.Fault("submit.id", "every record would be the same task", `write what identifies a record's task, as in "${ value.order_id }"`)
		}
		if u := ns.CheckReplyTo(s.ReplyTo); u != nil {
			form.Fault("submit.reply_to", u.Detail, "")
		}
	}
	if s := d.Signal; s != nil {
		missing("signal.task", s.Task, `write the id of the task, as in "${ value.order_id }"`)
		missing("signal.name", s.Name, "name the signal that a step waits for")
	}
}

// StartAt returns the instant of Start; zero for earliest and latest.
func (d *Definition) StartAt() (time.Time, error) {
	if d.Start == StartEarliest || d.Start == StartLatest {
		return time.Time{}, nil
	}
	at, err := events.ParseInstant(d.Start)
	if err != nil {
		return at, fmt.Errorf("%q is no start", d.Start)
	}
	return at, nil
}

// Group returns the consumer group of an intake.
func Group(ns events.Namespace, name string) string { return string(ns) + "intake." + name }

// Canonical returns the JSON of the definition: the same bytes for the same meaning.
func (d *Definition) Canonical() json.RawMessage {
	body, err := events.EncodeJSON(d)
	if err != nil {
		panic("intake: a definition that can't be encoded: " + err.Error()) // it was read from YAML or JSON
	}
	return body
}

// To says what a record becomes: "order", or "signal paid".
func (d *Definition) To() string {
	if d.Signal != nil {
		return "signal " + d.Signal.Name
	}
	return d.Submit.Workflow
}

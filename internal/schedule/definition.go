package schedule

import (
	_ "embed" // the JSON Schema
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones are the same on every machine

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Schema is the JSON Schema of definitions, for editors.
//
//go:embed schedule.schema.json
var Schema []byte

// Overlap says what happens at an instant while a task of an earlier instant hasn't ended.
type Overlap string

// The kinds of overlap.
const (
	// Skip skips the instant.
	Skip Overlap = "skip"
	// QueueOne starts the task when the earlier one has ended. Further instants are skipped until then.
	QueueOne Overlap = "queue_one"
	// Allow starts the task.
	Allow Overlap = "allow"
	// CancelRunning cancels the earlier task, and starts the new one when it has ended. Of several, the last one starts.
	CancelRunning Overlap = "cancel_running"
)

var overlaps = []string{string(Skip), string(QueueOne), string(Allow), string(CancelRunning)}

// The bounds and defaults of a definition.
const (
	EveryMin       = time.Second
	EveryMax       = 366 * 24 * time.Hour
	CatchUpMin     = time.Minute
	CatchUpMax     = 7 * 24 * time.Hour // less than the retention of the topic of schedules
	DefaultCatchUp = time.Hour
)

// Definition is a schedule. It is immutable and safe for concurrent use.
type Definition struct {
	Name    string            `json:"schedule"`
	Cron    string            `json:"cron,omitempty"`  // five fields; empty: Every counts
	Every   workflow.Duration `json:"every,omitempty"` // counted from 1970-01-01T00:00Z
	Zone    string            `json:"zone"`            // of the IANA database; UTC if none is given
	Submit  Submit            `json:"submit"`
	Overlap Overlap           `json:"overlap"`
	CatchUp workflow.Duration `json:"catch_up"` // an instant that was missed for longer is skipped

	rule   Rule
	input  *workflow.Template // nil: {}
	labels *workflow.Texts
}

// Submit is what is submitted at each instant. Input and Labels may have expressions, which can use `at`, the instant in
// the schedule's zone, and `schedule`, its name.
type Submit struct {
	Workflow string            `json:"workflow"`
	Version  int               `json:"version,omitempty"` // 0: the newest at the instant
	Input    any               `json:"input,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Priority int               `json:"priority,omitempty"`
}

// Rule is when a schedule has instants.
type Rule struct {
	cron  *cron // nil: every
	every time.Duration
	zone  *time.Location
}

// Next returns the first instant after t; zero: there is none.
func (r *Rule) Next(t time.Time) time.Time {
	if r.cron != nil {
		return r.cron.next(t, r.zone).UTC()
	}
	every := r.every.Milliseconds()
	return time.UnixMilli((t.UnixMilli()/every + 1) * every).UTC()
}

// Rule returns when the schedule has instants.
func (d *Definition) Rule() *Rule { return &d.rule }

// Location returns the schedule's zone.
func (d *Definition) Location() *time.Location { return d.rule.zone }

// Parse parses and checks a definition in YAML. file only names the source in errors. Its errors are workflow.Errors, with
// all faults that were found.
func Parse(file string, src []byte) (*Definition, error) { return parse(workflow.ParseForm(file, src)) }

// ParseStored parses the body of a record.
func ParseStored(body []byte) (*Definition, error) { return parse(workflow.ParseStoredForm(body)) }

// The fields of a definition.
const (
	fieldCron, fieldEvery, fieldZone     = "cron", "every", "zone"
	fieldSchedule, fieldSubmit           = "schedule", "submit"
	fieldOverlap, fieldCatchUp           = "overlap", "catch_up"
	fieldWorkflow, fieldVersion          = "workflow", "version"
	fieldInput, fieldLabels, fieldUrgent = "input", "labels", "priority"
)

var (
	definitionFields = []string{fieldSchedule, fieldCron, fieldEvery, fieldZone, fieldSubmit, fieldOverlap, fieldCatchUp}
	submitFields     = []string{fieldWorkflow, fieldVersion, fieldInput, fieldLabels, fieldUrgent}
)

func parse(f *workflow.Form) (*Definition, error) {
	d := &Definition{Zone: "UTC", Overlap: Skip, CatchUp: workflow.Duration(DefaultCatchUp)}
	f.Fields(definitionFields, func(name string, v workflow.Field) {
		switch name {
		case fieldSchedule:
			d.Name = v.Text()
		case fieldCron:
			d.Cron = v.Text()
		case fieldEvery:
			d.Every = v.Duration()
		case fieldZone:
			d.Zone = v.Text()
		case fieldOverlap:
			d.Overlap = Overlap(v.Text())
		case fieldCatchUp:
			d.CatchUp = v.Duration()
		case fieldSubmit:
			v.Fields(submitFields, d.readSubmit)
		}
	})
	if err := f.Err(); err != nil {
		return nil, err
	}
	d.check(f)
	d.compile(f)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Definition) readSubmit(name string, v workflow.Field) {
	switch name {
	case fieldWorkflow:
		d.Submit.Workflow = v.Text()
	case fieldVersion:
		d.Submit.Version = v.Integer("write the version of a workflow, such as 3, or leave it out for the newest")
	case fieldInput:
		d.Submit.Input = v.Tree()
	case fieldLabels:
		d.Submit.Labels = v.Labels()
	case fieldUrgent:
		d.Submit.Priority = v.Integer("write a whole number from 1 on")
	}
}

// check reports the faults that aren't in expressions, and sets the rule.
func (d *Definition) check(f *workflow.Form) {
	if err := events.CheckDefinitionName(d.Name); err != nil {
		what, fix, _ := strings.Cut(err.Error(), ": ")
		f.Fault(fieldSchedule, what, fix)
	}
	switch {
	case d.Cron != "" && d.Every != 0:
		f.Fault(fieldEvery, "cron and every", "keep one of them")
	case d.Cron == "" && d.Every == 0:
		f.Fault("", "the schedule has no rule", `write cron: "0 9 * * mon", or every: 15m`)
	case d.Every != 0 && (time.Duration(d.Every) < EveryMin || time.Duration(d.Every) > EveryMax):
		f.Fault(fieldEvery, d.Every.String()+" is out of range", "write a duration from 1s to 366 days (8784h)")
	case d.Cron != "":
		rule, err := parseCron(d.Cron)
		if err != nil {
			f.Fault(fieldCron, err.Error(), `write five fields, such as "30 2 * * mon-fri"`)
		}
		d.rule.cron = rule
	}
	d.rule.every = time.Duration(d.Every)
	zone, err := time.LoadLocation(d.Zone)
	if err != nil || d.Zone == "Local" {
		f.Fault(fieldZone, fmt.Sprintf("no zone is called %q", d.Zone), "write a name of the IANA time zone database, such as Europe/Oslo, or leave it out for UTC")
	}
	d.rule.zone = zone
	if !slices.Contains(overlaps, string(d.Overlap)) {
		f.Fault(fieldOverlap, fmt.Sprintf("%q isn't a kind of overlap", d.Overlap), "write one of "+strings.Join(overlaps, ", "))
	}
	if c := time.Duration(d.CatchUp); c < CatchUpMin || c > CatchUpMax {
		f.Fault(fieldCatchUp, d.CatchUp.String()+" is out of range", "write a duration from 1m to 168h")
	}
	if err := events.CheckDefinitionName(d.Submit.Workflow); err != nil {
		f.Fault(fieldSubmit+"."+fieldWorkflow, "no workflow is named", "write submit: {workflow: NAME}")
	}
}

// variables are those of the expressions.
var variables = []workflow.Variable{{Name: "at", Type: workflow.InstantVariable}, {Name: "schedule", Type: workflow.TextVariable}}

func (d *Definition) compile(f *workflow.Form) {
	x := f.Expressions(variables)
	if d.Submit.Input != nil {
		d.input = x.Template(d.Submit.Input, fieldSubmit+"."+fieldInput)
	}
	d.labels = x.Labels(d.Submit.Labels, fieldSubmit+"."+fieldLabels)
}

// Submission returns the submission of an instant. replyTo is the topic of schedules.
func (d *Definition) Submission(at time.Time, replyTo string) (*events.Submission, error) {
	name, err := events.EncodeJSON(d.Name)
	if err != nil {
		return nil, err
	}
	values := []workflow.Value{{Instant: at.In(d.rule.zone)}, {JSON: name}}
	s := &events.Submission{ID: events.ScheduledTask(d.Name, at), Workflow: d.Submit.Workflow, Version: d.Submit.Version, Input: json.RawMessage("{}"), ReplyTo: replyTo, Priority: d.Submit.Priority}
	if d.input != nil {
		if s.Input, err = d.input.Render(values); err != nil {
			return nil, err
		}
	}
	s.Labels, err = d.labels.Texts(values)
	return s, err
}

// JSON returns the body of a record: the same bytes for the same meaning.
func (d *Definition) JSON() (json.RawMessage, error) {
	canonical := *d
	canonical.Cron = strings.Join(strings.Fields(d.Cron), " ")
	return events.EncodeJSON(&canonical)
}

// SameRule reports whether two bodies have the same instants.
func SameRule(a, b []byte) bool {
	x, err := ParseStored(a)
	if err != nil {
		return false
	}
	y, err := ParseStored(b)
	return err == nil && x.Cron == y.Cron && x.Every == y.Every && x.Zone == y.Zone
}

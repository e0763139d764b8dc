package events

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefinitionKind is a kind of definitions that have a name and no version. They are on the definitions topic, beside
// the workflows.
type DefinitionKind string

// The kinds. A workflow isn't one of them: its definitions have versions (DefinitionKey).
const (
	ScheduleDefinition DefinitionKind = "schedule"
	IntakeDefinition   DefinitionKind = "intake"
)

// DefinitionKinds are all kinds.
var DefinitionKinds = []DefinitionKind{ScheduleDefinition, IntakeDefinition}

// Key returns the key of a definition: KIND:NAME. It has no slash, so readers of workflows leave the record out.
func (k DefinitionKind) Key(name string) string { return string(k) + ":" + name }

// Type returns the type of the records: waybill.KIND.v1.
func (k DefinitionKind) Type() string { return "waybill." + string(k) + ".v1" }

// ParseNamedKey is the inverse of DefinitionKind.Key.
func ParseNamedKey(key string) (kind DefinitionKind, name string, is bool) {
	k, name, found := strings.Cut(key, ":")
	kind = DefinitionKind(k)
	return kind, name, found && slices.Contains(DefinitionKinds, kind)
}

// definitionName is the rule for names, which is that of workflows.
var definitionName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// CheckDefinitionName returns why a text can't be the name of a definition; nil: it can.
func CheckDefinitionName(name string) error {
	if !definitionName.MatchString(name) {
		return fmt.Errorf("%q is not a name: write a lower-case letter, then up to 62 of a-z, 0-9, _ and -", name)
	}
	return nil
}

// NamedDefinition is a definition without versions, as of a record of its key.
type NamedDefinition struct {
	Kind DefinitionKind
	Name string
	// Body is the definition, a JSON object that the package of the kind reads. Empty: the definition was deleted.
	Body json.RawMessage
	// Paused says who paused it, and why; nil: it isn't paused.
	Paused *By
	// Since is the instant from which it holds as it is: it was applied first, its rule was changed, or it was resumed.
	// A change of other parts keeps it. While it is paused, Since is the time of the record.
	Since time.Time
	// By says who wrote the record, and At is the record's time.
	By By
	At time.Time
}

// namedBody is the value of a record.
type namedBody struct {
	Definition json.RawMessage `json:"definition"`
	Paused     *pausedBody     `json:"paused,omitempty"`
	Since      string          `json:"since,omitempty"` // absent: the record's time
}

type pausedBody struct {
	By      string `json:"by,omitempty"`
	Claimed string `json:"by_claimed,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Record returns the record that makes d the current definition; a tombstone if it has no body. A zero Since becomes the
// record's time.
func (d *NamedDefinition) Record(ns Namespace, source string) (Record, error) {
	key := d.Kind.Key(d.Name)
	r := Record{Topic: ns.Definitions(), Partition: -1, Key: []byte(key), Headers: CloudHeaders(d.Kind.Type(), source, key)}
	for _, h := range []struct{ name, value string }{{HeaderBy, d.By.Who}, {HeaderByClaimed, d.By.Claimed}, {HeaderWhy, d.By.Why}} {
		if h.value != "" {
			r.Headers = append(r.Headers, Header{Key: h.name, Value: []byte(h.value)})
		}
	}
	if len(d.Body) == 0 {
		return r, nil
	}
	body := namedBody{Definition: d.Body}
	if d.Paused != nil {
		body.Paused = &pausedBody{d.Paused.Who, d.Paused.Claimed, d.Paused.Why}
	} else if !d.Since.IsZero() {
		body.Since = d.Since.UTC().Format(TimeLayout)
	}
	value, err := EncodeJSON(body)
	if err != nil {
		return r, fmt.Errorf("encode the %s %s: %w", d.Kind, d.Name, err)
	}
	r.Value = value
	return r, nil
}

// DecodeNamedDefinition is the inverse of NamedDefinition.Record. is reports whether the record is one at all: the topic
// has others. With an error, d has Kind, Name and At.
func DecodeNamedDefinition(r *Record) (d *NamedDefinition, is bool, err error) {
	kind, name, is := ParseNamedKey(string(r.Key))
	if !is {
		return nil, false, nil
	}
	d = &NamedDefinition{Kind: kind, Name: name, Since: r.Time, At: r.Time}
	for _, h := range []struct {
		name string
		to   *string
	}{{HeaderBy, &d.By.Who}, {HeaderByClaimed, &d.By.Claimed}, {HeaderWhy, &d.By.Why}} {
		*h.to, _ = r.Header(h.name)
	}
	if len(r.Value) == 0 {
		return d, true, nil
	}
	var body namedBody
	if err := json.Unmarshal(r.Value, &body); err != nil {
		return d, true, fmt.Errorf("it is no definition: %w", err)
	}
	if len(body.Definition) == 0 || body.Definition[0] != '{' {
		return d, true, fmt.Errorf("it has no object %q", "definition")
	}
	if p := body.Paused; p != nil {
		d.Paused = &By{Who: p.By, Claimed: p.Claimed, Why: p.Why}
	} else if body.Since != "" {
		if d.Since, err = time.Parse(time.RFC3339, body.Since); err != nil {
			return d, true, fmt.Errorf("since %q is no instant", body.Since)
		}
	}
	d.Body = body.Definition
	return d, true, nil
}

// scheduledTaskLayout is the form of the instant in the id of a schedule's task.
const scheduledTaskLayout = "2006-01-02T15:04:05.999Z07:00"

// ScheduledTask returns the id of the task that a schedule starts for an instant: SCHEDULE@INSTANT.
func ScheduledTask(schedule string, at time.Time) string {
	return schedule + "@" + at.UTC().Format(scheduledTaskLayout)
}

// ParseScheduledTask is the inverse of ScheduledTask.
func ParseScheduledTask(id string) (schedule string, at time.Time, is bool) {
	schedule, text, found := strings.Cut(id, "@")
	at, err := time.Parse(time.RFC3339, text)
	return schedule, at, found && err == nil && CheckDefinitionName(schedule) == nil && ScheduledTask(schedule, at) == id
}

package replay

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// Change is one field of a task that an event changed, as JSON shows it
// (events.TaskView): null where it was or is not there. Steps are named by their
// id: steps.charge.state.
type Change struct {
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// unsaid are fields that each event changes: they stand in its line.
var ignoredFields = []string{"as_of", "updated_at"}

// shown is a task as JSON shows it: its fields, and its steps by id. An event
// mostly changes one step of perhaps a thousand, so that the others are kept as
// they were encoded.
type jsonState struct {
	view  *events.TaskView
	own   fields
	steps fields
}

func newJSONState(v *events.TaskView, before *jsonState) *jsonState {
	bare := *v
	bare.Steps = nil
	s := &jsonState{view: v, own: object(encode(bare)), steps: make(fields, len(v.Steps))}
	for _, name := range ignoredFields {
		delete(s.own, name)
	}
	for i := range v.Steps {
		if id := v.Steps[i].ID; before != nil && reflect.DeepEqual(before.view.Steps[i], v.Steps[i]) {
			s.steps[id] = before.steps[id]
		} else {
			s.steps[id] = encode(v.Steps[i])
		}
	}
	return s
}

// changes are what differs between two states of a task, in the order of the
// paths' names; before is nil before the first event.
func changes(before, after *jsonState) []Change {
	if before == nil {
		before = &jsonState{}
	}
	list := []Change{}
	compare("", before.own, after.own, &list)
	compare("steps.", before.steps, after.steps, &list)
	return list
}

// fields are the members of a JSON object.
type fields map[string]json.RawMessage

// structural are the objects of a view whose members are told one by one. What
// others wrote (input, output, labels) is told whole.
func isStructural(path string) bool {
	depth := strings.Count(path, ".")
	return strings.HasPrefix(path, "steps.") && (depth == 1 || depth == 2 && strings.HasSuffix(path, ".undo"))
}

func compare(prefix string, before, after fields, list *[]Change) {
	names := slices.Collect(maps.Keys(after))
	for name := range before {
		if _, both := after[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		path, was, is := prefix+name, orNull(before[name]), orNull(after[name])
		switch {
		case bytes.Equal(was, is):
		case isStructural(path) && is[0] == '{':
			compare(path+".", object(was), object(is), list)
		default:
			*list = append(*list, Change{path, was, is})
		}
	}
}

// object is a JSON object as fields; nil of anything else.
func object(raw json.RawMessage) fields {
	var f fields
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil
	}
	return f
}

// encode is v as JSON. A view always can be: what others wrote was checked when
// it came.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("replay: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

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

// Change is a field of a task that an event changed, as JSON (events.TaskView); null if it is absent. Steps are
// named by their id: steps.charge.state.
type Change struct {
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// ignoredFields change with each event; its line has them.
var ignoredFields = []string{"as_of", "updated_at"}

// jsonState is a task as JSON: its fields, and its steps by id. Events mostly change one step of possibly a
// thousand, so the encoding of the others is reused.
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
		id := v.Steps[i].ID
		if before != nil && i < len(before.view.Steps) && reflect.DeepEqual(before.view.Steps[i], v.Steps[i]) {
			s.steps[id] = before.steps[id]
		} else {
			s.steps[id] = encode(v.Steps[i])
		}
	}
	return s
}

// changes returns the differences between two states of a task, sorted by path. before is nil before the first event.
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

// isStructural reports whether the members of an object are compared one by one. Data of users (input, output,
// labels) is compared as a whole.
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

// object parses a JSON object; nil for anything else.
func object(raw json.RawMessage) fields {
	var f fields
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil
	}
	return f
}

// encode marshals v, which can't fail: the data of users was checked when it was received.
func encode(v any) json.RawMessage {
	text, err := events.EncodeJSON(v)
	if err != nil {
		panic("replay: " + err.Error())
	}
	return text
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

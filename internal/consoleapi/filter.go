package consoleapi

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Filter selects tasks. Empty fields select all.
type Filter struct {
	IDPrefix    string   // the id begins with it; the tasks are then in the order of ids
	States      []string // one of them
	Workflow    string   // NAME or NAME/VERSION
	Labels      map[string]string
	StepInError string
	ErrorGroup  string // the id of an error group
	Parent      string // children of this task, and the tasks of its items
	Agent       string
	Since       time.Time     // submitted at this instant or later
	DueWithin   time.Duration // open, and its complete-by is within this time or past
	Text        string        // further terms, as the API takes them
}

// String writes the filter as the API takes it.
func (f *Filter) String() string {
	var terms []string
	add := func(name, value string) {
		if value != "" {
			terms = append(terms, Term(name, value))
		}
	}
	add("id", f.IDPrefix)
	add("state", strings.Join(f.States, ","))
	add("workflow", f.Workflow)
	for _, k := range slices.Sorted(maps.Keys(f.Labels)) {
		add("label", k+"="+f.Labels[k])
	}
	add("step_in_error", f.StepInError)
	add("error_group", f.ErrorGroup)
	add("parent", f.Parent)
	add("agent", f.Agent)
	if !f.Since.IsZero() {
		add("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if f.DueWithin > 0 {
		add("due_within", f.DueWithin.String())
	}
	if f.Text != "" {
		terms = append(terms, f.Text)
	}
	return strings.Join(terms, " ")
}

// Term writes a term of a filter of tasks. It quotes the value.
func Term(name, value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name+":"+value) + `"`
}

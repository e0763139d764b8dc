package consoleapi

import (
	"encoding/json"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/graph"
)

// Definition is a version of a workflow.
type Definition struct {
	Workflow       string                  `json:"workflow" jsonschema:"The name of the workflow."`
	Version        int                     `json:"version" jsonschema:"The version."`
	Deleted        bool                    `json:"deleted,omitempty" jsonschema:"true: the version was deleted. Its tasks continue with it."`
	Deprecated     *events.DeprecationView `json:"deprecated,omitempty" jsonschema:"Why and by whom the version was deprecated. Absent: it isn't deprecated."`
	CompleteWithin string                  `json:"complete_within" jsonschema:"How long a task may take."`
	OnError        string                  `json:"on_error" enum:"undo,hold" jsonschema:"What happens when a step fails or the task's time is over."`
	Agents         []string                `json:"agents" jsonschema:"The agents of its steps and undos."`
	Source         string                  `json:"source" jsonschema:"The definition as YAML, made from body. Comments aren't kept."`
	Body           json.RawMessage         `json:"body" jsonschema:"The definition in its canonical form."`
	Graph          StepGraph               `json:"graph" jsonschema:"The graph of its steps."`
}

// StepGraph is the graph of a workflow's steps.
type StepGraph struct {
	Steps  []graph.Vertex `json:"steps" jsonschema:"The steps, in the order of the definition."`
	Layout *graph.Drawing `json:"layout" jsonschema:"Where each step and each line is drawn."`
}

// TaskGraph is the graph of a task's steps.
type TaskGraph struct {
	Task     string    `json:"task" jsonschema:"The task's id."`
	Workflow string    `json:"workflow" jsonschema:"The name of the workflow."`
	Version  int       `json:"version" jsonschema:"The version of the workflow."`
	Graph    StepGraph `json:"graph" jsonschema:"The graph of its steps, from the plan in its first event."`
}

// DefinitionDiff is what differs between two versions of a workflow.
type DefinitionDiff struct {
	Workflow string       `json:"workflow" jsonschema:"The name of the workflow."`
	From     int          `json:"from" jsonschema:"The first version."`
	To       int          `json:"to" jsonschema:"The second version."`
	Added    []string     `json:"added" jsonschema:"The steps that only the second version has."`
	Removed  []string     `json:"removed" jsonschema:"The steps that only the first version has."`
	Changed  []string     `json:"changed" jsonschema:"The steps that both have and that differ."`
	Changes  []Change     `json:"changes" jsonschema:"The fields that differ, by path. A list is compared as a whole."`
	Lines    []SourceLine `json:"lines" jsonschema:"All lines of both sources, in order."`
}

// SourceLine is a line of a comparison of two texts.
type SourceLine struct {
	Op   string `json:"op" enum:"same,added,removed" jsonschema:"same: both texts have it. added: only the second does. removed: only the first does."`
	Text string `json:"text" jsonschema:"The line."`
	From int    `json:"from,omitempty" jsonschema:"Its number in the first text, from 1. Absent: it isn't there."`
	To   int    `json:"to,omitempty" jsonschema:"Its number in the second text, from 1. Absent: it isn't there."`
}

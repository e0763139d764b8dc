package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/internal/redrive"
	"github.com/waybill-run/waybill/internal/replay"
)

// described says what a struct of the API is. Tags describe its fields.
var described = map[reflect.Type]string{
	reflect.TypeFor[events.AsOf]():                "What an answer reflects: everything of the partition below the offset.",
	reflect.TypeFor[events.Error]():               "Why an attempt, a step or a task failed.",
	reflect.TypeFor[events.Line]():                "An event of a task.",
	reflect.TypeFor[events.StepView]():            "A step of a task.",
	reflect.TypeFor[events.SummaryView]():         "A task in a list.",
	reflect.TypeFor[events.UndoView]():            "The undo of a step.",
	reflect.TypeFor[events.CheckView]():           "The last check of a step: an agent is asked what became of an attempt with an unknown effect.",
	reflect.TypeFor[replay.Why]():                 "Why a task doesn't advance.",
	reflect.TypeFor[replay.StepWhy]():             "Why a step doesn't advance.",
	reflect.TypeFor[consoleapi.Task]():            "A task.",
	reflect.TypeFor[consoleapi.TaskPage]():        "A page of tasks. It can be short or empty and still have a next page, because the work for a page is bounded.",
	reflect.TypeFor[consoleapi.Timeline]():        "The events of a task, in the order of the log.",
	reflect.TypeFor[consoleapi.Submitted]():       "The answer to a submission.",
	reflect.TypeFor[consoleapi.CommandResult]():   "The answer to a command.",
	reflect.TypeFor[consoleapi.CancelCommand]():   "Cancels a task.",
	reflect.TypeFor[consoleapi.ResubmitCommand](): "Runs a held step again.",
	reflect.TypeFor[consoleapi.UndoCommand]():     "Undoes a task's completed steps.",
	reflect.TypeFor[consoleapi.ReleaseCommand]():  "Records that a held step was completed or undone by hand.",
	reflect.TypeFor[consoleapi.SignalBody]():      "A signal: a message to a step that waits.",
	reflect.TypeFor[consoleapi.SignalResult]():    "The answer to a signal.",
	reflect.TypeFor[consoleapi.Workflow]():        "A version of a workflow. A version that was deleted is listed as long as it has tasks.",
	reflect.TypeFor[consoleapi.WorkflowList]():    "All workflow versions, by name and version.",
	reflect.TypeFor[consoleapi.Agent]():           "An agent that has a request topic.",
	reflect.TypeFor[consoleapi.AgentList]():       "All agents, by name.",
	reflect.TypeFor[consoleapi.Partition]():       "A partition of the namespace.",
	reflect.TypeFor[consoleapi.PartitionList]():   "The partitions that this console reads.",
	reflect.TypeFor[consoleapi.Alert]():           "An alert. With a seq it belongs to an event of a task; otherwise it is about a definition or a topic.",
	reflect.TypeFor[consoleapi.AlertPage]():       "A page of alerts.",
	reflect.TypeFor[consoleapi.ErrorGroup]():      "The held tasks with the same error: of one workflow, step, kind of run and code, whose messages differ only in values.",
	reflect.TypeFor[consoleapi.ErrorGroupList]():  "Error groups: those with the most held tasks first, then the latest.",
	reflect.TypeFor[consoleapi.Stats]():           "What happened to tasks in a time.",
	reflect.TypeFor[consoleapi.StatsSeries]():     "What happened to tasks, by time.",
	reflect.TypeFor[consoleapi.StatsList]():       "What happened to tasks, in one or several series.",
	reflect.TypeFor[consoleapi.Latency]():         "How long tasks took.",
	reflect.TypeFor[consoleapi.VersionHeld]():     "The held tasks of a version.",
	reflect.TypeFor[consoleapi.Trend]():           "Counts by hour.",
	reflect.TypeFor[consoleapi.Deadletter]():      "A record that could not be used.",
	reflect.TypeFor[consoleapi.DeadletterPage]():  "A page of dead letters.",
	reflect.TypeFor[consoleapi.DeadletterFate]():  "What became of a dead letter.",
	reflect.TypeFor[consoleapi.RedriveCommand]():  "A selection of dead letters. At least one of deadletters, reasons and since is needed; those that fit all of them are selected.",
	reflect.TypeFor[consoleapi.Redriven]():        "What was done with the selected dead letters.",
	reflect.TypeFor[redrive.Letter]():             "A selected dead letter, and what was done with it.",
	reflect.TypeFor[consoleapi.WhoAmI]():          "Who sends a request.",
	reflect.TypeFor[consoleapi.Change]():          "A field that changed.",
	reflect.TypeFor[consoleapi.TaskAtEvent]():     "A task as of one of its events.",
	reflect.TypeFor[consoleapi.Chain]():           "What the events of a task show of its history.",
	reflect.TypeFor[consoleapi.ChainFault]():      "A fault of a task's history.",
	reflect.TypeFor[consoleapi.CommandList]():     "The commands to a task.",
	reflect.TypeFor[consoleapi.CommandChoice]():   "Whether a command is allowed. The scheduler decides when the command arrives, and the state can change until then.",
	reflect.TypeFor[consoleapi.Definition]():      "A version of a workflow.",
	reflect.TypeFor[consoleapi.StepGraph]():       "The graph of a workflow's steps.",
	reflect.TypeFor[consoleapi.TaskGraph]():       "The graph of a task's steps.",
	reflect.TypeFor[consoleapi.DefinitionDiff]():  "What differs between two versions of a workflow.",
	reflect.TypeFor[consoleapi.SourceLine]():      "A line of a comparison of two texts.",
	reflect.TypeFor[graph.Vertex]():               "A step in a graph.",
	reflect.TypeFor[graph.Drawing]():              "The layout of a graph, from left to right. All numbers are whole CSS pixels.",
	reflect.TypeFor[graph.Box]():                  "A box of a drawing: a step, or several that are folded.",
	reflect.TypeFor[graph.Edge]():                 "A line of a drawing.",
	reflect.TypeFor[consoleapi.Incomplete]():      "A partition that is missing from an answer or is incomplete in it, and the reason.",
	reflect.TypeFor[consoleapi.Unreadable]():      "A record of a task that is not an event, or is corrupt.",
	reflect.TypeFor[consoleapi.Problem]():         "An error as in RFC 9457.",
}

// paramSchemas are the schemas of the types of parameters.
var paramSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[taskID]():          {Type: "string", MinLength: jsonschema.Ptr(1)},
	reflect.TypeFor[taskOffset]():      {Type: "string", Pattern: "^(" + consoleapi.LogEnd + "|[0-9]+)$"},
	reflect.TypeFor[listOffsets]():     {Type: "string", Pattern: "^(" + consoleapi.LogEnd + "|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)$"},
	reflect.TypeFor[workflowName]():    {Type: "string", MinLength: jsonschema.Ptr(1)},
	reflect.TypeFor[workflowVersion](): {Type: "integer", Minimum: jsonschema.Ptr(1.0)},
	reflect.TypeFor[eventSeq]():        {Type: "integer", Minimum: jsonschema.Ptr(1.0)},
	reflect.TypeFor[pageSize](): {Type: "integer", Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(float64(pageMax)),
		Default: json.RawMessage(fmt.Sprint(pageDefault))},
}

// addParameter adds the schema of a type of parameters that another file declares.
func addParameter[T any](schema *jsonschema.Schema) struct{} {
	paramSchemas[reflect.TypeFor[T]()] = schema
	return struct{}{}
}

// schemas makes the JSON Schemas of Go types. Structs and enumerations are components, to which other schemas refer.
type schemas struct {
	types   map[reflect.Type]*jsonschema.Schema // those that the library doesn't make as the API has them
	enums   map[string]*jsonschema.Schema       // by name
	structs map[string]reflect.Type             // by name
}

func newSchemas() *schemas {
	s := &schemas{types: maps.Clone(paramSchemas), enums: map[string]*jsonschema.Schema{}, structs: map[string]reflect.Type{}}
	s.types[reflect.TypeFor[json.RawMessage]()] = &jsonschema.Schema{}
	s.types[reflect.TypeFor[int32]()] = &jsonschema.Schema{Type: "integer"}
	s.types[reflect.TypeFor[openAPIDocument]()] = &jsonschema.Schema{Type: "object"}
	addEnum(s, "The state of a task.", events.TaskStates)
	addEnum(s, "The state of a step, of its undo, or of its check.", events.StepStates)
	addEnum(s, "Whether an attempt is one of the step's operation, of its undo, or of its check.", []events.Kind{events.Do, events.Undo, events.Check})
	addEnum(s, "What became of an attempt, as a check found it.", []events.Became{events.BecameCompleted, events.BecameNone, events.BecameUnknown})
	addEnum(s, "A command to a task.", events.Commands)
	addEnum(s, "Why a task or a step doesn't advance.", replay.Reasons)
	s.addComponent(reflect.TypeFor[submission](), "Submission")
	s.enums["Submission"] = submissionSchema()
	return s
}

// addEnum adds the component of an enumeration.
func addEnum[T ~string](s *schemas, text string, values []T) {
	e := &jsonschema.Schema{Type: "string", Description: text}
	for _, v := range values {
		e.Enum = append(e.Enum, string(v))
	}
	t := reflect.TypeFor[T]()
	s.addComponent(t, componentName(t))
	s.enums[componentName(t)] = e
}

func (s *schemas) addComponent(t reflect.Type, name string) {
	s.types[t] = &jsonschema.Schema{Ref: "#/components/schemas/" + name}
}

// componentName is the name of a type in the document: without the suffix View.
func componentName(t reflect.Type) string {
	name := strings.TrimSuffix(t.Name(), "View")
	return strings.ToUpper(name[:1]) + name[1:]
}

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s.reach(t)
	return s.infer(t, s.types)
}

// reach adds the components of a type's structs.
func (s *schemas) reach(t reflect.Type) {
	if s.types[t] != nil {
		return
	}
	if kind := t.Kind(); kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map {
		s.reach(t.Elem())
	} else if kind == reflect.Struct {
		s.addStruct(t)
	}
}

// addStruct adds the component of a struct, and those of its fields.
func (s *schemas) addStruct(t reflect.Type) {
	name := componentName(t)
	if other, taken := s.structs[name]; taken {
		panic(fmt.Sprintf("console: %s and %s have the same name in the OpenAPI document", other, t))
	}
	s.structs[name] = t
	s.addComponent(t, name)
	for _, f := range jsonFields(t) {
		s.reach(f.Type)
	}
}

// infer has the library make a schema.
func (s *schemas) infer(t reflect.Type, types map[reflect.Type]*jsonschema.Schema) *jsonschema.Schema {
	made, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		panic(fmt.Sprintf("console: the schema of %s: %v", t, err)) // TestOpenAPI makes all
	}
	return tidied(made)
}

// components returns the schemas of the components.
func (s *schemas) components() map[string]*jsonschema.Schema {
	all := maps.Clone(s.enums)
	for name, t := range s.structs {
		others := maps.Clone(s.types)
		delete(others, t)
		made := s.infer(t, others)
		made.Description = described[t]
		for name, f := range jsonFields(t) {
			describeField(made, name, f)
		}
		all[name] = made
	}
	return all
}

// describeField adds what the tags of a field say: format is the format of a text, enum are the values that it can
// have. A field that is omitted if it is empty is never null.
func describeField(in *jsonschema.Schema, name string, f reflect.StructField) {
	p := in.Properties[name]
	p.Format = f.Tag.Get("format")
	if values := f.Tag.Get("enum"); values != "" {
		*p = jsonschema.Schema{Type: "string", Description: p.Description}
		for v := range strings.SplitSeq(values, ",") {
			p.Enum = append(p.Enum, v)
		}
	}
	if slices.Contains(in.Required, name) {
		return
	}
	switch {
	case len(p.Types) == 2:
		p.Type, p.Types = p.Types[1], nil
	case len(p.AnyOf) == 2:
		p.Ref, p.AnyOf = p.AnyOf[0].Ref, nil
	}
}

// tidied changes what the library makes of Go's types into what the API's answers are: a list is never null, and a
// reference that can be null is either.
func tidied(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	nullable := slices.Contains(s.Types, "null")
	switch {
	case nullable && s.Ref != "":
		s.AnyOf = []*jsonschema.Schema{{Ref: s.Ref}, {Type: "null"}}
		s.Ref, s.Types = "", nil
	case nullable && s.Items != nil:
		s.Type, s.Types = "array", nil
	}
	tidied(s.Items)
	tidied(s.AdditionalProperties)
	for _, p := range s.Properties {
		tidied(p)
	}
	return s
}

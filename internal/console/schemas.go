package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/redrive"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/schedule"
)

// described says what a struct of the API is. Tags describe its fields.
var described = map[reflect.Type]string{
	reflect.TypeFor[events.AsOf]():                  "What an answer reflects: everything of the partition below the offset.",
	reflect.TypeFor[events.Error]():                 "Why an attempt, a step or a task failed.",
	reflect.TypeFor[events.Line]():                  "An event of a task.",
	reflect.TypeFor[events.StepView]():              "A step of a task.",
	reflect.TypeFor[events.SummaryView]():           "A task in a list.",
	reflect.TypeFor[events.UndoView]():              "The undo of a step.",
	reflect.TypeFor[events.ParentView]():            "The step that started a child task.",
	reflect.TypeFor[events.ChildView]():             "The child task of a step.",
	reflect.TypeFor[events.CheckView]():             "The last check of a step: an agent is asked what became of an attempt with an unknown effect.",
	reflect.TypeFor[replay.Why]():                   "Why a task doesn't advance.",
	reflect.TypeFor[replay.StepWhy]():               "Why a step doesn't advance.",
	reflect.TypeFor[consoleapi.Task]():              "A task.",
	reflect.TypeFor[consoleapi.TaskPage]():          "A page of tasks. It can be short or empty and still have a next page, because the work for a page is bounded.",
	reflect.TypeFor[consoleapi.Timeline]():          "The events of a task, in the order of the log.",
	reflect.TypeFor[consoleapi.Submitted]():         "The answer to a submission.",
	reflect.TypeFor[consoleapi.CommandResult]():     "The answer to a command.",
	reflect.TypeFor[consoleapi.CancelCommand]():     "Cancels a task.",
	reflect.TypeFor[consoleapi.MigrateCommand]():    "Moves a task to another version of its workflow.",
	reflect.TypeFor[consoleapi.ResubmitCommand]():   "Runs a held step again.",
	reflect.TypeFor[consoleapi.UndoCommand]():       "Undoes a task's completed steps.",
	reflect.TypeFor[consoleapi.ReleaseCommand]():    "Records that a held step was completed or undone by hand.",
	reflect.TypeFor[consoleapi.SignalBody]():        "A signal: a message to a step that waits.",
	reflect.TypeFor[consoleapi.SignalResult]():      "The answer to a signal.",
	reflect.TypeFor[consoleapi.Workflow]():          "A version of a workflow. A version that was deleted is listed as long as it has tasks.",
	reflect.TypeFor[events.DeprecationView]():       "Why a version of a workflow is deprecated: new tasks get it only if they name it.",
	reflect.TypeFor[consoleapi.WorkflowList]():      "All workflow versions, by name and version.",
	reflect.TypeFor[consoleapi.Agent]():             "An agent that has a request topic.",
	reflect.TypeFor[consoleapi.AgentList]():         "All agents, by name.",
	reflect.TypeFor[consoleapi.Partition]():         "A partition of the namespace.",
	reflect.TypeFor[consoleapi.PartitionList]():     "The partitions that this console reads.",
	reflect.TypeFor[consoleapi.Alert]():             "An alert. With a seq it belongs to an event of a task; otherwise it is about a definition or a topic.",
	reflect.TypeFor[consoleapi.AlertPage]():         "A page of alerts.",
	reflect.TypeFor[consoleapi.ErrorGroup]():        "The held tasks with the same error: of one workflow, step, kind of run and code, whose messages differ only in values.",
	reflect.TypeFor[consoleapi.ErrorGroupList]():    "Error groups: those with the most held tasks first, then the latest.",
	reflect.TypeFor[consoleapi.Stats]():             "What happened to tasks in a span of time.",
	reflect.TypeFor[consoleapi.StatsSeries]():       "What happened to tasks, by time.",
	reflect.TypeFor[consoleapi.StatsList]():         "What happened to tasks, in one or several series.",
	reflect.TypeFor[consoleapi.AgentStats]():        "What happened to the requests of an agent in a span of time.",
	reflect.TypeFor[consoleapi.AgentSeries]():       "What happened to the requests of an agent, by time.",
	reflect.TypeFor[consoleapi.Latency]():           "How long something took.",
	reflect.TypeFor[consoleapi.StepList]():          "What happens at the steps of a workflow's version.",
	reflect.TypeFor[consoleapi.StepCounts]():        "What happens at a step.",
	reflect.TypeFor[consoleapi.StepAt]():            "Open tasks at a step.",
	reflect.TypeFor[consoleapi.StepRun]():           "What happened to a step's operation, undo or check, since the log began.",
	reflect.TypeFor[consoleapi.Prediction]():        "An estimate of when a task will be processed.",
	reflect.TypeFor[consoleapi.PredictedTask]():     "A task that must end soon.",
	reflect.TypeFor[consoleapi.PredictionList]():    "Tasks that must end soon. At most 1,000 are looked at: those that must end first. At most 50 are listed.",
	reflect.TypeFor[consoleapi.LagList]():           "The lag by time. A console samples it while a client asks for agents or partitions, or follows the changes.",
	reflect.TypeFor[consoleapi.Lag]():               "The lag of the schedulers or of an agent, by time.",
	reflect.TypeFor[consoleapi.VersionHeld]():       "The held tasks of a version.",
	reflect.TypeFor[consoleapi.Trend]():             "Counts by hour.",
	reflect.TypeFor[consoleapi.Deadletter]():        "A record that could not be used.",
	reflect.TypeFor[consoleapi.DeadletterPage]():    "A page of dead letters.",
	reflect.TypeFor[consoleapi.DeadletterFate]():    "What became of a dead letter.",
	reflect.TypeFor[consoleapi.RedriveCommand]():    "A selection of dead letters. At least one of deadletters, reasons, intake and since is needed; those that match all of them are selected.",
	reflect.TypeFor[consoleapi.Redriven]():          "What was done with the selected dead letters.",
	reflect.TypeFor[redrive.Letter]():               "A selected dead letter, and what was done with it.",
	reflect.TypeFor[consoleapi.Changes]():           "What changed since the message before.",
	reflect.TypeFor[consoleapi.WhoAmI]():            "Who sends a request.",
	reflect.TypeFor[consoleapi.Change]():            "A field that changed.",
	reflect.TypeFor[consoleapi.TaskAtEvent]():       "A task as of one of its events.",
	reflect.TypeFor[consoleapi.SystemAsOf]():        "The system at an instant.",
	reflect.TypeFor[consoleapi.VersionAsOf]():       "The tasks of a workflow version at an instant.",
	reflect.TypeFor[consoleapi.TaskAsOf]():          "A task at an instant.",
	reflect.TypeFor[consoleapi.ForkRequest]():       "How a task is simulated: version or definition is needed, one of them.",
	reflect.TypeFor[consoleapi.Fork]():              "A task under another definition from one of its events on, and what happened.",
	reflect.TypeFor[consoleapi.ForkCourse]():        "One of two courses of a task.",
	reflect.TypeFor[consoleapi.ForkRow]():           "An event that both courses have, or one of them.",
	reflect.TypeFor[consoleapi.Chain]():             "What the events of a task show of its history.",
	reflect.TypeFor[consoleapi.ChainFault]():        "A fault of a task's history.",
	reflect.TypeFor[consoleapi.ItemPage]():          "A page of the items of a step.",
	reflect.TypeFor[events.ItemView]():              "An item of a step.",
	reflect.TypeFor[events.ItemsView]():             "Where the items of a step are.",
	reflect.TypeFor[consoleapi.TaskTree]():          "A task with its children, their children, and so on.",
	reflect.TypeFor[consoleapi.TreeTask]():          "A task in a tree.",
	reflect.TypeFor[consoleapi.TreeMore]():          "Children of a step that are left out of a tree.",
	reflect.TypeFor[replay.Cause]():                 "A task on the way down to the cause.",
	reflect.TypeFor[replay.ItemsWhy]():              "Where the items of a step are that doesn't advance.",
	reflect.TypeFor[replay.ItemsError]():            "An error that items of a step have in common.",
	reflect.TypeFor[consoleapi.CommandList]():       "The commands to a task.",
	reflect.TypeFor[consoleapi.CommandChoice]():     "Whether a command is allowed. The scheduler decides when the command arrives, and the state can change until then.",
	reflect.TypeFor[consoleapi.Definition]():        "A version of a workflow.",
	reflect.TypeFor[consoleapi.StepGraph]():         "The graph of a workflow's steps.",
	reflect.TypeFor[consoleapi.TaskGraph]():         "The graph of a task's steps.",
	reflect.TypeFor[consoleapi.DefinitionDiff]():    "What differs between two versions of a workflow.",
	reflect.TypeFor[consoleapi.SourceLine]():        "A line of a comparison of two texts.",
	reflect.TypeFor[consoleapi.DefinitionDraft]():   "A definition that isn't applied.",
	reflect.TypeFor[consoleapi.DefinitionCheck]():   "Whether a definition can be used, and what it would change.",
	reflect.TypeFor[consoleapi.DefinitionFault]():   "A fault of a definition.",
	reflect.TypeFor[consoleapi.ApplyCommand]():      "Applies a definition.",
	reflect.TypeFor[consoleapi.AppliedDefinition](): "A definition that is applied.",
	reflect.TypeFor[consoleapi.DryRunCommand]():     "Selects the tasks that are simulated under a definition.",
	reflect.TypeFor[consoleapi.DryRun]():            "What would become of tasks under a definition.",
	reflect.TypeFor[consoleapi.CourseDifference]():  "A difference that tasks have in common.",
	reflect.TypeFor[consoleapi.DryRunSample]():      "A task of a difference.",
	reflect.TypeFor[consoleapi.DryRunLeftOut]():     "Tasks that weren't simulated, for one reason.",
	reflect.TypeFor[graph.Vertex]():                 "A step in a graph.",
	reflect.TypeFor[graph.Drawing]():                "The layout of a graph, from left to right. All numbers are whole CSS pixels.",
	reflect.TypeFor[graph.Box]():                    "A box of a drawing: a step, or several that are folded.",
	reflect.TypeFor[graph.Edge]():                   "A line of a drawing.",
	reflect.TypeFor[consoleapi.BatchCommand]():      "Creates a batch: one command to many tasks.",
	reflect.TypeFor[consoleapi.BatchAnswer]():       "The tasks of a batch, and the batch if it was created.",
	reflect.TypeFor[consoleapi.BatchLeft]():         "A task that a batch leaves out.",
	reflect.TypeFor[consoleapi.Batch]():             "One command to many tasks.",
	reflect.TypeFor[consoleapi.BatchList]():         "A list of batches.",
	reflect.TypeFor[consoleapi.BatchResults]():      "A page of the results of a batch.",
	reflect.TypeFor[consoleapi.StopCommand]():       "Stops a batch.",
	reflect.TypeFor[batch.Group]():                  "Tasks of a batch that are alike.",
	reflect.TypeFor[batch.Result]():                 "The result of a task of a batch.",
	reflect.TypeFor[events.IntakeView]():            "The record that an intake turned into a submission.",
	reflect.TypeFor[IntakeList]():                   "A list of intakes.",
	reflect.TypeFor[intake.IntakeStatus]():          "An intake, which turns the records of another application's topic into submissions or signals.",
	reflect.TypeFor[intake.IntakePartition]():       "Where an intake is in a partition of its topic.",
	reflect.TypeFor[intake.IntakeDeadletters]():     "How many dead letters an intake has.",
	reflect.TypeFor[consoleapi.IntakeCommand]():     "A command to an intake.",
	reflect.TypeFor[consoleapi.IntakeResult]():      "What a command did to an intake.",
	reflect.TypeFor[ScheduleList]():                 "A list of schedules.",
	reflect.TypeFor[consoleapi.ScheduleCommand]():   "A command to a schedule.",
	reflect.TypeFor[consoleapi.BackfillCommand]():   "Starts the tasks of past instants of a schedule.",
	reflect.TypeFor[consoleapi.ScheduleResult]():    "What a command did to a schedule.",
	reflect.TypeFor[schedule.Schedule]():            "A schedule, which starts tasks at set times.",
	reflect.TypeFor[schedule.ScheduleInstant]():     "The outcome of an instant of a schedule.",
	reflect.TypeFor[consoleapi.Incomplete]():        "A partition that is missing from an answer or is incomplete in it, and the reason.",
	reflect.TypeFor[consoleapi.Unreadable]():        "A record of a task that is not an event, or is corrupt.",
	reflect.TypeFor[consoleapi.Problem]():           "An error as in RFC 9457.",
}

// paramSchemas are the schemas of the types of parameters.
var paramSchemas = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[taskID]():          {Type: "string", MinLength: jsonschema.Ptr(1)},
	reflect.TypeFor[taskOffset]():      {Type: "string", Pattern: "^(" + consoleapi.LogEnd + "|[0-9]+)$"},
	reflect.TypeFor[listOffsets]():     {Type: "string", Pattern: "^(" + consoleapi.LogEnd + "|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)$"},
	reflect.TypeFor[workflowName]():    {Type: "string", MinLength: jsonschema.Ptr(1)},
	reflect.TypeFor[workflowVersion](): {Type: "integer", Minimum: jsonschema.Ptr(1.0)},
	reflect.TypeFor[eventSeq]():        {Type: "integer", Minimum: jsonschema.Ptr(1.0)},
	reflect.TypeFor[pageSize]():        sizeSchema(pageDefault, pageMax),
}

// sizeSchema is the schema of a parameter that parseSize parses.
func sizeSchema(absent, most int) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(float64(most)), Default: json.RawMessage(strconv.Itoa(absent))}
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
	addEnum(s, "The outcome of an attempt, as a check found it.", []events.Became{events.BecameCompleted, events.BecameNone, events.BecameUnknown})
	addEnum(s, "A command to a task.", events.Commands)
	addEnum(s, "Why a task or a step doesn't advance.", replay.Reasons)
	addEnum(s, "The result of a task of a batch. waiting: it has no command yet. sent: the command isn't answered yet. passed: accepted, and the fault did not recur. recurred: accepted, and the task is held again. unanswered: the command is sent again.", batch.Statuses)
	s.addComponent(reflect.TypeFor[submission](), "Submission")
	s.enums["Submission"] = submissionSchema()
	s.reach(reflect.TypeFor[consoleapi.Changes]()) // of a stream
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
		panic(fmt.Sprintf("console: the schema of %s: %v", t, err)) // TestOpenAPIDescribesEverything makes all
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

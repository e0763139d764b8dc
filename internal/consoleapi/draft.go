package consoleapi

import "github.com/waybill-run/waybill/events"

// DefinitionDraft is the text of a definition that isn't applied yet.
type DefinitionDraft struct {
	Definition string `json:"definition" jsonschema:"The definition, in YAML or JSON."`
}

// DefinitionCheck is what a console says of a definition that isn't applied yet.
type DefinitionCheck struct {
	Faults      []DefinitionFault `json:"faults" jsonschema:"What is wrong, in the order of the text. Empty: the definition can be used."`
	Definition  *Definition       `json:"definition,omitempty" jsonschema:"The definition. Absent: it has faults."`
	Applied     string            `json:"applied,omitempty" enum:"no,same,other" jsonschema:"no: this version isn't applied. same: it is, with this body. other: it is, with another body; a version never changes."`
	NextVersion int               `json:"next_version,omitempty" jsonschema:"The version after the newest that the console knows. Absent: the definition has faults."`
	Diff        *DefinitionDiff   `json:"diff,omitempty" jsonschema:"What differs from the newest version. Absent: there is none, or the definition has faults."`
}

// DefinitionFault is a fault of a definition.
type DefinitionFault struct {
	Line   int    `json:"line,omitempty" jsonschema:"The line, from 1. Absent: unknown."`
	Column int    `json:"column,omitempty" jsonschema:"The column in the line, in characters from 1. Without a line: in the expression. Absent: unknown."`
	Path   string `json:"path,omitempty" jsonschema:"The path in the definition, such as steps.charge.input.amount. Absent: it is about the whole text."`
	What   string `json:"what" jsonschema:"What is wrong."`
	Fix    string `json:"fix,omitempty" jsonschema:"What to do about it. Absent: unknown."`
}

// ApplyCommand applies a definition.
type ApplyCommand struct {
	Definition string `json:"definition" jsonschema:"The definition, in YAML or JSON."`
	Reason     string `json:"reason" jsonschema:"Why. It is written to the log, with the definition."`
}

// The results of an ApplyCommand.
const (
	ResultApplied   = "applied"
	ResultUnchanged = "unchanged"
)

// AppliedDefinition is the result of an ApplyCommand.
type AppliedDefinition struct {
	Workflow string   `json:"workflow" jsonschema:"The name of the workflow."`
	Version  int      `json:"version" jsonschema:"The version."`
	Result   string   `json:"result" enum:"applied,unchanged" jsonschema:"unchanged: the version existed with this body."`
	Agents   []string `json:"agents" jsonschema:"The agents of its steps and undos. Each has a request topic now."`
}

// DryRunCommand says which tasks are simulated under a definition.
type DryRunCommand struct {
	Definition string `json:"definition" jsonschema:"The definition, in YAML or JSON."`
	Filter     string `json:"filter,omitempty" jsonschema:"Terms as in GET /tasks. They select among the tasks of the definition's workflow. Without a term state: those that have ended."`
	Limit      int    `json:"limit,omitempty" jsonschema:"The maximum number of tasks, up to 500. Those that were submitted last come first. Absent: 100."`
	Assume     string `json:"assume,omitempty" enum:"completed,failed,rejected,silent" jsonschema:"The answer to attempts without a recorded answer. Absent: completed."`
}

// DryRun is what would become of tasks under a definition. Nothing was executed.
type DryRun struct {
	Workflow    string             `json:"workflow" jsonschema:"The name of the workflow."`
	Version     int                `json:"version" jsonschema:"The version of the definition."`
	Tasks       int                `json:"tasks" jsonschema:"The number of simulated tasks."`
	Same        int                `json:"same" jsonschema:"Those with the same events. Waits between attempts aren't compared."`
	Differ      int                `json:"differ" jsonschema:"Those with other events, or that would stall."`
	Assumed     int                `json:"assumed" jsonschema:"Simulated tasks in which assumed answers had an effect."`
	More        bool               `json:"more" jsonschema:"true: more tasks match."`
	Differences []CourseDifference `json:"differences" jsonschema:"What differs, the most frequent first. At most 50."`
	LeftOff     int                `json:"left_off" jsonschema:"The number of further differences."`
	LeftOut     []DryRunLeftOut    `json:"left_out" jsonschema:"Tasks that match and weren't simulated."`
	AsOf        []events.AsOf      `json:"as_of" jsonschema:"What the choice of the tasks reflects, by partition."`
	Incomplete  []Incomplete       `json:"incomplete" jsonschema:"Partitions that are missing or incomplete. Empty: none."`
}

// CourseDifference is a difference that tasks have in common.
type CourseDifference struct {
	Event     string           `json:"event,omitempty" jsonschema:"The type of the first event that only one course has. Absent: the events are the same, and the task stalls."`
	Step      string           `json:"step,omitempty" jsonschema:"The step of that event. Absent: it has none."`
	In        string           `json:"in,omitempty" enum:"then,otherwise" jsonschema:"The course that has it. then: the one under the definition. otherwise: the recorded one; of an open task, the one under its own definition."`
	Otherwise events.TaskState `json:"otherwise" jsonschema:"The state at the end without the definition."`
	Then      events.TaskState `json:"then" jsonschema:"The state at the end under the definition."`
	Stalled   string           `json:"stalled,omitempty" jsonschema:"Why the tasks neither end nor are held under the definition. Absent: they do."`
	Commands  bool             `json:"commands,omitempty" jsonschema:"true: operators sent commands to the tasks. Commands aren't simulated, so the courses may differ for that reason alone."`
	Tasks     int              `json:"tasks" jsonschema:"The number of tasks."`
	Samples   []DryRunSample   `json:"samples" jsonschema:"The first of them, at most 5."`
}

// DryRunSample is a task of a difference.
type DryRunSample struct {
	Task string `json:"task" jsonschema:"The task's id."`
	At   uint64 `json:"at" jsonschema:"The seq of the last event that both courses share before the simulation. A fork from there on shows both courses."`
}

// DryRunLeftOut are tasks that weren't simulated, for one reason.
type DryRunLeftOut struct {
	Why     string   `json:"why" enum:"time,events,unreadable,definition,refused" jsonschema:"time: the bound of a dry run was reached. events: the task has more events than a dry run reads. unreadable: one of its events can't be read. definition: the task is open, and its own definition can't be found. refused: it can't be simulated under this definition."`
	Tasks   int      `json:"tasks" jsonschema:"The number of tasks."`
	Samples []string `json:"samples" jsonschema:"The ids of the first of them, at most 5."`
	Detail  string   `json:"detail,omitempty" jsonschema:"What was said of the first. Absent: nothing."`
}

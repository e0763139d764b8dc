package consoleapi

import "github.com/waybill-run/waybill/events"

// ForkRequest says how a task is simulated.
type ForkRequest struct {
	At         uint64 `json:"at,omitempty" jsonschema:"The seq of the last event that both courses share. If it is within a decision, the simulation begins before that decision. Absent: the last event of the task."`
	Version    int    `json:"version,omitempty" jsonschema:"The version of the task's workflow to simulate it under, also a deleted one."`
	Definition string `json:"definition,omitempty" jsonschema:"Instead of a version: the definition, in YAML."`
	Assume     string `json:"assume,omitempty" enum:"completed,failed,rejected,silent" jsonschema:"The answer to attempts without a recorded answer. Absent: completed."`
}

// Fork is a task under another definition, from one of its events on, and what happened. Nothing was executed.
type Fork struct {
	Task     string      `json:"task" jsonschema:"The task's id."`
	At       uint64      `json:"at" jsonschema:"The seq of the last event that both courses share."`
	LastSeq  uint64      `json:"last_seq" jsonschema:"The seq of the last recorded event."`
	Workflow string      `json:"workflow" jsonschema:"The name of the workflow."`
	Recorded ForkCourse  `json:"recorded" jsonschema:"What happened."`
	Forked   ForkCourse  `json:"forked" jsonschema:"What would have happened."`
	Assumed  int         `json:"assumed" jsonschema:"The number of assumed answers that had an effect, silence included."`
	Stalled  string      `json:"stalled,omitempty" jsonschema:"Why the simulated task neither ended nor is held. Absent: it ended or is held."`
	LeftOut  []uint64    `json:"left_out" jsonschema:"The recorded events that operators' commands led to: their seqs, the first of each command. Commands aren't simulated."`
	PartAt   *int        `json:"part_at,omitempty" jsonschema:"The index of the first row that only one course has. Absent: both have the same events."`
	Rows     []ForkRow   `json:"rows" jsonschema:"The events after at, aligned."`
	State    *Task       `json:"task_after" jsonschema:"The simulated task after its last event."`
	AsOf     events.AsOf `json:"as_of" jsonschema:"What the recorded course reflects."`
}

// ForkCourse is one of two courses of a task.
type ForkCourse struct {
	Version int              `json:"version" jsonschema:"The version of the definition."`
	State   events.TaskState `json:"state" jsonschema:"The state at the end of the course."`
	Error   *events.Error    `json:"error" jsonschema:"The task's error. null: none."`
	Events  int              `json:"events" jsonschema:"The number of events after at."`
	EndsAt  string           `json:"ends_at,omitempty" format:"date-time" jsonschema:"When the last of them was decided. Absent: there is none."`
}

// ForkRow is an event that both courses have, or one of them.
type ForkRow struct {
	Recorded *events.Line `json:"recorded,omitempty" jsonschema:"The recorded event. Absent: it didn't happen."`
	Forked   *events.Line `json:"forked,omitempty" jsonschema:"The simulated event, whose offset is empty. Absent: it wouldn't have happened."`
	Assumed  bool         `json:"assumed,omitempty" jsonschema:"true: the simulated event results from an assumed answer."`
}

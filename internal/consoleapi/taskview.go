package consoleapi

import (
	"encoding/json"

	"github.com/waybill-run/waybill/events"
)

// WhoAmI is who sent a request, and what he may do.
type WhoAmI struct {
	Name     string   `json:"name" jsonschema:"The name of the token. Without tokens: the name of the console's local user."`
	By       string   `json:"by" enum:"token,local" jsonschema:"How the console knows. token: by a bearer token. local: the console has no tokens and serves users of its machine."`
	Role     string   `json:"role" jsonschema:"The role."`
	Roles    []string `json:"roles" jsonschema:"The role and all that it includes. An operation is permitted if its x-role is one of them."`
	ReadOnly string   `json:"read_only,omitempty" jsonschema:"Why the console takes no submissions and no commands, for people. Absent: the caller's role decides."`
	File     string   `json:"file,omitempty" jsonschema:"The exported file that the console serves. Absent: it serves a log."`
}

// Change is a field that changed.
type Change struct {
	Path   string          `json:"path" jsonschema:"The path of the field, with dots. A step is named by its id."`
	Before json.RawMessage `json:"before" jsonschema:"The field before: any JSON. null: it was absent."`
	After  json.RawMessage `json:"after" jsonschema:"The field after: any JSON. null: it is absent."`
}

// TaskAtEvent is a task as of one of its events.
type TaskAtEvent struct {
	Task    string      `json:"task" jsonschema:"The task's id."`
	Seq     uint64      `json:"seq" jsonschema:"The number of the event."`
	LastSeq uint64      `json:"last_seq" jsonschema:"The number of the task's last event."`
	Event   events.Line `json:"event" jsonschema:"The event."`
	Changes []Change    `json:"changes" jsonschema:"What the event changed, by path. Input, output and labels are compared as a whole. The fields as_of and updated_at are left out."`
	State   *Task       `json:"state" jsonschema:"The task after the event. null: no event up to it can be folded."`
	Fault   string      `json:"fault,omitempty" jsonschema:"Why the event, or one before it, can't be folded. The state is that before the first such event. Absent: it can be."`
	AsOf    events.AsOf `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

// Chain is what the events of a task show of its history.
type Chain struct {
	Task      string       `json:"task" jsonschema:"The task's id."`
	Events    int          `json:"events" jsonschema:"The number of its events."`
	Unbroken  bool         `json:"unbroken" jsonschema:"true: the check found no fault."`
	Sealed    bool         `json:"sealed" jsonschema:"true: the last event has its own checksum. false: a change of it shows when the next event follows."`
	LastHash  string       `json:"last_hash,omitempty" jsonschema:"The hash of the last event, to compare with one that was noted elsewhere. Absent: it can't be read."`
	Faults    []ChainFault `json:"faults" jsonschema:"What is broken: the first fault of the history, and what its end shows."`
	Unchecked []string     `json:"unchecked" jsonschema:"What the events of one task can't show, for people. waybill verify checks it."`
	AsOf      events.AsOf  `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

// ChainFault is a fault of a task's history.
type ChainFault struct {
	Promise string `json:"promise" jsonschema:"The broken promise, such as P2."`
	Seq     uint64 `json:"seq,omitempty" jsonschema:"The number of the event. Absent: the fault is of no event, or its number can't be read."`
	Offset  string `json:"offset,omitempty" jsonschema:"The offset of the event, as a string. Absent: the fault is of no event."`
	What    string `json:"what" jsonschema:"What is wrong, for people."`
}

// CommandList lists the commands to a task.
type CommandList struct {
	Task     string           `json:"task" jsonschema:"The task's id."`
	State    events.TaskState `json:"state" jsonschema:"The state of the task."`
	Commands []CommandChoice  `json:"commands" jsonschema:"The commands, refused ones included, and the signals that steps of the plan wait for."`
	AsOf     events.AsOf      `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

// CommandChoice says whether a command is allowed, as of an offset. The scheduler decides when the command arrives.
type CommandChoice struct {
	Command   string           `json:"command" enum:"cancel,resubmit,undo,release,migrate,signal" jsonschema:"The command, or signal."`
	Keep      bool             `json:"keep,omitempty" jsonschema:"Of cancel: the body's keep."`
	Processed bool             `json:"processed,omitempty" jsonschema:"Of undo: the body's processed."`
	Step      string           `json:"step,omitempty" jsonschema:"Of resubmit and release: the body's step."`
	As        events.StepState `json:"as,omitempty" enum:"completed,undone" jsonschema:"Of release: the body's as."`
	Version   int              `json:"version,omitempty" jsonschema:"Of migrate: the body's version."`
	Name      string           `json:"name,omitempty" jsonschema:"Of signal: its name."`
	Allowed   bool             `json:"allowed" jsonschema:"true: the task's state allows it, and the caller has the role."`
	RefusedBy string           `json:"refused_by,omitempty" enum:"state,role,read_only" jsonschema:"What refuses it first. state: the task's state. role: the caller's role. read_only: the console takes no commands. Absent: nothing."`
	Why       string           `json:"why,omitempty" jsonschema:"Why it is refused, for people. Absent: it isn't."`
	Role      string           `json:"role" jsonschema:"The role that it needs."`
}

// ItemStates are the states by which items are listed.
var ItemStates = []string{"pending", "running", "completed", "error", "undoing", "undone", "held"}

// ItemPage is a page of the items of a step.
type ItemPage struct {
	Task          string            `json:"task" jsonschema:"The task's id."`
	Step          string            `json:"step" jsonschema:"The step."`
	Items         []events.ItemView `json:"items" jsonschema:"The items, in their order. Empty: the step runs once, or hasn't begun."`
	NextPageToken string            `json:"next_page_token" jsonschema:"Continues the list. Empty: this is the last page."`
	AsOf          events.AsOf       `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

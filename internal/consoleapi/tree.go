package consoleapi

import "github.com/waybill-run/waybill/events"

// The bounds of a tree.
const (
	TreeItemsDefault = 5      // items of each step that are in it
	TreeLinesMax     = 10_000 // events of all its tasks
)

// TaskTree is a task with its children, their children, and so on.
type TaskTree struct {
	Task  string        `json:"task" jsonschema:"The task's id."`
	Tasks []TreeTask    `json:"tasks" jsonschema:"The tasks: each before its children, which are in the order of their starts. Among the items of a step, those that failed or are held come first, then those that run."`
	Lines []events.Line `json:"lines" jsonschema:"The events of these tasks by time, those of a task in their order. Events of items that aren't in the tree are left out. Empty unless lines is true."`
	More  []TreeMore    `json:"more" jsonschema:"The children that are left out, by task and step. Empty: none are."`
	Left  int           `json:"left_off" jsonschema:"The number of children that are left out. Their own children aren't counted."`
	AsOf  events.AsOf   `json:"as_of" jsonschema:"The part of the log that the answer reflects of the task's partition."`
}

// TreeTask is a task in a tree.
type TreeTask struct {
	Task     string           `json:"task" jsonschema:"The task's id."`
	Depth    int              `json:"depth" jsonschema:"How many tasks of the tree are above it. 0: the task of the request."`
	Parent   string           `json:"parent,omitempty" jsonschema:"The task above it. Absent: none."`
	Step     string           `json:"step,omitempty" jsonschema:"The step of the task above it that started it."`
	Item     *int             `json:"item,omitempty" jsonschema:"The index of the item that the task is for. Absent: it is for no item."`
	Workflow string           `json:"workflow,omitempty" jsonschema:"The name of its workflow."`
	Version  int              `json:"version,omitempty" jsonschema:"The version of its workflow."`
	State    events.TaskState `json:"state,omitempty" jsonschema:"The state of the task. Absent: it isn't known."`
	Error    *events.Error    `json:"error,omitempty" jsonschema:"Why it is held, or is being or was undone. Absent: no error."`
	Events   int              `json:"events" jsonschema:"The number of its events."`
	LeftOut  int              `json:"lines_left_out,omitempty" jsonschema:"Its events that aren't in lines: those of items that aren't in the tree, those past 10,000 or 16 MiB of the whole tree, and unreadable ones. Absent: none."`
	Missing  string           `json:"missing,omitempty" jsonschema:"Why nothing is known of it, for people: its submission was refused, or waits. Absent: it is known."`
}

// TreeMore says how many children of a step are left out of a tree.
type TreeMore struct {
	Task  string `json:"task" jsonschema:"The task."`
	Step  string `json:"step" jsonschema:"The step whose children are left out."`
	Count int    `json:"count" jsonschema:"How many."`
	Items bool   `json:"items,omitempty" jsonschema:"true: they are items, which /tasks/{id}/steps/{step}/items lists."`
}

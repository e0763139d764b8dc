package consoleapi

import "github.com/waybill-run/waybill/events"

// SystemAsOf is the system at an instant.
type SystemAsOf struct {
	At            string                     `json:"at" format:"date-time" jsonschema:"The instant."`
	Final         bool                       `json:"final" jsonschema:"true: the answer can't change any more. false: the instant is so recent that events of it may still be written, or partitions are incomplete."`
	States        map[events.TaskState]int64 `json:"states" jsonschema:"The number of tasks by state, at that instant."`
	Workflows     []VersionAsOf              `json:"workflows" jsonschema:"The same by workflow version."`
	Open          int64                      `json:"open" jsonschema:"The number of tasks that had not ended."`
	Unreadable    int64                      `json:"unreadable" jsonschema:"The number of tasks with an event that can't be read. They are counted as of the event before it."`
	Oldest        *TaskAsOf                  `json:"oldest" jsonschema:"The open task that was submitted first. null: none was open."`
	OldestHeld    *TaskAsOf                  `json:"oldest_held" jsonschema:"The held task that had had no event for the longest time. null: none was held."`
	Matched       int                        `json:"matched" jsonschema:"The number of listed tasks: those that match the filter, and were open or in a state that the filter names."`
	Tasks         []TaskAsOf                 `json:"tasks" jsonschema:"A page of these tasks, the newest submission first."`
	NextPageToken string                     `json:"next_page_token,omitempty" jsonschema:"The token of the next page. Absent: this is the last one."`
	AsOf          []events.AsOf              `json:"as_of" jsonschema:"The part of the log that the answer reflects, by partition."`
	Incomplete    []Incomplete               `json:"incomplete" jsonschema:"Partitions that are missing or incomplete, and why. Empty: the answer is complete."`
}

// VersionAsOf counts the tasks of a workflow version at an instant.
type VersionAsOf struct {
	Workflow string                     `json:"workflow" jsonschema:"The name of the workflow."`
	Version  int                        `json:"version" jsonschema:"The version."`
	States   map[events.TaskState]int64 `json:"states" jsonschema:"The number of its tasks by state."`
}

// TaskAsOf is a task at an instant.
type TaskAsOf struct {
	Seq  uint64             `json:"seq" jsonschema:"The number of its last event up to the instant: /tasks/{id}/states?seq= has the whole state."`
	Task events.SummaryView `json:"task" jsonschema:"The task at the instant."`
}

package consoleapi

import "github.com/waybill-run/waybill/events"

// Prediction is an estimate of when a task will be processed.
type Prediction struct {
	EndsAt       *string  `json:"ends_at" format:"date-time" jsonschema:"When the task is processed, if each step of the critical path takes as long as 95 % of its runs did. The sum of several such steps errs on the late side. Steps without samples count as 0. Waits for the concurrency limits of agents aren't in it."`
	Misses       bool     `json:"misses" jsonschema:"true: ends_at is after complete_by, and there are at least 20 samples."`
	CriticalPath []string `json:"critical_path" jsonschema:"The remaining steps that decide ends_at, in their order."`
	Samples      int64    `json:"samples" jsonschema:"The number of durations that the estimate is made of: the smallest of a step of the critical path. They are of the last 7 to 14 days."`
	Unknown      []string `json:"without_samples,omitempty" jsonschema:"Remaining steps without samples. ends_at is then a lower bound. Absent: none."`
}

// PredictedTask is a task that must end soon.
type PredictedTask struct {
	ID         string      `json:"id" jsonschema:"The task's id."`
	Workflow   string      `json:"workflow" jsonschema:"The name of the workflow."`
	Version    int         `json:"version" jsonschema:"The version of the workflow."`
	CompleteBy *string     `json:"complete_by" format:"date-time" jsonschema:"The instant by which the task must have finished."`
	Prediction *Prediction `json:"prediction" jsonschema:"The estimate. null: there is none, since a child or an item is held, no duration of its steps is known, or the console doesn't know its definition."`
}

// PredictionList lists tasks that must end soon.
type PredictionList struct {
	WithinMS    int64           `json:"within_ms" jsonschema:"Only tasks whose complete_by is within this time were looked at, in milliseconds."`
	Looked      int             `json:"looked_at" jsonschema:"The number of tasks that were looked at: those that must end first."`
	LookedAll   bool            `json:"looked_at_all" jsonschema:"false: more tasks must end within the time. They weren't looked at."`
	WillMiss    int             `json:"will_miss" jsonschema:"The number of tasks that were looked at and will miss their deadline, by the estimate."`
	Unpredicted int             `json:"unpredicted" jsonschema:"The number of tasks that were looked at and have no estimate."`
	Tasks       []PredictedTask `json:"tasks" jsonschema:"The tasks, by complete_by."`
	AsOf        []events.AsOf   `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete  []Incomplete    `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

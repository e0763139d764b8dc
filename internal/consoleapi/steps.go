package consoleapi

import "github.com/waybill-run/waybill/events"

// StepList is what happens at the steps of a workflow's version.
type StepList struct {
	Workflow     string                     `json:"workflow" jsonschema:"The name of the workflow."`
	Version      int                        `json:"version" jsonschema:"The version."`
	Tasks        map[events.TaskState]int64 `json:"tasks" jsonschema:"The number of its tasks by state."`
	Steps        []StepCounts               `json:"steps" jsonschema:"The steps, in the order of the definition. If the definition is gone: those that a task has reached, by name."`
	DurationDays int                        `json:"duration_days" jsonschema:"Durations cover at least the last 7 days, and at most this number of days."`
	AsOf         []events.AsOf              `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete   []Incomplete               `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

// StepCounts is what happens at a step.
type StepCounts struct {
	Step  string   `json:"step" jsonschema:"The step."`
	At    StepAt   `json:"at" jsonschema:"The number of open tasks that are at the step now: at its operation, its undo or its check."`
	Held  int64    `json:"held" jsonschema:"The number of held tasks with this step in error."`
	Do    StepRun  `json:"do" jsonschema:"Its operation. The duration of a step that waits for an instant or a signal is the time that it waited."`
	Undo  StepRun  `json:"undo" jsonschema:"Its undo."`
	Check *StepRun `json:"check,omitempty" jsonschema:"Its check, without durations. Absent: none was made."`
}

// StepAt is the number of open tasks at a step by what they do there. A held task that isn't held by this step counts if
// an attempt still runs.
type StepAt struct {
	Running int64 `json:"running" jsonschema:"An attempt runs, or the step waits for an instant or a signal."`
	Waiting int64 `json:"waiting" jsonschema:"The next attempt, or the next call of a repeat, is due later."`
	Failed  int64 `json:"failed" jsonschema:"An attempt has failed, and what follows isn't decided yet."`
}

// StepRun is what happened to a step's operation, undo or check, since the log begins.
type StepRun struct {
	Attempts  int64    `json:"attempts" jsonschema:"The number of requests that were sent, those of a repeat too. Of a step that calls no agent: how often it began to wait."`
	Failures  int64    `json:"failures" jsonschema:"The number of attempts that failed or expired, or whose request could not be sent."`
	Completed int64    `json:"completed" jsonschema:"How often it was completed: by an attempt, by a check that found it completed, by a signal, or at the end of a wait. Of a check: how often it was answered."`
	Errored   int64    `json:"errored" jsonschema:"How often it was rejected or given up. A step that waits for a signal is given up at the end of its time."`
	Skipped   int64    `json:"skipped" jsonschema:"How often its when was false."`
	Caught    int64    `json:"caught" jsonschema:"How often the task continued after it ended in error. It is counted as errored, too."`
	Repeated  int64    `json:"repeated" jsonschema:"The number of calls of a repeat that completed and didn't end the step."`
	Released  int64    `json:"released" jsonschema:"How often an operator recorded its result by hand. It isn't counted as completed."`
	Duration  *Latency `json:"duration" jsonschema:"How long it took if it was completed: from the start of its first attempt since the submission or the last resubmit, with all retries, backoffs and calls of a repeat. null: not known."`
}

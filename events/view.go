package events

import (
	"encoding/json"
	"strconv"
	"time"
)

// TaskView is a task in the JSON of the API and the CLI. It differs from the stored form.
type TaskView struct {
	ID           string            `json:"id" jsonschema:"The task's id, which its submitter chose."`
	Workflow     string            `json:"workflow" jsonschema:"The name of the workflow."`
	Version      int               `json:"version" jsonschema:"The version of the workflow."`
	State        TaskState         `json:"state" jsonschema:"The state of the task."`
	LockedBy     *string           `json:"locked_by" jsonschema:"The scheduler that owns the task's partition, according to the last claim of the partition. It is null while the task is pending."`
	CompleteBy   *string           `json:"complete_by" format:"date-time" jsonschema:"The instant by which the task must have finished. It is null while the task is pending."`
	FailureCount int               `json:"failure_count" jsonschema:"The number of failed and expired attempts of all steps. It never falls."`
	Priority     int               `json:"priority" jsonschema:"The priority from the submission. Steps of tasks with a higher priority start first."`
	Labels       map[string]string `json:"labels" jsonschema:"The labels from the submission."`
	Parent       *ParentView       `json:"parent,omitempty" jsonschema:"The step that the task is a child of. Absent: the task is no child."`
	ReplyTo      *string           `json:"reply_to" jsonschema:"The topic that receives the task's changes of state. null: none."`
	SubmittedAt  *string           `json:"submitted_at" format:"date-time" jsonschema:"When a scheduler accepted the task."`
	UpdatedAt    *string           `json:"updated_at" format:"date-time" jsonschema:"When the task's last event was decided."`
	Input        json.RawMessage   `json:"input" jsonschema:"The input from the submission: any JSON."`
	Output       json.RawMessage   `json:"output" jsonschema:"The output of the task: any JSON. It is null until the task is processed."`
	Error        *Error            `json:"error" jsonschema:"Why the task is held, or is being or was undone. null: no error."`
	Steps        []StepView        `json:"steps" jsonschema:"The steps, in the order of the workflow's definition."`
	// WaitingSignals are Task.WaitingSignals of a task that takes signals.
	WaitingSignals []string `json:"waiting_signals,omitempty" jsonschema:"The names of the signals that running steps wait for, in the order of the steps. Absent: none."`
	// Intake is absent for tasks that an application submitted.
	Intake *IntakeView `json:"intake,omitempty" jsonschema:"The record that an intake turned into the task's submission. Absent: an application submitted it."`
	AsOf   AsOf        `json:"as_of" jsonschema:"The part of the log that the answer reflects."`
}

// StepView is a step of a TaskView.
type StepView struct {
	ID           string          `json:"id" jsonschema:"The name of the step."`
	StepKind     StepKind        `json:"kind,omitempty" jsonschema:"The kind of the step, such as wait. Absent: it calls an agent."`
	State        StepState       `json:"state" jsonschema:"The state of the step."`
	Attempt      int             `json:"attempt" jsonschema:"The number of the last attempt. 0: none has started."`
	FailureCount int             `json:"failure_count" jsonschema:"The number of failed and expired attempts since the submission, the last resubmit, or the last call of a repeat that completed."`
	Calls        int             `json:"calls,omitempty" jsonschema:"The number of calls of a repeat that completed and didn't end it, since the submission or the last resubmit. Absent: none."`
	CompleteBy   *string         `json:"complete_by" format:"date-time" jsonschema:"The instant by which the running attempt must have finished. null: no attempt is running."`
	Agent        string          `json:"agent" jsonschema:"The agent that does the step."`
	Operation    string          `json:"operation" jsonschema:"The agent's operation."`
	Child        *ChildView      `json:"child,omitempty" jsonschema:"The child task of the last attempt. Absent: none."`
	StartedAt    *string         `json:"started_at" format:"date-time" jsonschema:"When the first attempt started. null: none has started."`
	EndedAt      *string         `json:"ended_at" format:"date-time" jsonschema:"When the step ended. null: it hasn't ended."`
	Input        json.RawMessage `json:"input" jsonschema:"The input of the last attempt: any JSON. It is null until an attempt has started."`
	Output       json.RawMessage `json:"output" jsonschema:"The output of the step: any JSON. It is null until the step is completed. While a step is repeated, it is the output of the last call."`
	Error        *Error          `json:"error" jsonschema:"Why the last attempt failed. null: it didn't fail."`
	Progress     json.RawMessage `json:"progress,omitempty" jsonschema:"The last progress that the agent reported: any JSON. Absent: none, or the step is completed."`
	ProgressAt   *string         `json:"progress_at,omitempty" format:"date-time" jsonschema:"When the agent reported the last progress."`
	Items        *ItemsView      `json:"items,omitempty" jsonschema:"Of a step that runs for each item of a list: where the items are. Absent: the step is another one, or hasn't begun."`
	Undo         *UndoView       `json:"undo" jsonschema:"The undo of the step. null: no undo has begun."`
	Check        *CheckView      `json:"check,omitempty" jsonschema:"The last check of the step: its agent was asked what became of an attempt with an unknown effect. Absent: none has begun."`
}

// CheckView is the last check of a StepView.
type CheckView struct {
	State        StepState `json:"state" jsonschema:"The state of the check."`
	Attempt      int       `json:"attempt" jsonschema:"The number of the last attempt to check the step."`
	FailureCount int       `json:"failure_count" jsonschema:"The number of failed and expired attempts of the last check."`
	CompleteBy   *string   `json:"complete_by" format:"date-time" jsonschema:"The instant by which the running attempt must have finished. null: no attempt is running."`
	Error        *Error    `json:"error" jsonschema:"Why the last attempt failed, or why its answer can't be used. null: it didn't fail."`
	Became       Became    `json:"became,omitempty" jsonschema:"What became of the step's last attempt, according to the last check that ended: completed, none or unknown. Absent: no check has ended."`
}

// UndoView is the undo of a StepView.
type UndoView struct {
	State        StepState       `json:"state" jsonschema:"The state of the undo."`
	Attempt      int             `json:"attempt" jsonschema:"The number of the last attempt to undo the step."`
	FailureCount int             `json:"failure_count" jsonschema:"The number of failed and expired attempts to undo the step, since the undo began or the last resubmit."`
	CompleteBy   *string         `json:"complete_by" format:"date-time" jsonschema:"The instant by which the running attempt must have finished. null: no attempt is running."`
	Error        *Error          `json:"error" jsonschema:"Why the last attempt failed. null: it didn't fail."`
	Progress     json.RawMessage `json:"progress,omitempty" jsonschema:"The last progress that the agent reported: any JSON. Absent: none, or the undo is completed."`
	ProgressAt   *string         `json:"progress_at,omitempty" format:"date-time" jsonschema:"When the agent reported the last progress."`
}

// AsOf says which part of the log an answer reflects: everything of the partition below the offset. Offsets are
// strings, since they can exceed 2^53.
type AsOf struct {
	Partition int32  `json:"partition" jsonschema:"The partition of waybill.events."`
	Offset    string `json:"offset" jsonschema:"The offset. It is a string, since it can exceed 2^53."`
}

// View returns a task in JSON form. owner is the owner by the partition's last claim. next is the offset below which
// the log is reflected.
func (t *Task) View(owner string, partition int32, next int64) TaskView {
	v := TaskView{
		ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State,
		FailureCount: t.FailureCount, Priority: t.Priority, Labels: t.Labels,
		ReplyTo: text0(t.ReplyTo), SubmittedAt: InstantText(t.SubmittedAt), UpdatedAt: InstantText(t.UpdatedAt),
		Input: orNull(t.Input), Output: orNull(t.Output), Error: t.Error, Intake: t.Intake.view(),
		AsOf: AsOf{partition, strconv.FormatInt(next, 10)}, Parent: t.Parent.view(),
	}
	if t.State != StatePending {
		v.LockedBy, v.CompleteBy = text0(owner), InstantText(t.CompleteBy)
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if t.TakesSignals() {
		v.WaitingSignals = t.WaitingSignals()
	}
	v.Steps = make([]StepView, len(t.Steps))
	for i := range t.Steps {
		v.Steps[i] = t.stepView(i)
	}
	return v
}

func (t *Task) stepView(i int) StepView {
	s, p := t.Steps[i], &t.Plan.Steps[i]
	x := s.Interim()
	v := StepView{
		ID: p.ID, StepKind: p.StepKind, State: s.State, Attempt: s.Attempt, FailureCount: s.FailureCount, Calls: x.Calls,
		CompleteBy: InstantText(s.CompleteBy), Agent: p.Agent, Operation: p.Operation,
		StartedAt: InstantText(s.StartedAt), EndedAt: InstantText(s.EndedAt),
		Input: orNull(s.Input), Output: orNull(s.Output), Error: s.Error, Progress: x.Progress, ProgressAt: InstantText(x.ProgressAt),
		Items: s.Items.view(), Child: t.childView(i),
	}
	if u := s.Undo; u != nil {
		x := u.Interim()
		v.Undo = &UndoView{u.State, u.Attempt, u.FailureCount, InstantText(u.CompleteBy), u.Error, x.Progress, InstantText(x.ProgressAt)}
	}
	if c := s.Check; c != nil {
		v.Check = &CheckView{c.State, c.Attempt, c.FailureCount, InstantText(c.CompleteBy), c.Error, s.KindState().Became}
	}
	return v
}

// InstantText returns an instant by TimeLayout for JSON; nil (null) for the zero time.
func InstantText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(TimeLayout)
	return &s
}

func text0(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

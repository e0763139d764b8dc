package events

import (
	"encoding/json"
	"strconv"
	"time"
)

// TaskView is a task in the JSON of the API and the CLI. It differs from the stored form.
type TaskView struct {
	ID           string            `json:"id"`
	Workflow     string            `json:"workflow"`
	Version      int               `json:"version"`
	State        TaskState         `json:"state"`
	LockedBy     *string           `json:"locked_by"`
	CompleteBy   *string           `json:"complete_by"`
	FailureCount int               `json:"failure_count"`
	Priority     int               `json:"priority"`
	Labels       map[string]string `json:"labels"`
	ReplyTo      *string           `json:"reply_to"`
	SubmittedAt  *string           `json:"submitted_at"`
	UpdatedAt    *string           `json:"updated_at"`
	Input        json.RawMessage   `json:"input"`
	Output       json.RawMessage   `json:"output"`
	Error        *Error            `json:"error"`
	Steps        []StepView        `json:"steps"`
	AsOf         AsOf              `json:"as_of"`
}

// StepView is a step of a TaskView.
type StepView struct {
	ID           string          `json:"id"`
	StepKind     StepKind        `json:"kind,omitempty"` // absent: a call
	State        StepState       `json:"state"`
	Attempt      int             `json:"attempt"`
	FailureCount int             `json:"failure_count"`
	CompleteBy   *string         `json:"complete_by"`
	Agent        string          `json:"agent"`
	Operation    string          `json:"operation"`
	StartedAt    *string         `json:"started_at"`
	EndedAt      *string         `json:"ended_at"`
	Input        json.RawMessage `json:"input"`
	Output       json.RawMessage `json:"output"`
	Error        *Error          `json:"error"`
	Undo         *UndoView       `json:"undo"`
}

// UndoView is the undo of a StepView.
type UndoView struct {
	State        StepState `json:"state"`
	Attempt      int       `json:"attempt"`
	FailureCount int       `json:"failure_count"`
	CompleteBy   *string   `json:"complete_by"`
	Error        *Error    `json:"error"`
}

// AsOf says which part of the log an answer reflects: everything of the partition below the offset. Offsets are
// strings, since they can exceed 2^53.
type AsOf struct {
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
}

// View returns a task in JSON form. owner is the owner by the partition's last claim. next is the offset below which
// the log is reflected.
func (t *Task) View(owner string, partition int32, next int64) TaskView {
	v := TaskView{
		ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State,
		FailureCount: t.FailureCount, Priority: t.Priority, Labels: t.Labels,
		ReplyTo: text0(t.ReplyTo), SubmittedAt: InstantText(t.SubmittedAt), UpdatedAt: InstantText(t.UpdatedAt),
		Input: orNull(t.Input), Output: orNull(t.Output), Error: t.Error,
		AsOf: AsOf{partition, strconv.FormatInt(next, 10)},
	}
	if t.State != StatePending {
		v.LockedBy, v.CompleteBy = text0(owner), InstantText(t.CompleteBy)
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	v.Steps = make([]StepView, len(t.Steps))
	for i := range t.Steps {
		v.Steps[i] = t.stepView(i)
	}
	return v
}

func (t *Task) stepView(i int) StepView {
	s, p := t.Steps[i], &t.Plan.Steps[i]
	v := StepView{
		ID: p.ID, StepKind: p.StepKind, State: s.State, Attempt: s.Attempt, FailureCount: s.FailureCount,
		CompleteBy: InstantText(s.CompleteBy), Agent: p.Agent, Operation: p.Operation,
		StartedAt: InstantText(s.StartedAt), EndedAt: InstantText(s.EndedAt),
		Input: orNull(s.Input), Output: orNull(s.Output), Error: s.Error,
	}
	if u := s.Undo; u != nil {
		v.Undo = &UndoView{u.State, u.Attempt, u.FailureCount, InstantText(u.CompleteBy), u.Error}
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

package waybill

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/logclient"
)

// Task is a task as of a position of the log: the order and its state. AsOf is that position. Its
// JSON is that of `waybill task get`.
type Task = events.TaskView

// State is the state of a task.
type State = events.TaskState

// The states of a task. Undone and Cancelled are final. Processed is the end of a task unless an operator has it undone
// later. A task that is Held waits for an operator; on the wire and in JSON that state is "error".
const (
	Pending    = events.StatePending
	Processing = events.StateProcessing
	Processed  = events.StateProcessed
	Held       = events.StateError
	Undoing    = events.StateUndoing
	Undone     = events.StateUndone
	Cancelled  = events.StateCancelled
)

// Order is a submission: it asks for one run of a workflow. ID and Workflow are required.
type Order struct {
	// ID becomes the task's id: 1 to 256 bytes of UTF-8 without control characters. It is the
	// idempotency key: the same order again has no effect, and another order under a used id is refused.
	ID string
	// Workflow and Version name the definition. Version 0 is the newest one.
	Workflow string
	Version  int
	// Input is encoded as JSON; a json.RawMessage is passed as it is. The whole submission is limited
	// to events.MaxSubmissionBytes.
	Input any
	// ReplyTo is a topic outside of the namespace that receives the task's states; empty: none.
	ReplyTo string
	// Priority orders steps that wait for the same agent: the higher starts first.
	Priority int
	// Labels are for queries. They, and Priority, are visible to expressions. At most 32.
	Labels map[string]string
	// CompleteBy shortens the workflow's deadline for this task; zero, or later than that: no effect.
	// It is an instant of the brokers' clock, in milliseconds.
	CompleteBy time.Time
	// Traceparent is a W3C trace context that requests carry; empty: none.
	Traceparent string
}

// submission encodes the order.
func (o *Order) submission(ns events.Namespace, source string) (*logclient.Submission, error) {
	s := &events.Submission{ID: o.ID, Workflow: o.Workflow, Version: o.Version, ReplyTo: o.ReplyTo,
		Priority: o.Priority, Labels: o.Labels, CompleteBy: o.CompleteBy, Traceparent: o.Traceparent}
	if o.Input != nil {
		var err error
		if s.Input, err = events.EncodeJSON(o.Input); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
	return logclient.NewSubmission(ns, source, s)
}

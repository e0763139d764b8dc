package waybill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Task is a task as the log shows it: the order and its state in one. AsOf
// names the part of the log that it reflects. Its JSON is that of `waybill task
// get`.
type Task = events.TaskView

// State is the state of a task.
type State = events.TaskState

// The states of a task. Processed, Undone and Cancelled are the ends. Held is
// written "error": the task waits for an operator.
const (
	Pending    = events.StatePending
	Processing = events.StateProcessing
	Processed  = events.StateProcessed
	Held       = events.StateError
	Undoing    = events.StateUndoing
	Undone     = events.StateUndone
	Cancelled  = events.StateCancelled
)

// Order is what is to be done: a submission. ID and Workflow are required.
type Order struct {
	// ID names the task, 1 to 256 bytes of UTF-8 without control characters.
	// It is the idempotency key: the same order again changes nothing, another
	// order under a used id is refused.
	ID string
	// Workflow and Version name the definition; version 0 is the newest.
	Workflow string
	Version  int
	// Input is what JSON can encode, or a json.RawMessage; with the rest at
	// most events.MaxSubmissionBytes.
	Input any
	// ReplyTo is a topic, not of the namespace, to be told of the task's states;
	// empty: none.
	ReplyTo string
	// Priority says which tasks' steps go first where they wait for an agent: the higher. It
	// and Labels, at most 32, are passed on to queries and to expressions.
	Priority int
	Labels   map[string]string
	// CompleteBy bounds the task where it is earlier than the workflow's own
	// bound; zero: that one. It counts in milliseconds of the brokers' clock.
	CompleteBy time.Time
	// Traceparent is a W3C trace context, passed on; empty: none.
	Traceparent string
}

// record makes the order's record, and reads it as the scheduler will: what
// that one would refuse for its form is an error here already.
func (o *Order) encode(ns events.Namespace, source string) (events.Record, *events.Submission, error) {
	s := &events.Submission{ID: o.ID, Workflow: o.Workflow, Version: o.Version, ReplyTo: o.ReplyTo,
		Priority: o.Priority, Labels: o.Labels, CompleteBy: o.CompleteBy, Traceparent: o.Traceparent}
	if o.Input != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // it is no page, and bytes are passed on as they are
		if err := e.Encode(o.Input); err != nil {
			return events.Record{}, nil, fmt.Errorf("order %q: input: %w", o.ID, err)
		}
		s.Input = bytes.TrimSpace(b.Bytes())
	}
	if err := s.Check(); err != nil {
		return events.Record{}, nil, fmt.Errorf("order %q: %w", o.ID, err)
	}
	r := s.Record(ns, source)
	_, in, err := events.DecodeInput(events.Tasks, &r)
	if err != nil {
		return r, nil, fmt.Errorf("order %q: %w", o.ID, err)
	}
	if u := ns.CheckReplyTo(o.ReplyTo); u != nil {
		return r, nil, fmt.Errorf("order %q: %s", o.ID, u.Detail)
	}
	return r, in.(*events.Submission), nil
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Handler does the work of one agent. Handle is called concurrently, at most Config.Concurrency times at once.
//
// The output is encoded as JSON, at most 256 KiB; nil is null. A larger output puts the step in error, though
// its work was done. One of more than events.MaxReplyBytes is replied as a failure with unknown effect.
//
// The error says how the call failed: see Rejected, Transient, RetryAfter and NoEffect. Any other error, and a
// panic, is a failure with unknown effect. It is replied at once, and the step is tried again as its
// workflow says.
//
// ctx is done at the request's complete-by, after which no reply is sent; when the process leaves the group and
// its grace is over; and after Handle has returned and its reply was sent. A Handler that ignores ctx counts
// towards Config.Concurrency until it returns.
//
// The same request can be delivered again, even after its reply. A service recognizes it by the idempotency key,
// and its earlier answer must stay true:
//
//   - The work of a key that was rejected must never be done.
//   - A request that failed with NoEffect must have no effect when it is delivered again under its ID. The
//     next attempt, with another ID, may have one.
//   - Undoing what never happened must succeed.
type Handler interface {
	Handle(ctx context.Context, r Request) (output any, err error)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, r Request) (output any, err error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r Request) (any, error) { return f(ctx, r) }

// Downstreamer is a Handler that names the downstream of a request. Each downstream has a circuit breaker, and another
// one for undos. An open circuit stops all requests that share it, so the name should include the operation if
// operations can fail separately. Without Downstreamer the operation is the name.
//
// Downstream is called concurrently. It must return quickly, and at most 1,024 different names: further ones share a
// circuit. If it panics, the request is replied as failed without effect.
type Downstreamer interface {
	Downstream(r Request) string
}

// Do, Undo and Check are the kinds of request. A check asks what became of an operation whose effect is unknown: reply to
// it with a CheckResult.
const (
	Do    = events.Do
	Undo  = events.Undo
	Check = events.Check
)

// CheckResult is what a handler returns for a check. BecameNone promises that the operation had no effect, and that the
// attempts made so far will have none. Another attempt with the same key may follow.
type CheckResult struct {
	Outcome events.Became `json:"outcome"` // BecameCompleted, BecameNone or BecameUnknown
	Output  any           `json:"output,omitempty"`
}

// The outcomes of a check.
const (
	BecameCompleted = events.BecameCompleted
	BecameNone      = events.BecameNone
	BecameUnknown   = events.BecameUnknown
)

// Request is one attempt at an operation. Input and the fields of UndoOf alias the record and must not be
// changed.
type Request struct {
	ID             string // "<task>/<step>/<do|undo|check>/<attempt>"
	Task           string
	Step           string
	Kind           events.Kind // Do, Undo or Check
	Attempt        int         // from 1
	Operation      string
	IdempotencyKey string          // the same for every attempt at the step; another for its undo
	CompleteBy     time.Time       // by the brokers' clock; no reply is sent from then on
	Input          json.RawMessage // one JSON value; for an undo with undo_of
	UndoOf         *events.UndoOf  // for an undo: what it undoes; else nil
	CheckOf        *events.CheckOf // for a check: what it asks about; else nil
	Traceparent    string          // W3C trace context, or empty
	// Heartbeat is the longest silence between two calls of Progress; 0: none is needed.
	Heartbeat time.Duration
	// Progress is the last recorded one of an earlier attempt; empty: none. See LastProgress.
	Progress json.RawMessage

	token string // secret of the attempt; its reply repeats it
}

// Into decodes the input into v. Its error is a rejection, because the same input can't be decoded later
// either.
func (r Request) Into(v any) error {
	if err := json.Unmarshal(r.Input, v); err != nil {
		return Rejected(CodeBadInput, fmt.Sprintf("input of %s: %v", r.Operation, err))
	}
	return nil
}

// LastProgress decodes the last recorded progress of an earlier attempt into v. Without one it leaves v unchanged. The work may have got
// further than that: what the service stored under the idempotency key counts.
func (r Request) LastProgress(v any) error {
	if len(r.Progress) == 0 {
		return nil
	}
	return json.Unmarshal(r.Progress, v)
}

// valueError is the error of a request whose headers can be used and whose value can't.
type valueError struct{ err error }

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

// failure is the reply to such a request. The handler isn't called.
func (e *valueError) failure() *Failure {
	return &Failure{Code: CodeBadInput, Message: "the request can't be read: " + e.Error(), NoEffect: true, Neutral: true}
}

// newRequest decodes a record of a request topic. With a valueError the request is complete except for UndoOf and
// CheckOf.
func newRequest(rec *events.Record) (Request, error) {
	q, err := events.DecodeRequest(rec)
	if err != nil {
		return Request{}, err
	}
	r := Request{
		ID: events.RequestID(q.Task, q.Ref), Task: q.Task, Step: q.Ref.Step, Kind: q.Ref.Kind, Attempt: q.Ref.Attempt,
		Operation: q.Operation, IdempotencyKey: q.IdempotencyKey, CompleteBy: q.CompleteBy,
		Input: q.Value, Traceparent: q.Traceparent, Heartbeat: q.Heartbeat, Progress: q.Progress, token: q.Token,
	}
	if err := events.CheckRequestJSON(q.Value); err != nil {
		return r, &valueError{fmt.Errorf("its value: %w", err)}
	}
	switch r.Kind {
	case Undo:
		r.UndoOf, err = undoOf(q.Value)
	case Check:
		r.CheckOf, err = checkOf(q.Value)
	case Do:
	}
	if err != nil {
		return r, &valueError{err}
	}
	return r, nil
}

func checkOf(value json.RawMessage) (*events.CheckOf, error) {
	var v struct {
		CheckOf *struct {
			IdempotencyKey string          `json:"idempotency_key"`
			Input          json.RawMessage `json:"input"`
		} `json:"check_of"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("the value of a check: %w", err)
	}
	if v.CheckOf == nil || v.CheckOf.IdempotencyKey == "" {
		return nil, errors.New("the value of a check needs check_of with its idempotency_key")
	}
	c := events.CheckOf(*v.CheckOf)
	return &c, nil
}

func undoOf(value json.RawMessage) (*events.UndoOf, error) {
	var v struct {
		UndoOf *struct {
			IdempotencyKey string          `json:"idempotency_key"`
			Outcome        string          `json:"outcome"`
			Input          json.RawMessage `json:"input"`
			Output         json.RawMessage `json:"output"`
		} `json:"undo_of"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("the value of an undo: %w", err)
	}
	if v.UndoOf == nil || v.UndoOf.IdempotencyKey == "" {
		return nil, errors.New("the value of an undo needs undo_of with its idempotency_key")
	}
	u := events.UndoOf(*v.UndoOf)
	return &u, nil
}

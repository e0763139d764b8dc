package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Handler does the work of one agent. Handle is called from many goroutines at
// once, at most Config.Concurrency.
//
// The output is what JSON can encode, at most 256 KiB of it; nil is null. With a larger one the
// step is in error, though its work was done; one of more than events.MaxReplyBytes can't be sent,
// and is replied as a failure whose effect is unknown.
//
// The error says how it failed: see Rejected, Transient, RetryAfter and
// NoEffect. Any other error is a failure whose effect is unknown, replied at once
// and tried again as the workflow says. A panic is such a failure too.
//
// ctx ends at the request's complete-by, after which nothing is sent, or when
// the process leaves and its grace is over. A Handler that ignores it keeps
// its place among the concurrent ones until it returns. It ends, too, once Handle
// has returned, and its reply is sent.
//
// The same request can come again, also after it was answered: the idempotency
// key is how a service recognises it, and what was answered must stay true. A key
// that was rejected must never happen, and a request that failed with NoEffect
// must do nothing when it comes again under its ID; the next attempt may. Undoing
// what never happened must succeed.
type Handler interface {
	Handle(ctx context.Context, r Request) (output any, err error)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, r Request) (output any, err error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r Request) (any, error) { return f(ctx, r) }

// Downstreamer is a Handler that says what a request depends on. Each downstream that it names has a circuit
// breaker of its own, and another one for undos. Downstream must be quick and return few different names (see
// circuitsMax). If it panics the request is replied as failed, without effect. The requests of a Handler without
// it depend on their operation. Name the operation, too, where operations can fail one by one: an open circuit
// stops all requests that share it.
type Downstreamer interface {
	Downstream(r Request) string
}

// Do and Undo are the kinds of request.
const (
	Do   = events.Do
	Undo = events.Undo
)

// Request is one attempt at an operation. Input, and what UndoOf holds, alias
// the record and must not be changed.
type Request struct {
	ID             string // "<task>/<step>/<do|undo>/<attempt>"
	Task           string
	Step           string
	Kind           events.Kind // Do or Undo
	Attempt        int         // from 1
	Operation      string
	IdempotencyKey string          // the same for every attempt at the step; another for its undo
	CompleteBy     time.Time       // by the broker's clock; nothing is sent from then on
	Input          json.RawMessage // one JSON value; of an undo the whole value, undo_of included
	UndoOf         *events.UndoOf  // of an undo: what is to be undone; else nil
	Traceparent    string          // W3C trace context, or empty

	token string // of the attempt: the reply repeats it. It is nobody else's business.
}

// Into decodes the input into v. Its error is a rejection: the same input won't
// be understood the next time either.
func (r Request) Into(v any) error {
	if err := json.Unmarshal(r.Input, v); err != nil {
		return Rejected(CodeBadInput, fmt.Sprintf("input of %s: %v", r.Operation, err))
	}
	return nil
}

// newRequest reads a record of a request topic.
func newRequest(rec *events.Record) (Request, error) {
	q, err := events.DecodeRequest(rec)
	if err != nil {
		return Request{}, err
	}
	if !events.ValidJSON(q.Value) {
		return Request{}, errors.New("the request's value is no JSON in UTF-8")
	}
	r := Request{
		ID: events.RequestID(q.Task, q.Ref), Task: q.Task, Step: q.Ref.Step, Kind: q.Ref.Kind, Attempt: q.Ref.Attempt,
		Operation: q.Operation, IdempotencyKey: q.IdempotencyKey, CompleteBy: q.CompleteBy,
		Input: q.Value, Traceparent: q.Traceparent, token: q.Token,
	}
	if r.Kind == Undo {
		r.UndoOf, err = undoOf(q.Value)
	}
	return r, err
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

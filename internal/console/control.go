package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

type submitRequest struct{ Body submission }

// submission is a submission as on waybill.tasks.
type submission json.RawMessage

// submit writes a submission in the format of `waybill.tasks`. Repeating it changes nothing: the id is the
// idempotency key.
func (c *call) submit(request *submitRequest) (*consoleapi.Submitted, error) {
	plain := events.Record{Topic: c.cfg.Namespace.Inbox(events.Tasks), Value: request.Body}
	id, in, err := events.DecodeInput(events.Tasks, &plain)
	if err != nil {
		return nil, unprocessable("%v", err)
	}
	order := in.(*events.Submission)
	if u := c.cfg.Namespace.CheckReplyTo(order.ReplyTo); u != nil {
		return nil, unprocessable("%s", u.Detail)
	}
	if err := c.checkWorkflow(order); err != nil {
		return nil, err
	}
	p := events.Partition([]byte(id), c.cfg.Partitions)
	earlier := c.forgettable(id, p)
	if err := c.cfg.Log.Submit(c.r.Context(), order.Record(c.cfg.Namespace, c.cfg.Source)); err != nil {
		return nil, unavailable("the submission may not have been written; submit it again (it doesn't run twice): %v; `waybill doctor` shows what is wrong", err)
	}
	c.w.Header().Set("Location", api+consoleapi.TaskPath(id))
	c.status = http.StatusAccepted
	answer := &consoleapi.Submitted{ID: id}
	if order.Version != 0 {
		if d := c.deprecation(order.Workflow, order.Version); d != nil {
			answer.Deprecated = d.Why
		}
	}
	s := c.awaitIndexed(id, p, 1, earlier)
	if s == nil {
		return answer, nil
	}
	if same, err := c.sameOrder(id, p, order); err != nil {
		return nil, err
	} else if !same {
		return nil, refused("a task %q with another body exists already; its state is %s", consoleapi.Printable(id), s.State)
	}
	c.status = http.StatusCreated
	answer.State, answer.AsOf = s.State, s.asOf
	return answer, nil
}

// forgettable returns the row of an ended task whose id may be forgotten by now; nil: there is none. A submission may
// create another task with the id.
func (c *call) forgettable(id string, p int32) *events.Summary {
	if found, _ := c.cfg.Index.Find(p, id); found.Summary != nil && found.Summary.Forgettable(c.cfg.Now()) {
		return found.Summary
	}
	return nil
}

// checkWorkflow rejects a submission of a workflow that wasn't applied. Before it rejects, it reads the
// definitions to their end.
func (c *call) checkWorkflow(order *events.Submission) error {
	if c.hasWorkflow(order.Workflow, order.Version) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.indexed)
	defer cancel()
	if err := c.cfg.Cluster.ReadWorkflows(ctx); err != nil {
		return unavailable("can't check whether workflow %q exists: %v", consoleapi.Printable(order.Workflow), err)
	}
	switch has := c.hasWorkflow(order.Workflow, order.Version); {
	case !has && order.Version == 0 && c.hasWorkflow(order.Workflow, anyVersion):
		return unprocessable("every version of workflow %q is deprecated; name one of them", consoleapi.Printable(order.Workflow))
	case !has:
		return unprocessable("no workflow %q with that version was applied; %s/workflows lists them", consoleapi.Printable(order.Workflow), api)
	}
	return nil
}

// anyVersion is a version that was applied, deprecated or not.
const anyVersion = -1

// hasWorkflow reports whether a new task can have a version; 0: one that isn't deprecated.
func (c *Console) hasWorkflow(name string, version int) bool {
	for _, w := range c.cfg.Cluster.Workflows() {
		if w.Name == name && (version == anyVersion || version == w.Version || version == 0 && w.Deprecated == nil) {
			return true
		}
	}
	return false
}

// sameOrder reports whether the existing task was created by this submission.
func (c *call) sameOrder(id string, p int32, order *events.Submission) (bool, error) {
	found, _ := c.cfg.Index.Find(p, id)
	if len(found.Places) == 0 {
		return false, nil
	}
	first, corruption, err := c.cfg.Log.ReadAt(c.r.Context(), p, []int64{found.Places[0].Offset})
	switch {
	case errors.Is(err, ErrUnavailable):
		return false, unavailable("the submission was written, but can't check whether task %q existed already: %v; submit it again (it doesn't run twice)", consoleapi.Printable(id), err)
	case err != nil:
		return false, err
	case len(corruption) > 0:
		return false, unreadableProblem("the submission was written, but can't check whether task %q existed already with another body: %v", consoleapi.Printable(id), corruption[0].Err)
	case len(first) != 1:
		return false, unreadableProblem("the first event of task %q is no longer in the log", consoleapi.Printable(id))
	}
	e, err := events.DecodeEvent(&first[0])
	if err != nil {
		return false, unreadableProblem("the first event of task %q can't be used: %v", consoleapi.Printable(id), err)
	}
	received, ok := e.Fact.(*events.TaskReceived)
	return ok && received.Digest == order.Digest(), nil
}

// indexedTask is a task as of the index.
type indexedTask struct {
	State events.TaskState
	asOf  *events.AsOf
}

// awaitIndexed waits until the index has applied an event of a task. nil: not within timeouts.indexed; the write is then
// answered without as_of. earlier is a row that doesn't count until it changes: it may be that of an earlier task with
// the id; nil: there is none.
func (c *call) awaitIndexed(id string, p int32, seq uint64, earlier *events.Summary) *indexedTask {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.indexed)
	defer cancel()
	news, stop := c.cfg.Index.Subscribe()
	defer stop()
	for {
		found, begun := c.cfg.Index.Find(p, id)
		if !begun {
			return nil
		}
		if sum := found.Summary; sum != nil && sum.Seq >= seq && (earlier == nil || sum.From != earlier.From || sum.Seq != earlier.Seq) {
			s := &indexedTask{State: sum.State}
			if offset, ok := offsetOf(found.Places, seq); ok {
				s.asOf = &events.AsOf{Partition: p, Offset: strconv.FormatInt(offset+1, 10)}
			}
			return s
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}

// commandRequest is an operator's command. B is its body.
type commandRequest[B any] struct {
	taskPath
	Body B
}

func (c *call) cancel(r *commandRequest[consoleapi.CancelCommand]) (*consoleapi.CommandResult, error) {
	return c.control(r.Task, &r.Body.CommandBody, &events.Control{Command: events.Cancel, Keep: r.Body.Keep})
}

func (c *call) resubmit(r *commandRequest[consoleapi.ResubmitCommand]) (*consoleapi.CommandResult, error) {
	return c.control(r.Task, &r.Body.CommandBody, &events.Control{Command: events.Resubmit, Step: r.Body.Step})
}

func (c *call) undo(r *commandRequest[consoleapi.UndoCommand]) (*consoleapi.CommandResult, error) {
	if r.Body.Processed && c.who.role < UndoProcessed {
		return nil, c.roleError(c.who, UndoProcessed)
	}
	return c.control(r.Task, &r.Body.CommandBody, &events.Control{Command: events.UndoTask, Processed: r.Body.Processed})
}

func (c *call) release(r *commandRequest[consoleapi.ReleaseCommand]) (*consoleapi.CommandResult, error) {
	b := &r.Body
	if b.As != events.StepCompleted && b.As != events.StepUndone || b.Step == "" {
		return nil, badRequest(`release needs "step", and "as": "completed" or "undone"`)
	}
	if b.As == events.StepCompleted && b.Output == nil {
		return nil, badRequest(`release as completed needs "output", which later steps read; "output": null if there is none`)
	}
	return c.control(r.Task, &b.CommandBody, &events.Control{Command: events.Release, Step: b.Step, As: b.As, Output: b.Output})
}

func (c *call) migrate(r *commandRequest[consoleapi.MigrateCommand]) (*consoleapi.CommandResult, error) {
	return c.control(r.Task, &r.Body.CommandBody, &events.Control{Command: events.Migrate, Version: r.Body.Version, DryRun: r.Body.DryRun})
}

// control sends a command and waits for the scheduler's answer.
func (c *call) control(task taskID, b *consoleapi.CommandBody, x *events.Control) (*consoleapi.CommandResult, error) {
	if b.Reason == "" {
		return nil, badRequest(`"reason" is missing: it is written to the log`)
	}
	if b.RequestID == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		b.RequestID = made.String()
	}
	id := string(task)
	p := events.Partition([]byte(id), c.cfg.Partitions)
	x.Task, x.By = id, c.operatorOf(b)
	record := x.Record(c.cfg.Namespace, c.cfg.Source)
	if _, _, err := events.DecodeInput(events.Controls, &record); err != nil {
		return nil, unprocessable("%v", err)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
	defer cancel()
	a, err := c.cfg.Log.Control(ctx, x, record)
	switch {
	case errors.Is(err, ErrNotAcknowledged):
		return nil, unavailable("the command may not have been written; send it again with request_id %s: %v; `waybill doctor` shows what is wrong", x.RequestID, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // or the client has gone: the command has been sent all the same
		return nil, noAnswer("no answer within %s; is a scheduler running? The command stays in the log and takes effect when one reads it: to wait for its answer, send it again with request_id %s", c.timeouts.control, x.RequestID)
	case err != nil:
		return nil, unavailable("the command may not have been written; send it again with request_id %s: %v", x.RequestID, err)
	case !a.Accepted && a.State == "" && c.forgettable(id, p) != nil:
		return nil, refused("schedulers don't know task %q any more, because its id was forgotten (dedupe_for of its workflow): it can't be changed (request %s)", consoleapi.Printable(id), x.RequestID)
	case !a.Accepted && a.State == "":
		return nil, notFound("there is no task %q%s", consoleapi.Printable(id), consoleapi.NoTaskAdvice)
	case !a.Accepted:
		return nil, refused("%s (request %s)", a.Reason, x.RequestID)
	}
	done := &consoleapi.CommandResult{Task: id, Command: x.Command, RequestID: x.RequestID, Seq: a.Seq, State: a.State}
	if s := c.awaitIndexed(id, p, a.Seq, nil); s != nil {
		done.AsOf = s.asOf
	}
	return done, nil
}

// operatorOf is who sends a command: the name of the token, or without tokens a local user.
func (c *call) operatorOf(b *consoleapi.CommandBody) events.By {
	by := events.By{Who: c.who.name, Why: b.Reason, RequestID: b.RequestID}
	if c.cfg.Tokens == nil {
		by.Who, by.Claimed = "", c.who.name
	}
	return by
}

package waybill

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/logclient"
)

// CancelOptions says how a task is cancelled, by whom and why. The zero value undoes completed
// steps, in the name of the client.
type CancelOptions struct {
	// Keep keeps the effects of completed steps instead of undoing them.
	Keep bool
	// By names the person or program that cancels. It is written to the log as by_claimed and not
	// verified; at most events.MaxNameBytes. Empty: Config.ClientID.
	By string
	// Why is the reason, for the log; at most events.MaxWhyBytes.
	Why string
	// RequestID makes the command idempotent: a repetition under the same id gets the first
	// answer and is not carried out twice. Empty: a new random id.
	RequestID string
}

// Cancel asks the scheduler to start no further steps of a task, to undo its completed steps, and to
// end it as Cancelled. It returns nil once a scheduler has accepted the command; use Wait for the end
// of the task.
//
// The error wraps ErrNotFound if no task has this id. It is a *RefusedError if the task's state doesn't
// allow a cancel: it has ended or is being undone. If Cancel fails because ctx is done or brokers don't
// answer (ErrUnreachable), the command may have been written and may be carried out later. Repeat it
// under the same RequestID.
func (c *Client) Cancel(ctx context.Context, id string, o CancelOptions) error {
	if o.By == "" {
		o.By = c.cfg.ClientID
	}
	if o.RequestID == "" {
		o.RequestID = uuid.NewString()
	}
	answer, err := c.sendCommand(ctx, &events.Control{Task: id, Command: events.Cancel, Keep: o.Keep,
		By: events.By{Claimed: o.By, Why: o.Why, RequestID: o.RequestID}})
	switch {
	case err != nil:
		return fmt.Errorf("waybill: cancel task %q (request %s): %w", id, o.RequestID, err)
	case answer.Accepted:
		return nil
	case answer.State == "":
		return fmt.Errorf("waybill: cancel task %q: %w in namespace %q", id, ErrNotFound, c.cfg.Namespace)
	}
	return &RefusedError{Task: id, Reason: answer.Reason, State: answer.State}
}

// sendCommand writes a command and waits for its answer.
func (c *Client) sendCommand(ctx context.Context, x *events.Control) (*events.Answer, error) {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	r, err := logclient.CommandRecord(c.cfg.Namespace, c.source, x)
	if err != nil {
		return nil, err
	}
	answer, _, err := logclient.SendCommand(ctx, c.log, c.cfg.Namespace, c.producer.SendOne, x, r)
	if err != nil {
		return nil, c.withCause(ctx, err)
	}
	return answer, nil
}

package waybill

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
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
	answer, err := c.sendControl(ctx, &events.Control{Task: id, Command: events.Cancel, Keep: o.Keep,
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

// sendControl writes a control and waits for its answer.
func (c *Client) sendControl(ctx context.Context, x *events.Control) (*events.Answer, error) {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	if err := x.Check(); err != nil {
		return nil, err
	}
	r := x.Record(c.cfg.Namespace, c.source)
	if _, _, err := events.DecodeInput(events.Controls, &r); err != nil {
		return nil, err
	}
	topic, log := c.cfg.Namespace.Answers(), c.log()
	// Read before the control is written, so that its answer lies at or after these offsets.
	ends, err := log.endOffsets(ctx, topic)
	if err != nil {
		return nil, c.withCause(ctx, err)
	}
	asked := make(chan struct{}, 1)
	failed := make(chan error, 1)
	c.producer.SendAsync(ctx, r, func(_ events.Record, err error) {
		if err != nil {
			failed <- err
			return
		}
		asked <- struct{}{}
	})
	select {
	case err := <-failed:
		return nil, c.withCause(ctx, err)
	case <-ctx.Done():
		return nil, c.closedOr(ctx.Err())
	case <-asked:
		p := events.Partition(r.Key, int32(len(ends)))
		return c.waitForAnswer(ctx, log, p, ends[p], x.RequestID)
	}
}

// waitForAnswer reads the answers from offset next until the one to a control. It retries errors for
// brokerSilenceMax, because the control is already written.
func (c *Client) waitForAnswer(ctx context.Context, log eventLog, p int32, next int64, control string) (found *events.Answer, err error) {
	topic, good := c.cfg.Namespace.Answers(), time.Now()
	for pause := pollPauseMin; ; pause = min(2*pause, pollPauseMax) {
		ends, err := log.endOffsets(ctx, topic)
		if err == nil && ends[p] > next {
			var unread error
			var reached int64
			reached, err = log.read(ctx, topic, p, next, time.Time{}, func(rs []events.Record) error {
				for i := range rs {
					if id, _ := rs[i].Header(events.HeaderID); id == control && found == nil {
						found, unread = events.DecodeAnswer(&rs[i])
					}
				}
				return nil
			})
			if err == nil {
				next = max(next, reached)
			}
			if unread != nil {
				return nil, fmt.Errorf("the command was written, but its answer can't be decoded: %w", unread)
			}
		}
		switch {
		case c.closing.Err() != nil:
			return nil, ErrClosed
		case found != nil:
			return found, nil
		case err == nil:
			good = time.Now()
		case ctx.Err() == nil && time.Since(good) > brokerSilenceMax:
			return nil, fmt.Errorf("the command was written, but its answer can't be read: %w", persistentError(err))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the command was written, but not answered in time; check that a scheduler runs: %w", c.closedOr(ctx.Err()))
		case <-time.After(pause):
		}
	}
}

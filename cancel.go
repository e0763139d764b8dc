package waybill

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
)

// CancelOptions say how a task is cancelled, by whom and why. The zero value
// undoes what was done, in the name of the client.
type CancelOptions struct {
	// Keep leaves what steps completed, instead of undoing it.
	Keep bool
	// By is who cancels, for the log, as claimed (by_claimed); empty: the client's id. At most
	// events.MaxNameBytes.
	By string
	// Why is for the log, too; at most events.MaxWhyBytes.
	Why string
	// RequestID names the command: asked again under the same one, it is
	// answered as before and not done twice. Empty: a new one.
	RequestID string
}

// Cancel has a task start nothing more, undo what was done, and end as
// Cancelled. It returns nil once a scheduler has accepted that; Wait for the
// end of the undo. The error wraps ErrNotFound if there is no such task, and
// is a *RefusedError if its state doesn't allow it (it has ended, or is being
// undone).
//
// If Cancel ends with ctx, the command may be in the log and be carried out
// later. Repeat it under the same RequestID.
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

// command writes a control and waits for its answer.
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
	// Before the control is written: its answer comes after this.
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

// answer waits for the answer to a control, from an offset of the answers on. What passes is
// waited out: the control is written.
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
				return nil, fmt.Errorf("its answer can't be read: %w", unread)
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
			return nil, fmt.Errorf("written, but its answer can't be read: %w", persistentError(err))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("written, but not answered in time; does a scheduler run? %w", c.closedOr(ctx.Err()))
		case <-time.After(pause):
		}
	}
}

package waybill

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/logclient"
)

// SignalOptions says what a signal carries. The zero value carries nothing, in the name of the client.
type SignalOptions struct {
	// Data is encoded as JSON; nil: null. The record has at most events.MaxSignalBytes.
	Data any
	// ID makes the signal idempotent: a repetition under the same task, name and id has no effect. Empty: a new random
	// id, so that a repetition is another signal. At most events.MaxNameBytes.
	ID string
	// By names the person or program that sends the signal. It is written to the log as by_claimed and not
	// verified; at most events.MaxNameBytes. Empty: Config.ClientID.
	By string
}

// Signal sends a signal to a task. A step that waits for a signal of this name completes with it; if the step hasn't
// started, the task keeps the signal until it does. Signal returns nil once all in-sync replicas have it. It doesn't
// wait for a scheduler: a signal that no step can take becomes a dead letter.
//
// If Signal fails because ctx is done or brokers don't answer (ErrUnreachable), the signal may have been written. Repeat
// it under the same SignalOptions.ID.
func (c *Client) Signal(ctx context.Context, task, name string, o SignalOptions) error {
	if o.By == "" {
		o.By = c.cfg.ClientID
	}
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	s := &events.Signal{Task: task, Name: name, ID: o.ID, Claimed: o.By}
	if o.Data != nil {
		var err error
		if s.Data, err = events.EncodeJSON(o.Data); err != nil {
			return fmt.Errorf("waybill: signal %q of task %q: %w", name, task, err)
		}
	}
	r, err := logclient.SignalRecord(c.cfg.Namespace, c.source, s)
	if err != nil {
		return fmt.Errorf("waybill: signal %q of task %q: %w", name, task, err)
	}
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	if _, err := c.producer.SendOne(ctx, r); err != nil {
		return fmt.Errorf("waybill: signal %q of task %q (id %s) may not have been written: %w", name, task, o.ID, c.withCause(ctx, err))
	}
	return nil
}

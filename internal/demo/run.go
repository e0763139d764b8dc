package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

const (
	// patience bounds the time without any progress.
	patience = 60 * time.Second
	// submitBatch is the number of submissions in one write.
	submitBatch = 500
	// progressEvery is the interval of Run.Progress.
	progressEvery = 200 * time.Millisecond
	source        = "waybill/demo" // ce_source
)

// Workflow is the sample workflow with short durations, so that all that can happen happens within seconds.
func Workflow() *workflow.Definition {
	duration := func(d time.Duration) workflow.Duration { return workflow.Duration(d) }
	d := workflow.Order()
	d.CompleteWithin = duration(10 * time.Minute)
	d.Defaults.CompleteWithin = duration(2 * time.Second)
	d.Defaults.Retry = &workflow.Retry{MaxAttempts: downFailures, Backoff: duration(50 * time.Millisecond), Factor: 2,
		Max: duration(400 * time.Millisecond), CoolDown: duration(1500 * time.Millisecond)}
	return d
}

// Run is one run of the demo.
type Run struct {
	Orders    []Order
	Services  *Services
	Namespace events.Namespace
	Send      func(context.Context, ...events.Record) error // returns once all records are acknowledged
	Observer  *Observer                                     // fed with the committed events
	Progress  func(p Progress, last bool)                   // called at progressEvery, and at the end
	Resubmits func(orders int)                              // called before the operator resubmits held orders
	started   time.Time
}

// Do submits the orders, acts as the operator, and returns when every order has ended as it must.
func (r *Run) Do(ctx context.Context) error {
	r.started = time.Now()
	submitted := make(chan error, 1)
	go func() { submitted <- r.submit(ctx) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	operated, moved, before := false, time.Now(), -1
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-submitted:
			if err != nil {
				return fmt.Errorf("submit: %w", err)
			}
			submitted = nil
		case <-r.Observer.changed:
		case <-tick.C:
			r.Progress(r.Observer.progress(), false)
		}
		if !operated && r.allStuckHeld() {
			operated = true
			if err := r.resubmitHeld(ctx); err != nil {
				return err
			}
		}
		if submitted == nil && operated && r.Finished() {
			r.Progress(r.Observer.progress(), true)
			return nil
		}
		if p := r.Observer.progress(); p.Events != before {
			before, moved = p.Events, time.Now()
		} else if time.Since(moved) > patience {
			r.Progress(p, true)
			return fmt.Errorf("no progress for %s; %s", patience, r.unfinished())
		}
	}
}

func (r *Run) submit(ctx context.Context) error {
	batch := make([]events.Record, 0, submitBatch)
	for i, o := range r.Orders {
		s := events.Submission{ID: o.ID, Workflow: "order", Input: o.Body}
		batch = append(batch, s.Record(r.Namespace, source))
		if len(batch) == cap(batch) || i == len(r.Orders)-1 {
			if err := r.Send(ctx, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// allStuckHeld reports whether every order whose undo can't succeed is held.
func (r *Run) allStuckHeld() bool {
	for i := range r.Orders {
		if r.Orders[i].Card == CardStuckUndo && r.Observer.state(r.Orders[i].ID) != events.StateError {
			return false
		}
	}
	return true
}

// resubmitHeld acts as an operator after refunds work again: it resubmits some of the held orders. The others
// stay held.
func (r *Run) resubmitHeld(ctx context.Context) error {
	r.Services.Repair()
	var batch []events.Record
	for _, o := range r.Orders {
		if o.Resubmit {
			x := events.Control{Task: o.ID, Command: events.Resubmit, By: events.By{Claimed: "demo operator", Why: "refunds work again", RequestID: uuid.NewString()}}
			batch = append(batch, x.Record(r.Namespace, source))
		}
	}
	if len(batch) == 0 {
		return nil
	}
	r.Resubmits(len(batch))
	return r.Send(ctx, batch...)
}

// Finished reports whether every order has ended as it must.
func (r *Run) Finished() bool {
	for i := range r.Orders {
		if r.Observer.state(r.Orders[i].ID) != r.Orders[i].WantState() {
			return false
		}
	}
	return true
}

// unfinished says which orders didn't end as they must.
func (r *Run) unfinished() string {
	n, example := 0, ""
	for i := range r.Orders {
		if s := r.Observer.state(r.Orders[i].ID); s != r.Orders[i].WantState() {
			if n++; n == 1 {
				example = fmt.Sprintf("%s (%s) is %q and must end %q", r.Orders[i].ID, r.Orders[i].Card, s, r.Orders[i].WantState())
			}
		}
	}
	return fmt.Sprintf("%s did not end as expected, the first: %s", text.Count(n, "order"), example)
}

// Rate returns how many orders ended in a second so far.
func (r *Run) Rate(ended int) float64 { return float64(ended) / time.Since(r.started).Seconds() }

package schedule

import (
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// missedStepMax bounds the instants that one decision skips because they were missed.
const missedStepMax = 100_000

// allowedMax bounds the decisions of one schedule at a time.
const allowedMax = 100

// Decider decides for a process that has claimed an epoch.
type Decider struct {
	Epoch     int64
	Namespace events.Namespace
}

// Decide returns what is decided of a schedule at an instant: each is a *Start, a *Wait, a *Skipping or a *Finish. They are to be
// written in this order, and the next call needs a state that has them.
func (d *Decider) Decide(k *Kept, now time.Time) (decisions []any) {
	if k.Definition == nil || k.Applied == nil {
		return nil
	}
	for _, o := range k.requests {
		if !o.backfill {
			return append(decisions, d.start(k, o.at, Triggered, o.ID))
		}
	}
	if k.Applied.Paused == nil {
		switch {
		case k.Queued != nil && k.Queued.Before(k.Applied.Since): // it was paused, deleted or changed since
			return append(decisions, &Skipping{Epoch: d.Epoch, At: *k.Queued, Count: 1, Cause: Queue, Why: Missed})
		case k.Queued != nil && len(k.Running) == 0:
			return append(decisions, d.start(k, *k.Queued, Queue, ""))
		}
		if decisions = d.due(k, now); len(decisions) > 0 {
			return decisions
		}
	}
	for _, o := range k.requests {
		if decisions = d.backfill(k, o, now); len(decisions) > 0 {
			break
		}
	}
	return decisions
}

// from returns the instant after which the rule's instants aren't decided.
func (k *Kept) from() time.Time {
	if k.Applied.Since.After(k.Decided) {
		return k.Applied.Since
	}
	return k.Decided
}

// Next returns the next instant of a schedule that isn't paused; zero: there is none.
func (k *Kept) Next() time.Time {
	if k.Definition == nil || k.Applied == nil || k.Applied.Paused != nil {
		return time.Time{}
	}
	if from := k.from(); !k.next.After(from) {
		k.next = k.Definition.rule.Next(from)
	}
	return k.next
}

// due decides the instants of the rule that are due.
func (d *Decider) due(k *Kept, now time.Time) (decisions []any) {
	at := k.Next()
	if at.IsZero() || at.After(now) {
		return nil
	}
	if old := now.Add(-time.Duration(k.Definition.CatchUp)); at.Before(old) {
		return append(decisions, d.missed(k, at, old))
	}
	for n := 0; n < allowedMax && !at.IsZero() && !at.After(now); n++ {
		if len(k.Running)+n == 0 || k.Definition.Overlap == Allow {
			if len(k.Running)+n >= RunningMax {
				return append(decisions, d.skip(at, TooMany))
			}
			decisions = append(decisions, d.start(k, at, Due, ""))
			if k.Definition.Overlap != Allow {
				return decisions
			}
			at = k.Definition.rule.Next(at)
			continue
		}
		return append(decisions, d.overlap(k, at))
	}
	return decisions
}

// missed skips the instants from one on that were missed for too long.
func (d *Decider) missed(k *Kept, at, old time.Time) *Skipping {
	s := &Skipping{Epoch: d.Epoch, At: at, To: at, Count: 1, Cause: Due, Why: Missed}
	for next := k.Definition.rule.Next(at); !next.IsZero() && next.Before(old) && s.Count < missedStepMax; next = k.Definition.rule.Next(next) {
		s.To = next
		s.Count++
	}
	return s
}

// overlap decides an instant while an earlier task hasn't ended.
func (d *Decider) overlap(k *Kept, at time.Time) any {
	switch {
	case k.Definition.Overlap == CancelRunning:
		return &Wait{Epoch: d.Epoch, At: at, Cancel: true}
	case k.Definition.Overlap == QueueOne && k.Queued == nil:
		return &Wait{Epoch: d.Epoch, At: at}
	}
	return d.skip(at, Overlapped)
}

func (d *Decider) skip(at time.Time, why Why) *Skipping {
	return &Skipping{Epoch: d.Epoch, At: at, Count: 1, Cause: Due, Why: why}
}

// start decides to start a task, or to skip the instant if its submission can't be made.
func (d *Decider) start(k *Kept, at time.Time, cause Cause, request string) any {
	s, err := k.Definition.Submission(at, d.Namespace.Schedules())
	if err == nil {
		err = s.Check()
	}
	var r events.Record
	if err == nil { // what a scheduler can't decode has no task, and no answer
		r = s.Record(d.Namespace, "")
		_, _, err = events.DecodeInput(events.Tasks, &r)
	}
	if err != nil {
		return &Skipping{Epoch: d.Epoch, At: at, Count: 1, Cause: cause, Why: Failed, Detail: err.Error(), Request: request}
	}
	return &Start{Epoch: d.Epoch, At: at, Cause: cause, Request: request, Submission: r.Value}
}

// backfill decides the next instants of a backfill. Its tasks start one after another, unless they may overlap. Later instants
// than now are the rule's.
func (d *Decider) backfill(k *Kept, o *openRequest, now time.Time) (decisions []any) {
	at := o.done
	for n := range allowedMax {
		if len(k.Running)+n > 0 && k.Definition.Overlap != Allow || len(k.Running)+n >= RunningMax {
			return decisions
		}
		at = k.Definition.rule.Next(at)
		if at.IsZero() || !at.Before(o.To) || at.After(now) {
			return append(decisions, &Finish{d.Epoch, o.ID})
		}
		decisions = append(decisions, d.start(k, at, Backfilled, o.ID))
	}
	return decisions
}

// Errors of requests.
var (
	// ErrTooManyRequests: RequestsMax triggers and backfills aren't done.
	ErrTooManyRequests = fmt.Errorf("%d triggers and backfills of the schedule aren't done yet, the maximum; wait until one is done", RequestsMax)
	// ErrUnusable: this build can't use the definition.
	ErrUnusable = errors.New("this build can't use the schedule's definition")
	// ErrBadRange is wrapped if the instants can't be backfilled.
	ErrBadRange = errors.New("these instants can't be backfilled")
)

// CheckRequest returns why a schedule takes no trigger or backfill; nil: it does.
func (k *Kept) CheckRequest() error {
	switch {
	case k.Definition == nil:
		return ErrUnusable
	case len(k.requests) >= RequestsMax:
		return ErrTooManyRequests
	}
	return nil
}

// CheckBackfill returns the number of instants from one on, up to another one, which isn't one of them. All of them must be past.
func (k *Kept) CheckBackfill(from, to, now time.Time) (instants int, err error) {
	if err := k.CheckRequest(); err != nil {
		return 0, err
	}
	for at := k.Definition.rule.Next(from.Add(-time.Millisecond)); !at.IsZero() && at.Before(to); at = k.Definition.rule.Next(at) {
		if at.After(now) {
			return 0, fmt.Errorf("%w: %s isn't past; the schedule starts its task then", ErrBadRange, at.UTC().Format(time.RFC3339))
		}
		if instants++; instants > BackfillMax {
			return 0, fmt.Errorf("%w: they are more than %d; split the range", ErrBadRange, BackfillMax)
		}
	}
	if instants == 0 {
		return 0, fmt.Errorf("%w: the schedule has none from %s until %s", ErrBadRange, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	return instants, nil
}

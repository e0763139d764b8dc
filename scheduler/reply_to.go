package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// notice is a notification that isn't finished with.
type pendingNotification struct {
	*events.Record
	delivered bool
}

// replyTo is a topic that tasks name. It is in one of three states:
//
//   - It takes what it is sent: failing is zero, and givenUp is false.
//   - It fails, since failing: what failed is kept in again until nothing is in flight, then goes
//     back to the front of waiting. After a rest one notification is tried.
//   - It is givenUp: its notifications are dead-lettered, but for one at probeAt.
type replyTo struct {
	name     string
	inFlight int
	isQueued bool
	waiting  []*pendingNotification // in order

	failingSince time.Time
	retries      []*pendingNotification // failed, or delivered after one of the same key that failed
	backingOff   bool                   // until it is tried again, or Ensure has answered
	ensureTried  bool                   // Ensure was asked since it failed first
	// ensureError is why Ensure could not create it.
	ensureError error

	givenUp   bool
	lastError error
	probeAt   time.Time
	probeWait time.Duration
	alertAt   time.Time // no alert of it before
}

// may is how many notifications may be in flight to a topic.
func (t *replyTo) inFlightLimit() int {
	switch {
	case t.backingOff:
		return 0
	case t.givenUp, !t.failingSince.IsZero():
		return 1
	}
	return notifyTopicMax
}

// ok is for a topic that takes what it is sent.
func (t *replyTo) markHealthy() {
	t.failingSince, t.givenUp, t.ensureTried, t.ensureError = time.Time{}, false, false, nil
}

// delivered is for a notification that its topic has. One of the same task that came before and
// failed goes after it, so it is sent again: the last that a reader finds is the last status.
func (n *notifier) onDelivered(t *replyTo, x *pendingNotification) {
	if !x.delivered {
		n.cfg.Listener.delivered()
	}
	x.delivered = true
	if slices.ContainsFunc(t.retries, func(y *pendingNotification) bool { return bytes.Equal(x.Key, y.Key) }) {
		t.retries = append(t.retries, x)
		return
	}
	if t.givenUp {
		t.markHealthy()
	}
	n.finish(x.Record)
}

// tooLargeRecord is the error of a record that its topic does not take, whatever becomes of others.
type tooLargeRecord interface {
	error
	TooLarge() (bytes, most int)
}

// failed is for a notification that was not delivered after it had waited for some time.
func (n *notifier) onFailed(ctx context.Context, t *replyTo, x *pendingNotification, waited time.Duration, err error) {
	now := time.Now()
	if _, large := errors.AsType[tooLargeRecord](err); large {
		n.alertFailing(ctx, t, x, err, "this notification is dead-lettered, smaller ones are delivered")
		n.deadletterUndelivered(ctx, t, x, err)
		return
	}
	switch {
	case t.givenUp:
		if t.inFlight == 0 { // it was tried alone
			t.probeWait = min(2*t.probeWait, probeWaitMax)
			t.probeAt, t.lastError = now.Add(t.probeWait), err
			n.alertFailing(ctx, t, x, err, "its notifications are dead-lettered")
		}
		n.deadletterUndelivered(ctx, t, x, err)
	case waited >= sendWithin, !t.failingSince.IsZero() && now.Sub(t.failingSince) >= failingMax:
		t.retries = append(t.retries, x)
		n.giveUp(ctx, t, err)
	default:
		if t.failingSince.IsZero() {
			t.failingSince = now
		}
		t.retries, t.lastError = append(t.retries, x), err
	}
}

// giveUp has what waits for a topic dead-lettered, with one alert.
func (n *notifier) giveUp(ctx context.Context, t *replyTo, err error) {
	if t.ensureError != nil {
		err = fmt.Errorf("%w; it could not be created: %w", err, t.ensureError)
	}
	failed := t.retries
	if !t.givenUp {
		t.givenUp, t.lastError, t.failingSince, t.retries, t.backingOff = true, err, time.Time{}, nil, false
		t.probeWait = probeWaitMin
		t.probeAt = time.Now().Add(t.probeWait)
	}
	failed = append(failed, t.waiting...)
	t.waiting = nil
	for i, x := range failed {
		if i == 0 {
			n.alertFailing(ctx, t, x, err, "its notifications are dead-lettered")
		}
		n.deadletterUndelivered(ctx, t, x, err)
	}
}

// landed is for a topic to which nothing is in flight any more. What failed goes first when it is
// tried again.
func (n *notifier) onIdle(ctx context.Context, t *replyTo) {
	if len(t.retries) == 0 {
		if !t.givenUp {
			t.markHealthy()
		}
		return
	}
	slices.SortStableFunc(t.retries, func(a, b *pendingNotification) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	t.waiting, t.retries, t.backingOff = append(t.retries, t.waiting...), nil, true
	rested := func() {
		t.backingOff = false
		n.sendWaiting(ctx, t)
	}
	if n.cfg.Ensure == nil || t.ensureTried {
		time.AfterFunc(retryReplyToAfter, func() { n.post(rested) })
		return
	}
	t.ensureTried = true
	go func() {
		err := n.ensure(ctx, t.name)
		n.post(func() {
			if t.ensureError = err; err == nil {
				t.failingSince = time.Now() // from now on it should be there
			}
			rested()
		})
	}()
}

// ensure creates a topic that is missing. Few are created at once: each may take long, and
// keeps nothing else waiting.
func (n *notifier) ensure(ctx context.Context, topic string) error {
	select {
	case n.creating <- struct{}{}:
		defer func() { <-n.creating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, ensureWithin)
	defer cancel()
	return n.cfg.Ensure(bounded, topic)
}

// alert says that a topic fails, once in a while.
func (n *notifier) alertFailing(ctx context.Context, t *replyTo, x *pendingNotification, err error, then string) {
	now := time.Now()
	if now.Before(t.alertAt) {
		return
	}
	t.alertAt = now.Add(notifyAlertEvery)
	a := &events.Alert{Task: string(x.Key), Code: string(events.ReasonUndeliverable), At: events.Millis(n.cfg.Clock.Now()),
		Message: fmt.Sprintf("reply_to %q can't be written to: %v; %s", t.name, err, then)}
	n.sendUntilWritten(ctx, a.Record(n.cfg.Namespace, n.cfg.Source, "undeliverable/"+events.Origin(x.Record)), rewriteWaitMin, func() {})
}

// undeliverable dead-letters a notification, unless its topic has it.
func (n *notifier) deadletterUndelivered(ctx context.Context, t *replyTo, x *pendingNotification, err error) {
	if x.delivered {
		n.finish(x.Record)
		return
	}
	n.cfg.Listener.undelivered(t.name, err)
	n.deadletter(ctx, x.Record, &events.Unusable{Reason: events.ReasonUndeliverable, Detail: fmt.Sprintf("reply_to %q: %v", t.name, err)})
}

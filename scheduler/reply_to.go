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

// pendingNotification is a notification that isn't finished.
type pendingNotification struct {
	*events.Record
	delivered bool
}

// replyTo is a topic that tasks name. It is in one of three states:
//
//   - Healthy: failingSince is zero and givenUp is false.
//   - Failing since failingSince: failed notifications are collected in retries until nothing is in flight. Then they
//     move to the front of waiting. After a pause, one of them is sent.
//   - Given up: its notifications become dead letters. Only one at probeAt is sent, as a probe.
type replyTo struct {
	name     string
	inFlight int
	isQueued bool
	waiting  []*pendingNotification // in the order of the notifications topic

	failingSince time.Time
	retries      []*pendingNotification // failed, or delivered after a failed one of the same key
	backingOff   bool                   // until the pause is over, or Ensure has returned
	ensureTried  bool                   // Ensure was called since the first failure
	// ensureError is the result of Ensure.
	ensureError error

	givenUp   bool
	lastError error
	probeAt   time.Time
	probeWait time.Duration
	alertAt   time.Time // no alert is written before this instant
}

// inFlightLimit returns how many notifications may be in flight to the topic.
func (t *replyTo) inFlightLimit() int {
	switch {
	case t.backingOff:
		return 0
	case t.givenUp, !t.failingSince.IsZero():
		return 1
	}
	return notifyTopicMax
}

// markHealthy resets the topic to the state healthy.
func (t *replyTo) markHealthy() {
	t.failingSince, t.givenUp, t.ensureTried, t.ensureError = time.Time{}, false, false, nil
}

// onDelivered handles a delivery. If an earlier notification of the same task has failed, this one is sent again after
// it. Otherwise the last record of the task would not be its last status.
func (n *notifier) onDelivered(t *replyTo, x *pendingNotification) {
	if !x.delivered {
		n.cfg.Listener.Delivered()
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

// tooLargeRecord is the error of a record that is too large for its topic.
type tooLargeRecord interface {
	error
	TooLarge() (bytes, most int)
}

// onFailed handles a notification that failed after waited.
func (n *notifier) onFailed(ctx context.Context, t *replyTo, x *pendingNotification, waited time.Duration, err error) {
	now := time.Now()
	if _, large := errors.AsType[tooLargeRecord](err); large {
		n.alertFailing(ctx, t, x, err, "this notification is a dead letter; smaller ones are delivered")
		n.deadletterUndelivered(ctx, t, x, err)
		return
	}
	switch {
	case t.givenUp:
		if t.inFlight == 0 { // the notification was the probe
			t.probeWait = min(2*t.probeWait, probeWaitMax)
			t.probeAt, t.lastError = now.Add(t.probeWait), err
			n.alertFailing(ctx, t, x, err, "its notifications become dead letters")
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

// giveUp turns the waiting notifications of a topic into dead letters, with one alert.
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
			n.alertFailing(ctx, t, x, err, "its notifications become dead letters")
		}
		n.deadletterUndelivered(ctx, t, x, err)
	}
}

// onIdle is called when nothing is in flight to a topic. Failed notifications move to the front of waiting.
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
				t.failingSince = time.Now() // the topic exists now: failingMax begins again
			}
			rested()
		})
	}()
}

// ensure creates a missing topic. The number of concurrent calls is limited: each may take long, and nothing else
// waits for it.
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

// alertFailing writes an alert about a topic, at most one per notifyAlertEvery.
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

// deadletterUndelivered writes a notification as a dead letter, unless it was delivered.
func (n *notifier) deadletterUndelivered(ctx context.Context, t *replyTo, x *pendingNotification, err error) {
	if x.delivered {
		n.finish(x.Record)
		return
	}
	n.cfg.Listener.Undelivered(t.name, err)
	n.deadletter(ctx, x.Record, &events.Unusable{Reason: events.ReasonUndeliverable, Detail: fmt.Sprintf("reply_to %q: %v", t.name, err)})
}

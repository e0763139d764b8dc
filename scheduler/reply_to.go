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
type notice struct {
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
	inTurn   bool
	waiting  []*notice // in order

	failing time.Time
	again   []*notice // failed, or delivered after one of the same key that failed
	resting bool      // until it is tried again, or Ensure has answered
	ensured bool      // Ensure was asked since it failed first
	// notEnsured is why Ensure could not create it.
	notEnsured error

	givenUp   bool
	why       error
	probeAt   time.Time
	probeWait time.Duration
	alertAt   time.Time // no alert of it before
}

// may is how many notifications may be in flight to a topic.
func (t *replyTo) may() int {
	switch {
	case t.resting:
		return 0
	case t.givenUp, !t.failing.IsZero():
		return 1
	}
	return notifyTopicMost
}

// ok is for a topic that takes what it is sent.
func (t *replyTo) ok() {
	t.failing, t.givenUp, t.ensured, t.notEnsured = time.Time{}, false, false, nil
}

// delivered is for a notification that its topic has. One of the same task that came before and
// failed goes after it, so it is sent again: the last that a reader finds is the last status.
func (n *notifier) delivered(t *replyTo, x *notice) {
	if !x.delivered {
		n.cfg.Listener.delivered()
	}
	x.delivered = true
	if slices.ContainsFunc(t.again, func(y *notice) bool { return bytes.Equal(x.Key, y.Key) }) {
		t.again = append(t.again, x)
		return
	}
	if t.givenUp {
		t.ok()
	}
	n.finish(x.Record)
}

// tooLargeRecord is the error of a record that its topic does not take, whatever becomes of others.
type tooLargeRecord interface {
	error
	TooLarge() (bytes, most int)
}

// failed is for a notification that was not delivered after it had waited for some time.
func (n *notifier) failed(ctx context.Context, t *replyTo, x *notice, waited time.Duration, err error) {
	now := time.Now()
	if _, large := errors.AsType[tooLargeRecord](err); large {
		n.alert(ctx, t, x, err, "this notification is dead-lettered, smaller ones are delivered")
		n.undeliverable(ctx, t, x, err)
		return
	}
	switch {
	case t.givenUp:
		if t.inFlight == 0 { // it was tried alone
			t.probeWait = min(2*t.probeWait, probeMost)
			t.probeAt, t.why = now.Add(t.probeWait), err
			n.alert(ctx, t, x, err, "its notifications are dead-lettered")
		}
		n.undeliverable(ctx, t, x, err)
	case waited >= notifyWithin, !t.failing.IsZero() && now.Sub(t.failing) >= notifyPatience:
		t.again = append(t.again, x)
		n.giveUp(ctx, t, err)
	default:
		if t.failing.IsZero() {
			t.failing = now
		}
		t.again, t.why = append(t.again, x), err
	}
}

// giveUp has what waits for a topic dead-lettered, with one alert.
func (n *notifier) giveUp(ctx context.Context, t *replyTo, err error) {
	if t.notEnsured != nil {
		err = fmt.Errorf("%w; it could not be created: %w", err, t.notEnsured)
	}
	failed := t.again
	if !t.givenUp {
		t.givenUp, t.why, t.failing, t.again, t.resting = true, err, time.Time{}, nil, false
		t.probeWait = probeLeast
		t.probeAt = time.Now().Add(t.probeWait)
	}
	failed = append(failed, t.waiting...)
	t.waiting = nil
	for i, x := range failed {
		if i == 0 {
			n.alert(ctx, t, x, err, "its notifications are dead-lettered")
		}
		n.undeliverable(ctx, t, x, err)
	}
}

// landed is for a topic to which nothing is in flight any more. What failed goes first when it is
// tried again.
func (n *notifier) landed(ctx context.Context, t *replyTo) {
	if len(t.again) == 0 {
		if !t.givenUp {
			t.ok()
		}
		return
	}
	slices.SortStableFunc(t.again, func(a, b *notice) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	t.waiting, t.again, t.resting = append(t.again, t.waiting...), nil, true
	rested := func() {
		t.resting = false
		n.flow(ctx, t)
	}
	if n.cfg.Ensure == nil || t.ensured {
		time.AfterFunc(retryReplyTo, func() { n.post(rested) })
		return
	}
	t.ensured = true
	go func() {
		err := n.ensure(ctx, t.name)
		n.post(func() {
			if t.notEnsured = err; err == nil {
				t.failing = time.Now() // from now on it should be there
			}
			rested()
		})
	}()
}

// ensure creates a topic that is missing. Few are created at once: each may take long, and
// keeps nothing else waiting.
func (n *notifier) ensure(ctx context.Context, topic string) error {
	select {
	case n.ensures <- struct{}{}:
		defer func() { <-n.ensures }()
	case <-ctx.Done():
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, ensureWithin)
	defer cancel()
	return n.cfg.Ensure(bounded, topic)
}

// alert says that a topic fails, once in a while.
func (n *notifier) alert(ctx context.Context, t *replyTo, x *notice, err error, then string) {
	now := time.Now()
	if now.Before(t.alertAt) {
		return
	}
	t.alertAt = now.Add(notifyAlertEvery)
	a := &events.Alert{Task: string(x.Key), Code: string(events.ReasonUndeliverable), At: events.Millis(n.cfg.Clock.Now()),
		Message: fmt.Sprintf("reply_to %q can't be written to: %v; %s", t.name, err, then)}
	n.insist(ctx, a.Record(n.cfg.Namespace, n.cfg.Source, "undeliverable/"+events.Origin(x.Record)), rewriteLeast, func() {})
}

// undeliverable dead-letters a notification, unless its topic has it.
func (n *notifier) undeliverable(ctx context.Context, t *replyTo, x *notice, err error) {
	if x.delivered {
		n.finish(x.Record)
		return
	}
	n.cfg.Listener.undelivered(t.name, err)
	n.deadletter(ctx, x.Record, &events.Unusable{Reason: events.ReasonUndeliverable, Detail: fmt.Sprintf("reply_to %q: %v", t.name, err)})
}

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The bounds of the notifier.
const (
	notifyWithin      = 30 * time.Second // a reply_to that is silent for longer is given up
	notifyAvoid       = 30 * time.Second // ... and not tried again for so long
	notifyOutstanding = 20_000           // notifications on their way
	reopenNotifier    = time.Second
)

// Notifications is the notifier's side of the notifications topic: a member of
// its group that says of each record when it is finished with, in any order.
type Notifications interface {
	Poll(ctx context.Context) ([]events.Record, error)
	Done(partition int32, offset int64)
	Pause()
	Resume()
	Close(ctx context.Context) error
}

// Outbox writes records that belong to no transaction.
type Outbox interface {
	// SendAsync calls done, once, when the record is acknowledged or was
	// given up. Records of one key arrive in the order of the calls.
	SendAsync(ctx context.Context, r events.Record, done func(events.Record, error))
}

// NotifierConfig says what a notifier is made of.
type NotifierConfig struct {
	Namespace events.Namespace
	Source    string
	Open      func(ctx context.Context) (Notifications, error)
	Outbox    Outbox
	Clock     Clock
	// Ensure creates a missing reply_to; nil: it is not created.
	Ensure   func(ctx context.Context, topic string) error
	Listener *Listener
}

// Notify relays notifications to the topics that their tasks name, in order and
// at least once, until ctx ends. A topic that is missing, refuses, or is silent
// has its notifications dead-lettered with an alert; it delays no other.
func Notify(ctx context.Context, cfg NotifierConfig) error {
	for ctx.Err() == nil {
		if err := notifyOnce(ctx, &cfg); err != nil && ctx.Err() == nil {
			cfg.Listener.laneFailed(cfg.Source, err)
			select {
			case <-ctx.Done():
			case <-time.After(reopenNotifier):
			}
		}
	}
	return nil
}

// notifier is one membership of the group.
type notifier struct {
	cfg *NotifierConfig
	in  Notifications

	mu          sync.Mutex
	outstanding int
	paused      bool
	avoid       map[string]time.Time // topics that failed, until when
	ensured     map[string]bool
}

func notifyOnce(ctx context.Context, cfg *NotifierConfig) error {
	in, err := cfg.Open(ctx)
	if err != nil {
		return fmt.Errorf("open the notifications: %w", err)
	}
	n := &notifier{cfg: cfg, in: in, avoid: map[string]time.Time{}, ensured: map[string]bool{}}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// What was not confirmed is relayed again: at least once.
		_ = in.Close(bounded)
	}()
	for {
		records, err := in.Poll(ctx)
		if err != nil {
			return fmt.Errorf("poll the notifications: %w", err)
		}
		for i := range records {
			n.relay(ctx, &records[i])
		}
	}
}

// relay sends one notification on its way.
func (n *notifier) relay(ctx context.Context, r *events.Record) {
	topic, ok := r.Header(events.HeaderReplyTo)
	if !ok || topic == "" || n.cfg.Namespace.Owns(topic) {
		n.deadletter(ctx, r, &events.Unusable{Reason: events.ReasonBadHeader, Detail: events.HeaderReplyTo + " names no topic outside the namespace"})
		return
	}
	n.mu.Lock()
	avoided := time.Now().Before(n.avoid[topic])
	n.mu.Unlock()
	if avoided {
		n.deadletter(ctx, r, &events.Unusable{Reason: events.ReasonUndeliverable, Detail: "reply_to " + quoted(topic) + " failed a moment ago"})
		return
	}
	n.ensure(ctx, topic)
	n.hold(1)
	out := events.Record{Topic: topic, Partition: -1, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if h.Key != events.HeaderReplyTo {
			out.Headers = append(out.Headers, h)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, notifyWithin)
	n.cfg.Outbox.SendAsync(bounded, out, func(_ events.Record, err error) {
		defer cancel()
		switch {
		case err == nil:
			n.in.Done(r.Partition, r.Offset)
			n.cfg.Listener.delivered()
		case ctx.Err() == nil:
			n.failed(ctx, r, topic, err)
		}
		n.hold(-1)
	})
}

// hold counts what is on its way, and stops taking more past the bound.
func (n *notifier) hold(change int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outstanding += change
	switch {
	case !n.paused && n.outstanding >= notifyOutstanding:
		n.paused = true
		n.in.Pause()
	case n.paused && n.outstanding < notifyOutstanding/2:
		n.paused = false
		n.in.Resume()
	}
}

// ensure creates a topic that is missing, where that is wanted; once for each.
func (n *notifier) ensure(ctx context.Context, topic string) {
	if n.cfg.Ensure == nil || n.ensured[topic] {
		return
	}
	n.ensured[topic] = true
	if err := n.cfg.Ensure(ctx, topic); err != nil {
		n.cfg.Listener.undelivered(topic, err)
	}
}

// failed gives a topic up for a while, with one alert.
func (n *notifier) failed(ctx context.Context, r *events.Record, topic string, err error) {
	n.mu.Lock()
	first := !time.Now().Before(n.avoid[topic])
	n.avoid[topic] = time.Now().Add(notifyAvoid)
	n.mu.Unlock()
	n.cfg.Listener.undelivered(topic, err)
	if first {
		a := &events.Alert{Task: string(r.Key), Code: string(events.ReasonUndeliverable), At: events.Millis(n.cfg.Clock.Now()),
			Message: fmt.Sprintf("reply_to %q can't be written to: %v; its notifications are dead-lettered", topic, err)}
		n.cfg.Outbox.SendAsync(ctx, a.Record(n.cfg.Namespace, n.cfg.Source, "undeliverable/"+events.Origin(r)), func(_ events.Record, err error) {
			if err != nil {
				n.cfg.Listener.undelivered(n.cfg.Namespace.Alerts(), err)
			}
		})
	}
	n.deadletter(ctx, r, &events.Unusable{Reason: events.ReasonUndeliverable, Detail: fmt.Sprintf("reply_to %q: %v", topic, err)})
}

// deadletter finishes with a notification once its dead letter is written;
// until then it stays uncommitted, and comes again.
func (n *notifier) deadletter(ctx context.Context, r *events.Record, u *events.Unusable) {
	n.hold(1)
	n.cfg.Outbox.SendAsync(ctx, events.Deadletter(n.cfg.Namespace, n.cfg.Source, r, u), func(_ events.Record, err error) {
		if err == nil {
			n.in.Done(r.Partition, r.Offset)
		} else {
			n.cfg.Listener.undelivered(n.cfg.Namespace.Deadletters(), err)
		}
		n.hold(-1)
	})
}

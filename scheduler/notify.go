package scheduler

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/listener"
)

// The limits of the notifier.
const (
	sendWithin          = 30 * time.Second // a topic that doesn't respond for this long is given up
	failingMax          = 5 * time.Second  // a topic that refuses or is missing for this long is given up
	retryReplyToAfter   = 250 * time.Millisecond
	probeWaitMin        = time.Second // before one notification probes a topic that was given up
	probeWaitMax        = 30 * time.Second
	notifyAlertEvery    = 30 * time.Second // minimum time between two alerts about a topic
	outstandingMax      = 20_000           // unfinished notifications
	inFlightMax         = 4_000            // below the outbox's buffer, so a send never blocks
	notifyTopicMax      = 1_000            // notifications in flight to one topic
	ensureWithin        = 5 * time.Second  // timeout of Ensure
	ensuresMax          = 16               // concurrent calls of Ensure
	rewriteWaitMin      = time.Second      // before a dead letter that could not be written is retried
	rewriteWaitMax      = 30 * time.Second
	reopenNotifierAfter = time.Second
	maxReplyTos         = 10_000 // topics whose state is kept
)

// Notifications is the notifier's consumer of the notifications topic. Done may be called in any order of offsets.
type Notifications interface {
	Poll(ctx context.Context) ([]events.Record, error)
	Done(partition int32, offset int64)
	Pause()
	Resume()
	Close(ctx context.Context) error
}

// Outbox writes records outside of transactions.
type Outbox interface {
	// SendAsync calls done once, when the record is acknowledged or has failed. Records with the same key are written
	// in the order of the calls.
	SendAsync(ctx context.Context, r events.Record, done func(events.Record, error))
}

// NotifierConfig is what a notifier needs.
type NotifierConfig struct {
	Namespace events.Namespace
	Source    string
	Open      func(ctx context.Context) (Notifications, error)
	Outbox    Outbox
	Clock     Clock
	// Ensure creates a missing reply_to topic; nil: none is created. It is called after a write to the topic has
	// failed, from several goroutines.
	Ensure   func(ctx context.Context, topic string) error
	Listener *Listener
}

// Notify relays notifications to the topics that their tasks name, in order and at least once. It returns when ctx
// ends, or with an error that no new client fixes.
//
// A notification that is too large for its topic becomes a dead letter; others aren't affected. The notifications of
// a topic that is missing or refuses wait for failingMax: the topic may be recreated, or created by Ensure. After
// that, or after no response for sendWithin, the topic is given up: its notifications become dead letters, with an
// alert. Periodically (probeWaitMin, doubling to probeWaitMax) one notification probes the topic. The first delivery
// ends this state.
//
// Such a topic doesn't delay others, unless more than outstandingMax of its notifications wait. Several topics that
// stop responding at the same time delay others for at most sendWithin, once they use all of inFlightMax.
func Notify(ctx context.Context, cfg NotifierConfig) error {
	cfg.Listener = listener.Complete(cfg.Listener)
	var refused backoff.RefusedPeriod
	for ctx.Err() == nil {
		opened := time.Now()
		if err := runNotifier(ctx, &cfg); err != nil && ctx.Err() == nil {
			if isPermanent(err) || refused.Exceeded(isRefused(err), opened, time.Now()) {
				return err
			}
			cfg.Listener.WorkerFailed(cfg.Source, err)
			_ = backoff.Sleep(ctx, reopenNotifierAfter)
		}
	}
	return nil
}

// notifier is one membership of the group. The goroutine of run owns its fields, except for posted.
type notifier struct {
	cfg         *NotifierConfig
	in          Notifications
	topics      map[string]*replyTo
	sendQueue   []*replyTo // topics that may send, round robin
	inFlight    int        // notifications in flight to all topics
	outstanding int
	paused      bool
	closing     bool // nothing is sent any more
	creating    chan struct{}

	mu     sync.Mutex
	posted []func() // functions that the goroutine of run calls with the results of sends
	signal chan struct{}
}

// poll is the result of one poll.
type poll struct {
	records []events.Record
	err     error
}

func runNotifier(ctx context.Context, cfg *NotifierConfig) error {
	in, err := cfg.Open(ctx)
	if err != nil {
		return fmt.Errorf("open the notifications: %w", err)
	}
	n := &notifier{cfg: cfg, in: in, topics: map[string]*replyTo{}, signal: make(chan struct{}, 1), creating: make(chan struct{}, ensuresMax)}
	polling, stop := context.WithCancel(ctx)
	polls, polled := make(chan poll), make(chan struct{})
	go func() {
		defer close(polled)
		for polling.Err() == nil {
			records, err := in.Poll(polling)
			select {
			case polls <- poll{records, err}:
			case <-polling.Done():
			}
		}
	}()
	err = n.run(ctx, polls)
	stop()
	<-polled
	n.closing = true
	n.runPosted() // finish the notifications that were delivered
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// Notifications that were not finished are relayed again: at least once.
	_ = in.Close(bounded)
	return err
}

func (n *notifier) run(ctx context.Context, polls <-chan poll) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-polls:
			if p.err != nil {
				return fmt.Errorf("poll the notifications: %w", p.err)
			}
			for i := range p.records {
				n.relay(ctx, &p.records[i])
			}
		case <-n.signal:
			n.runPosted()
		}
	}
}

// post runs a function on the goroutine of run. It never blocks: the outbox's goroutine calls it, and that goroutine
// frees the outbox's buffer.
func (n *notifier) post(do func()) {
	n.mu.Lock()
	n.posted = append(n.posted, do)
	n.mu.Unlock()
	select {
	case n.signal <- struct{}{}:
	default: // a signal is pending
	}
}

// runPosted runs the posted functions.
func (n *notifier) runPosted() {
	n.mu.Lock()
	posted := n.posted
	n.posted = nil
	n.mu.Unlock()
	for _, do := range posted {
		do()
	}
}

// relay accepts one notification.
func (n *notifier) relay(ctx context.Context, r *events.Record) {
	n.countOutstanding(1)
	topic, ok := r.Header(events.HeaderReplyTo)
	if !ok || topic == "" || len(topic) <= events.MaxReplyToBytes && n.cfg.Namespace.CheckTaskReplyTo(string(r.Key), topic) != nil {
		n.deadletter(ctx, r, &events.Unusable{Reason: events.ReasonBadHeader, Detail: events.HeaderReplyTo + " is not a topic of an application"})
		return
	}
	if u := checkNotification(r, topic); u != nil {
		n.deadletter(ctx, r, u)
		return
	}
	t := n.topic(topic)
	t.waiting = append(t.waiting, &pendingNotification{Record: r})
	if len(t.waiting) > notifyTopicMax && (!t.failingSince.IsZero() || t.givenUp) {
		n.giveUp(ctx, t, errTooManyWaiting)
	}
	n.sendWaiting(ctx, t)
}

// errTooManyWaiting is the error of a failing topic for which more notifications wait than may be buffered.
var errTooManyWaiting = fmt.Errorf("it fails, and more than %d notifications wait for it", notifyTopicMax)

// checkNotification checks a notification that a foreign client may have written. It rejects one that can't be relayed,
// or whose dead letter would be too large. Its reply_to topic isn't at fault.
func checkNotification(r *events.Record, topic string) *events.Unusable {
	switch bytes := recordBytes(r); {
	case len(topic) > events.MaxReplyToBytes:
		return &events.Unusable{Reason: events.ReasonBadHeader,
			Detail: fmt.Sprintf("%s: %d bytes; a topic's name has at most %d", events.HeaderReplyTo, len(topic), events.MaxReplyToBytes)}
	case len(r.Key) > events.MaxTaskIDBytes:
		return &events.Unusable{Reason: events.ReasonWrongKey, Detail: fmt.Sprintf("%d bytes; a task's id has at most %d", len(r.Key), events.MaxTaskIDBytes)}
	case bytes > MaxForwardBytes:
		return &events.Unusable{Reason: events.ReasonTooLarge, Detail: fmt.Sprintf("%d bytes with its headers; at most %d are relayed", bytes, MaxForwardBytes)}
	}
	return nil
}

func (n *notifier) topic(name string) *replyTo {
	t := n.topics[name]
	if t == nil {
		if len(n.topics) >= maxReplyTos {
			maps.DeleteFunc(n.topics, func(_ string, t *replyTo) bool { return t.inFlight == 0 && len(t.waiting) == 0 && !t.backingOff })
		}
		t = &replyTo{name: name}
		n.topics[name] = t
	}
	return t
}

// sendWaiting sends waiting notifications while fewer than inFlightMax are in flight. A topic's share is limited, so a
// topic that doesn't respond doesn't use all of them. The timeout of a notification starts when it is sent.
func (n *notifier) sendWaiting(ctx context.Context, t *replyTo) {
	n.enqueue(t)
	for len(n.sendQueue) > 0 && n.inFlight < inFlightMax && !n.closing {
		t := n.sendQueue[0]
		n.sendQueue = n.sendQueue[1:]
		t.isQueued = false
		if t.inFlight >= t.inFlightLimit() {
			continue // the topic has failed meanwhile
		}
		x := t.waiting[0]
		t.waiting = t.waiting[1:]
		if t.givenUp && time.Now().Before(t.probeAt) {
			n.deadletterUndelivered(ctx, t, x, fmt.Errorf("its last error: %w", t.lastError))
		} else {
			n.send(ctx, t, x)
		}
		n.enqueue(t)
	}
}

// enqueue adds a topic to sendQueue if it may send.
func (n *notifier) enqueue(t *replyTo) {
	if !t.isQueued && len(t.waiting) > 0 && t.inFlight < t.inFlightLimit() {
		t.isQueued = true
		n.sendQueue = append(n.sendQueue, t)
	}
}

func (n *notifier) send(ctx context.Context, t *replyTo, x *pendingNotification) {
	out := events.Record{Topic: t.name, Partition: -1, Key: x.Key, Value: x.Value}
	for _, h := range x.Headers {
		if h.Key != events.HeaderReplyTo {
			out.Headers = append(out.Headers, h)
		}
	}
	t.inFlight++
	n.inFlight++
	bounded, cancel := context.WithTimeout(ctx, sendWithin)
	sent := time.Now()
	n.cfg.Outbox.SendAsync(bounded, out, func(_ events.Record, err error) {
		cancel()
		n.post(func() {
			t.inFlight--
			n.inFlight--
			switch {
			case err == nil:
				n.onDelivered(t, x)
			case n.closing || ctx.Err() != nil:
				return // it is relayed again after a restart
			default:
				n.onFailed(ctx, t, x, time.Since(sent), err)
			}
			if t.inFlight == 0 {
				n.onIdle(ctx, t)
			}
			n.sendWaiting(ctx, t)
		})
	})
}

func (n *notifier) finish(r *events.Record) {
	n.in.Done(r.Partition, r.Offset)
	n.countOutstanding(-1)
}

// countOutstanding changes the number of unfinished notifications, and pauses the consumer at outstandingMax.
func (n *notifier) countOutstanding(change int) {
	n.outstanding += change
	switch {
	case !n.paused && n.outstanding >= outstandingMax:
		n.paused = true
		n.in.Pause()
	case n.paused && n.outstanding < outstandingMax/2:
		n.paused = false
		n.in.Resume()
	}
}

// deadletter writes a dead letter and then finishes the notification.
func (n *notifier) deadletter(ctx context.Context, r *events.Record, u *events.Unusable) {
	n.sendUntilWritten(ctx, events.Deadletter(n.cfg.Namespace, n.cfg.Source, r, u), rewriteWaitMin, func() { n.finish(r) })
}

// sendUntilWritten retries a record until it is written, since dead letters and alerts must not be lost. It stops when
// the membership ends. The notification is then relayed again.
func (n *notifier) sendUntilWritten(ctx context.Context, r events.Record, wait time.Duration, written func()) {
	n.cfg.Outbox.SendAsync(ctx, r, func(_ events.Record, err error) {
		n.post(func() {
			switch {
			case err == nil:
				written()
			case ctx.Err() == nil:
				n.cfg.Listener.Undelivered(r.Topic, err)
				time.AfterFunc(wait, func() {
					n.post(func() { n.sendUntilWritten(ctx, r, min(2*wait, rewriteWaitMax), written) })
				})
			}
		})
	})
}

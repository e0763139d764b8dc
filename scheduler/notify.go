package scheduler

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The bounds of the notifier.
const (
	sendWithin          = 30 * time.Second // a reply_to that is silent for longer is given up
	failingMax          = 5 * time.Second  // ... as is one that refuses, or isn't there, for longer
	retryReplyToAfter   = 250 * time.Millisecond
	probeWaitMin        = time.Second // one that was given up is tried with one notification after this
	probeWaitMax        = 30 * time.Second
	notifyAlertEvery    = 30 * time.Second // of one reply_to
	outstandingMax      = 20_000           // notifications that aren't finished with
	inFlightMax         = 4_000            // ... and on their way; an outbox has room for more, so none waits in it
	notifyTopicMax      = 1_000            // ... of these to one topic
	ensureWithin        = 5 * time.Second  // a reply_to is created, or is tried without
	ensuresMax          = 16               // at once
	rewriteWaitMin      = time.Second      // before a dead letter that could not be written is written again
	rewriteWaitMax      = 30 * time.Second
	reopenNotifierAfter = time.Second
	maxReplyTos         = 10_000 // topics that are remembered while nothing goes to them
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
	// Ensure creates a missing reply_to; nil: it is not created. It is called when writing to the
	// topic has failed, from several goroutines.
	Ensure   func(ctx context.Context, topic string) error
	Listener *Listener
}

// Notify relays notifications to the topics that their tasks name, in order and
// at least once, until ctx ends, or until its membership ends with what no fresh client heals.
//
// A notification that its topic does not take because of its size is dead-lettered alone.
// A topic that is missing or refuses has its notifications wait for failingMax: it may be
// recreated, or be created by Ensure. After that, and at once if it was silent for
// sendWithin, it is given up: its notifications are dead-lettered with an alert. From time to
// time (probeWaitMin, doubling to probeWaitMax) one notification is tried, and the first that is
// delivered ends this.
//
// Such a topic delays no other, unless more of its notifications than outstandingMax wait to
// be given up. Several that are silent at once delay the others, for sendWithin at most, once
// they have all of inFlightMax.
func Notify(ctx context.Context, cfg NotifierConfig) error {
	var refusals permissionFailures
	for ctx.Err() == nil {
		opened := time.Now()
		if err := runNotifier(ctx, &cfg); err != nil && ctx.Err() == nil {
			if isPermanent(err) || refusals.tooLong(err, opened, time.Now()) {
				return err
			}
			cfg.Listener.workerFailed(cfg.Source, err)
			select {
			case <-ctx.Done():
			case <-time.After(reopenNotifierAfter):
			}
		}
	}
	return nil
}

// notifier is one membership of the group. Its fields belong to the goroutine of
// run, but for what others post to it.
type notifier struct {
	cfg         *NotifierConfig
	in          Notifications
	topics      map[string]*replyTo
	sendQueue   []*replyTo // that may send, in turn: each has room of its own, and waits for that of all
	inFlight    int        // to all topics
	outstanding int
	paused      bool
	closing     bool // nothing new is sent
	creating    chan struct{}

	mu     sync.Mutex
	posted []func() // what became of records, for the goroutine of run
	signal chan struct{}
}

// poll is what one poll of the notifications gave.
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
	n.runPosted() // what arrived is finished with
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// What was not confirmed is relayed again: at least once.
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

// post leaves something to do for the goroutine of run. The outbox's goroutine
// must not wait for room in the outbox: it is the one that makes it.
func (n *notifier) post(do func()) {
	n.mu.Lock()
	n.posted = append(n.posted, do)
	n.mu.Unlock()
	select {
	case n.signal <- struct{}{}:
	default: // it is due already
	}
}

// settle does what was posted.
func (n *notifier) runPosted() {
	n.mu.Lock()
	posted := n.posted
	n.posted = nil
	n.mu.Unlock()
	for _, do := range posted {
		do()
	}
}

// relay takes one notification.
func (n *notifier) relay(ctx context.Context, r *events.Record) {
	n.countOutstanding(1)
	topic, ok := r.Header(events.HeaderReplyTo)
	if !ok || topic == "" || len(topic) <= events.MaxReplyToBytes && n.cfg.Namespace.CheckReplyTo(topic) != nil {
		n.deadletter(ctx, r, &events.Unusable{Reason: events.ReasonBadHeader, Detail: events.HeaderReplyTo + " names no topic of an application"})
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

// errTooManyWaiting: a topic fails, and more waits for it than may be kept from others' room.
var errTooManyWaiting = fmt.Errorf("it fails, and more than %d notifications wait for it", notifyTopicMax)

// checkNotification: a stranger's notification may be what no client of ours writes, and so
// may what would tell of it. It isn't the fault of the topic that it names.
func checkNotification(r *events.Record, topic string) *events.Unusable {
	switch bytes := recordBytes(r); {
	case len(topic) > events.MaxReplyToBytes:
		return &events.Unusable{Reason: events.ReasonBadHeader,
			Detail: fmt.Sprintf("%s: %d bytes; a topic's name has at most %d", events.HeaderReplyTo, len(topic), events.MaxReplyToBytes)}
	case len(r.Key) > events.MaxTaskIDBytes:
		return &events.Unusable{Reason: events.ReasonWrongKey, Detail: fmt.Sprintf("%d bytes; a task's id has at most %d", len(r.Key), events.MaxTaskIDBytes)}
	case bytes > MaxForwardBytes:
		return &events.Unusable{Reason: events.ReasonTooLarge, Detail: fmt.Sprintf("%d bytes with its headers; at most %d are passed on", bytes, MaxForwardBytes)}
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

// flow sends what waits for a topic on its way, as far as there is room: one
// that is silent must leave some to others. What waits for room waits here, where the
// time of its topic has not begun.
func (n *notifier) sendWaiting(ctx context.Context, t *replyTo) {
	n.enqueue(t)
	for len(n.sendQueue) > 0 && n.inFlight < inFlightMax && !n.closing {
		t := n.sendQueue[0]
		n.sendQueue = n.sendQueue[1:]
		t.isQueued = false
		if t.inFlight >= t.inFlightLimit() {
			continue // it failed since
		}
		x := t.waiting[0]
		t.waiting = t.waiting[1:]
		if t.givenUp && time.Now().Before(t.probeAt) {
			n.deadletterUndelivered(ctx, t, x, fmt.Errorf("it failed a moment ago: %w", t.lastError))
		} else {
			n.send(ctx, t, x)
		}
		n.enqueue(t)
	}
}

// turn has a topic wait for its turn to send, if it has something to.
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
				return // it comes again
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

// hold counts what isn't finished with, and stops taking more past the bound.
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

// deadletter finishes with a notification once its dead letter is written.
func (n *notifier) deadletter(ctx context.Context, r *events.Record, u *events.Unusable) {
	n.sendUntilWritten(ctx, events.Deadletter(n.cfg.Namespace, n.cfg.Source, r, u), rewriteWaitMin, func() { n.finish(r) })
}

// insist writes a record, again and again if it must: what tells that something
// could not be delivered isn't given up itself. The membership's end does end
// it; the notification then comes again.
func (n *notifier) sendUntilWritten(ctx context.Context, r events.Record, wait time.Duration, written func()) {
	n.cfg.Outbox.SendAsync(ctx, r, func(_ events.Record, err error) {
		n.post(func() {
			switch {
			case err == nil:
				written()
			case ctx.Err() == nil:
				n.cfg.Listener.undelivered(r.Topic, err)
				time.AfterFunc(wait, func() {
					n.post(func() { n.sendUntilWritten(ctx, r, min(2*wait, rewriteWaitMax), written) })
				})
			}
		})
	})
}

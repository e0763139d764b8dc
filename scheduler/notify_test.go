package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

// outbox buffers a limited number of records. One goroutine reports their results, as in a Kafka client. If that
// goroutine waits for space in the buffer, it waits forever.
type outbox struct {
	slots   chan struct{}
	results chan func()
	end     chan struct{}

	mu       sync.Mutex
	faults   map[string]error // errors of topics that refuse at once
	tooLarge func(*events.Record) bool
	silent   map[string]bool // topics that don't respond within the record's timeout
	arrived  map[string][]events.Record
	at       map[string]time.Duration // when the last record arrived
	began    time.Time
}

// noticed is how long after a timeout the client reports it.
const noticed = 500 * time.Millisecond

func newOutbox(t *testing.T, room int) *outbox {
	o := &outbox{slots: make(chan struct{}, room), results: make(chan func(), room), end: make(chan struct{}), faults: map[string]error{},
		silent: map[string]bool{}, arrived: map[string][]events.Record{}, at: map[string]time.Duration{}, began: time.Now()}
	go func() {
		for {
			select {
			case result := <-o.results:
				result()
			case <-o.end:
				return
			}
		}
	}()
	t.Cleanup(func() { close(o.end) })
	return o
}

func (o *outbox) SendAsync(ctx context.Context, r events.Record, done func(events.Record, error)) {
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		done(r, ctx.Err())
		return
	}
	finish := func(err error) {
		o.results <- func() {
			<-o.slots
			done(r, err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case clientBytes(&r) > maxRecordBytes:
		finish(errors.New("too large for a client"))
	case o.tooLarge != nil && o.tooLarge(&r):
		finish(tooLargeRecordError{})
	case o.silent[r.Topic]:
		time.AfterFunc(sendWithin+noticed, func() { finish(errors.New("not acknowledged in time")) })
	case o.faults[r.Topic] != nil:
		finish(o.faults[r.Topic])
	default:
		o.arrived[r.Topic] = append(o.arrived[r.Topic], r)
		o.at[r.Topic] = time.Since(o.began)
		finish(nil)
	}
}

func (o *outbox) got(topic string) []events.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.arrived[topic])
}

func (o *outbox) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// mailbox is the notifications topic and the group's position in it.
type mailbox struct {
	mu      sync.Mutex
	log     []events.Record
	done    map[int64]bool
	paused  bool
	pauses  int
	fail    error // the error of the next poll
	opened  int
	written chan struct{}
}

func newMailbox() *mailbox { return &mailbox{done: map[int64]bool{}, written: make(chan struct{}, 1)} }

// tell writes a notification.
func (m *mailbox) tell(replyTo, task, status string) {
	r := (&events.Notification{Task: task, Status: status}).Record(ns, "test", replyTo, task+"/"+status)
	m.write(r)
}

func (m *mailbox) write(r events.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Partition, r.Offset = 0, int64(len(m.log))
	m.log = append(m.log, r)
	select {
	case m.written <- struct{}{}:
	default:
	}
}

// open joins the group at the first unfinished notification.
func (m *mailbox) open(context.Context) (Notifications, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	return &reader{mailbox: m, given: map[int64]bool{}}, nil
}

// unfinished returns the number of notifications that would be relayed again.
func (m *mailbox) unfinished() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.log) - len(m.done)
}

// reader is one membership.
type reader struct {
	*mailbox
	given  map[int64]bool
	closed bool
}

func (r *reader) Poll(ctx context.Context) ([]events.Record, error) {
	for {
		r.mu.Lock()
		err := r.fail
		r.fail = nil
		var rs []events.Record
		for i := range r.log {
			if !r.paused && !r.done[int64(i)] && !r.given[int64(i)] {
				rs = append(rs, r.log[i])
				r.given[int64(i)] = true
			}
		}
		r.mu.Unlock()
		if err != nil || len(rs) > 0 {
			return rs, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.written:
		}
	}
}

func (r *reader) Done(_ int32, offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.done[offset] = true
	}
}

func (r *reader) Pause()  { r.pause(true) }
func (r *reader) Resume() { r.pause(false) }

func (r *reader) pause(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused = on; on {
		r.pauses++
		return
	}
	select {
	case r.written <- struct{}{}:
	default:
	}
}

func (r *reader) Close(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.paused = true, false
	return nil
}

// post is a notifier with a mailbox and an outbox.
type post struct {
	*testing.T
	in       *mailbox
	out      *outbox
	cfg      NotifierConfig
	reopened []error
	stop     context.CancelFunc
	done     chan error
}

// relaying runs a test with a notifier in a bubble. room is the size of the outbox's buffer.
func relaying(t *testing.T, room int, test func(p *post)) {
	synctest.Test(t, func(t *testing.T) {
		p := &post{T: t, in: newMailbox(), out: newOutbox(t, room), done: make(chan error, 1)}
		p.cfg = NotifierConfig{Namespace: ns, Source: "test", Open: p.in.open, Outbox: p.out, Clock: &testClock{now: time.Now()},
			Listener: &Listener{WorkerFailed: func(_ string, err error) { p.reopened = append(p.reopened, err) }}}
		test(p)
		if p.stop != nil {
			p.end()
		}
	})
}

func (p *post) start() {
	ctx, cancel := context.WithCancel(p.Context())
	p.stop = cancel
	go func() { p.done <- Notify(ctx, p.cfg) }()
}

func (p *post) end() {
	p.Helper()
	p.stop()
	p.stop = nil
	if err := <-p.done; err != nil {
		p.Error(err)
	}
}

// pass advances the time and waits until all goroutines are blocked.
func (p *post) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// statuses returns a task's statuses in a topic.
func (p *post) statuses(topic, task string) []string {
	var got []string
	for _, r := range p.out.got(topic) {
		if n, err := events.DecodeNotification(&r); err != nil {
			p.Error(err)
		} else if n.Task == task {
			got = append(got, n.Status)
		}
	}
	return got
}

// TestNotificationsInOrder checks that the notifications of a task arrive in order and completely, and once if nothing
// fails.
func TestNotificationsInOrder(t *testing.T) {
	relaying(t, 64, func(p *post) {
		statuses := []string{"received", "error", "undoing", "undone"}
		for i := range 3 * notifyTopicMax {
			for _, s := range statuses {
				p.in.tell(fmt.Sprint("app.", i%3), fmt.Sprint("t-", i), s)
			}
		}
		p.start()
		p.pass(time.Second)
		for i := range 3 * notifyTopicMax {
			if got := p.statuses(fmt.Sprint("app.", i%3), fmt.Sprint("t-", i)); !slices.Equal(got, statuses) {
				p.Fatalf("task %d was told %v", i, got)
			}
			if i > 20 { // each check reads all records
				break
			}
		}
		if n := p.in.unfinished(); n > 0 {
			p.Errorf("%d are not finished with", n)
		}
		r := p.out.got("app.0")[0]
		id, _ := r.Header(events.HeaderID)
		if _, ok := r.Header(events.HeaderReplyTo); ok || id != "t-0/received" || string(r.Key) != "t-0" {
			p.Errorf("relayed as %q with the headers %v", r.Key, r.Headers)
		}
	})
}

// TestFailingReplyToDelaysNoOther checks that the notifications of a topic that is missing, refuses or doesn't respond
// become dead letters, with one alert. No other topic is delayed.
func TestFailingReplyToDelaysNoOther(t *testing.T) {
	for _, fault := range []string{"missing", "refuses", "silent"} {
		t.Run(fault, func(t *testing.T) {
			relaying(t, 5*notifyTopicMax, func(p *post) {
				const told = 4 * notifyTopicMax
				within := failingMax + time.Second
				if fault == "silent" {
					p.out.silent["broken"], within = true, sendWithin+time.Second
				} else {
					p.out.faults["broken"] = errors.New(fault)
				}
				p.start()
				for i := range told {
					p.in.tell("broken", fmt.Sprint("b-", i), "received")
				}
				for i := range 10 {
					p.in.tell("fine", fmt.Sprint("f-", i), "received")
				}
				p.pass(within)
				if n := len(p.out.got("fine")); n != 10 || p.out.at["fine"] > 0 {
					p.Errorf("%d of 10 arrived, the last after %s", n, p.out.at["fine"])
				}
				if n, alerts := len(p.out.got(ns.Deadletters())), len(p.out.got(ns.Alerts())); n != told || alerts != 1 {
					p.Errorf("%d dead letters of %d; %d alerts", n, told, alerts)
				}
				if n := p.in.unfinished(); n > 0 {
					p.Errorf("%d are not finished with", n)
				}
				origins := map[string]bool{}
				for _, letter := range p.out.got(ns.Deadletters()) {
					reason, _ := letter.Header(events.HeaderReason)
					origin, _ := letter.Header(events.HeaderOrigin)
					origins[origin] = true
					if reason != string(events.ReasonUndeliverable) || !strings.Contains(string(letter.Value), `"b-`) {
						p.Fatalf("a dead letter of %s, for %s: %s", origin, reason, letter.Value)
					}
				}
				if len(origins) != told {
					p.Errorf("%d notifications were dead-lettered, of %d", len(origins), told)
				}

				// The topic works again, and is probed after at most probeWaitMax.
				p.out.set(func() { clear(p.out.faults); clear(p.out.silent) })
				p.pass(probeWaitMax)
				p.in.tell("broken", "late", "received")
				p.pass(0)
				if len(p.statuses("broken", "late")) != 1 {
					p.Error("a topic that works again is not written to")
				}
			})
		})
	}
}

// TestSilentTopicsFillTheOutbox sends more notifications than the outbox can buffer to topics that don't respond. The
// outbox's goroutine never blocks, and other topics receive their notifications.
func TestSilentTopicsFillTheOutbox(t *testing.T) {
	relaying(t, 2*notifyTopicMax, func(p *post) {
		p.out.silent["a"], p.out.silent["b"] = true, true
		for i := range 3 * notifyTopicMax {
			p.in.tell("a", fmt.Sprint("a-", i), "received")
			p.in.tell("b", fmt.Sprint("b-", i), "received")
		}
		p.start()
		p.pass(time.Second) // its timeout must not end together with theirs, when space becomes free
		p.in.tell("fine", "f", "received")
		p.pass(2 * sendWithin)
		if n := len(p.out.got(ns.Deadletters())); n != 6*notifyTopicMax {
			p.Errorf("%d dead letters of %d", n, 6*notifyTopicMax)
		}
		if n := len(p.out.got("fine")); n != 1 || p.in.unfinished() > 0 {
			p.Errorf("%d of 1 arrived, %d are not finished with", n, p.in.unfinished())
		}
	})
}

// TestSilentTopicsLeaveRoomInTheOutbox sends notifications to topics that don't respond. They would fill the outbox,
// but must leave space in it. Notifications of other topics wait before their timeout starts, and arrive.
func TestSilentTopicsLeaveRoomInTheOutbox(t *testing.T) {
	const topics = 8
	relaying(t, topics*notifyTopicMax, func(p *post) {
		silent := func(n int) {
			for i := range topics {
				topic := fmt.Sprint("silent-", i)
				p.out.silent[topic] = true
				for range n {
					p.in.tell(topic, "s", "received")
				}
			}
		}
		silent(notifyTopicMax)
		p.in.tell("fine", "f", "received")
		silent(notifyTopicMax / 2)
		p.start()
		p.pass(sendWithin + 2*noticed)
		if n := len(p.out.got("fine")); n != 1 {
			p.Errorf("%d of 1 arrived", n)
		}
		p.pass(sendWithin) // for the notifications that were sent just after another topic was given up
		if n, all := len(p.out.got(ns.Deadletters())), topics*notifyTopicMax*3/2; n != all || p.in.unfinished() > 0 {
			p.Errorf("%d dead letters of %d, %d are not finished with", n, all, p.in.unfinished())
		}
	})
}

// TestDeadLetterIsRetriedUntilWritten checks that dead letters and alerts are retried until they are written. The
// notification isn't finished before that.
func TestDeadLetterIsRetriedUntilWritten(t *testing.T) {
	relaying(t, 64, func(p *post) {
		down := errors.New("not enough replicas")
		p.out.faults = map[string]error{"broken": down, ns.Deadletters(): down, ns.Alerts(): down}
		tries := map[string]int{}
		p.cfg.Listener.Undelivered = func(topic string, err error) { tries[topic]++ }
		p.start()
		p.in.tell("broken", "t", "received")
		p.pass(5 * time.Minute)
		if n := p.in.unfinished(); n != 1 {
			p.Fatal("finished with, and nowhere to be found")
		}
		// The pauses are 1 s, doubling to 30 s.
		if want := (map[string]int{"broken": 1, ns.Deadletters(): 14, ns.Alerts(): 14}); !maps.Equal(tries, want) {
			p.Errorf("within 5 minutes %v, want %v", tries, want)
		}
		p.out.set(func() { clear(p.out.faults) })
		p.pass(rewriteWaitMax)
		if n := p.in.unfinished(); n > 0 || len(p.out.got(ns.Deadletters())) != 1 || len(p.out.got(ns.Alerts())) != 1 {
			p.Errorf("%d unfinished, dead letters %v, alerts %v", n, p.out.got(ns.Deadletters()), p.out.got(ns.Alerts()))
		}
	})
}

// TestNotificationToTheNamespace checks that a topic within the namespace, or a record without a topic, receives no
// notification.
func TestNotificationToTheNamespace(t *testing.T) {
	relaying(t, 64, func(p *post) {
		p.start()
		p.in.tell(ns.Events(), "t-1", "received")
		p.in.tell("", "t-2", "received")
		p.in.write(events.Record{Topic: ns.Notifications(), Value: []byte("{}")})
		p.pass(time.Second)
		if n := len(p.out.got(ns.Deadletters())); n != 3 || p.in.unfinished() > 0 || len(p.out.got(ns.Events())) > 0 {
			p.Errorf("%d dead letters of 3, %d unfinished", n, p.in.unfinished())
		}
	})
}

// TestNotificationsAreBounded checks notifications of foreign clients that are larger than Waybill's. The reply_to
// topic isn't at fault, and the dead letter must be small enough to be written.
func TestNotificationsAreBounded(t *testing.T) {
	large := strings.Repeat("x", 1_010_000)
	relaying(t, 64, func(p *post) {
		p.start()
		for _, r := range []events.Record{
			{Key: []byte("t-1"), Value: []byte(large), Headers: []events.Header{{Key: events.HeaderReplyTo, Value: []byte("app")}}},
			{Key: []byte(large), Value: []byte("{}"), Headers: []events.Header{{Key: events.HeaderReplyTo, Value: []byte("app")}}},
			{Key: []byte("t-2"), Value: []byte("{}"), Headers: []events.Header{{Key: events.HeaderReplyTo, Value: []byte(large)}}},
		} {
			r.Topic = ns.Notifications()
			p.in.write(r)
		}
		p.in.tell("app", "t-3", "received")
		p.pass(time.Second)
		if got := p.statuses("app", "t-3"); !slices.Equal(got, []string{"received"}) {
			p.Errorf("beside them came %v", got)
		}
		if dead, alerts := len(p.out.got(ns.Deadletters())), len(p.out.got(ns.Alerts())); dead != 3 || alerts != 0 || p.in.unfinished() != 0 {
			p.Errorf("%d dead letters of 3, %d alerts, %d unfinished", dead, alerts, p.in.unfinished())
		}
	})
}

// TestNotifierReopensItsClient ends the membership. Unfinished notifications are relayed again, finished ones aren't.
// When the notifier ends, it finishes the notifications that were delivered.
func TestNotifierReopensItsClient(t *testing.T) {
	relaying(t, 64, func(p *post) {
		p.start()
		p.in.tell("fine", "t-1", "received")
		p.pass(time.Second)
		p.out.set(func() { p.out.silent["slow"] = true })
		p.in.tell("slow", "t-2", "received")
		p.pass(time.Second)
		p.in.mu.Lock()
		p.in.fail = errors.New("fenced")
		p.in.mu.Unlock()
		p.out.set(func() { clear(p.out.silent) })
		p.in.tell("fine", "t-3", "received")
		p.pass(2 * reopenNotifierAfter)
		if p.in.opened != 2 || len(p.reopened) != 1 || !strings.Contains(p.reopened[0].Error(), "poll the notifications: fenced") {
			p.Errorf("opened %d times: %v", p.in.opened, p.reopened)
		}
		for _, task := range []string{"t-1", "t-3"} {
			if got := p.statuses("fine", task); len(got) != 1 {
				p.Errorf("task %s was told %v", task, got)
			}
		}
		if got := p.statuses("slow", "t-2"); len(got) != 1 {
			p.Errorf("what wasn't confirmed was told %v", got)
		}
		p.end()
		if n := p.in.unfinished(); n > 0 {
			p.Errorf("%d are not finished with", n)
		}
	})
}

// TestNotifierEndsAfterPermanentErrors checks that an error that a new client can't fix ends the notifier and the
// process, as it does for a worker. So does authorization that is refused for a long time.
func TestNotifierEndsAfterPermanentErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		within time.Duration
	}{{&pastEnd{}, time.Second}, {notPermitted{errors.New("denied")}, backoff.RefusedMax + 5*time.Second}} {
		relaying(t, 64, func(p *post) {
			if c.within < backoff.RefusedMax {
				p.in.fail = c.err
			} else {
				p.cfg.Open = func(context.Context) (Notifications, error) { return nil, c.err }
			}
			p.start()
			p.pass(c.within)
			select {
			case err := <-p.done:
				if !errors.Is(err, c.err) {
					p.Errorf("it ended with %v", err)
				}
				p.stop()
				p.stop = nil
			default:
				p.Errorf("the notifier continues after %v", c.err)
			}
		})
	}
}

// TestReplyToIsEnsuredConcurrently lets many topics be missing while the controller is slow. Each is created
// independently. Ensure isn't called for existing topics, and no topic waits for another.
func TestReplyToIsEnsuredConcurrently(t *testing.T) {
	const missing, each = 100, 4 * time.Second
	relaying(t, 5*notifyTopicMax, func(p *post) {
		asked := map[string]int{}
		for i := range missing {
			p.out.faults[fmt.Sprint("new-", i)] = errors.New("no such topic")
		}
		p.out.faults["never"] = errors.New("no such topic")
		p.cfg.Ensure = func(ctx context.Context, topic string) error {
			p.out.set(func() { asked[topic]++ })
			if topic == "never" {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(each)
			p.out.set(func() { delete(p.out.faults, topic) })
			return nil
		}
		p.in.tell("never", "n", "received")
		for i := range missing {
			p.in.tell(fmt.Sprint("new-", i), "a", "received")
			p.in.tell(fmt.Sprint("new-", i), "a", "processed")
		}
		p.start()
		p.pass(time.Second)
		p.in.tell("fine", "f", "received")
		p.pass(0)
		if len(p.out.got("fine")) != 1 {
			p.Error("a topic that is there waits for others that are created")
		}
		p.pass(time.Minute)
		for i := range missing {
			if got := p.statuses(fmt.Sprint("new-", i), "a"); !slices.Equal(got, []string{"received", "processed"}) {
				p.Errorf("topic %d was told %v", i, got)
			}
		}
		dead := p.out.got(ns.Deadletters())
		if len(dead) != 1 || asked["fine"] != 0 || asked["never"] != 1 || p.in.unfinished() > 0 {
			p.Fatalf("%d dead letters of 1; asked for %v; %d unfinished", len(dead), asked, p.in.unfinished())
		}
		if detail, _ := dead[0].Header(events.HeaderDetail); !strings.Contains(detail, "could not be created") {
			p.Errorf("the dead letter says %q", detail)
		}
	})
}

// tooLargeRecordError is a Kafka client's error of a record that is too large for its topic.
type tooLargeRecordError struct{}

func (tooLargeRecordError) Error() string               { return "the record has 5 bytes, the topic takes at most 4" }
func (tooLargeRecordError) TooLarge() (bytes, most int) { return 5, 4 }

// TestTooLargeNotificationDelaysNoOther checks that only a notification that is too large for its topic becomes a dead
// letter, with one alert.
func TestTooLargeNotificationDelaysNoOther(t *testing.T) {
	relaying(t, 64, func(p *post) {
		p.out.tooLarge = func(r *events.Record) bool { return r.Topic == "narrow" && strings.HasPrefix(string(r.Key), "large") }
		p.start()
		for i := range 5 {
			p.in.tell("narrow", fmt.Sprint("small-", i), "received")
			p.in.tell("narrow", fmt.Sprint("large-", i), "received")
			p.pass(time.Second)
		}
		if got, dead, alerts := len(p.out.got("narrow")), p.out.got(ns.Deadletters()), len(p.out.got(ns.Alerts())); got != 5 || len(dead) != 5 || alerts != 1 || p.in.unfinished() > 0 {
			p.Fatalf("%d of 5 arrived, %d dead letters of 5, %d alerts of 1, %d unfinished", got, len(dead), alerts, p.in.unfinished())
		}
		if detail, _ := p.out.got(ns.Deadletters())[0].Header(events.HeaderDetail); !strings.Contains(detail, "5 bytes") || !strings.Contains(detail, "at most 4") {
			p.Errorf("the dead letter says %q", detail)
		}
	})
}

// TestRecreatedReplyToIsWaitedFor recreates a topic. Its notifications wait, and arrive in order.
func TestRecreatedReplyToIsWaitedFor(t *testing.T) {
	for _, test := range []struct {
		away time.Duration
		lost int
	}{{time.Second, 0}, {4 * time.Second, 0}, {12 * time.Second, 25}} {
		t.Run(test.away.String(), func(t *testing.T) {
			relaying(t, 64, func(p *post) {
				p.start()
				const tasks = 30
				told := func(task int) {
					p.in.tell("app", fmt.Sprint("t-", task), "received")
					p.pass(250 * time.Millisecond)
					p.in.tell("app", fmt.Sprint("t-", task), "processed")
					p.pass(250 * time.Millisecond)
				}
				told(-1)
				p.out.set(func() { p.out.faults["app"] = errors.New("no such topic") })
				time.AfterFunc(test.away, func() { p.out.set(func() { delete(p.out.faults, "app") }) })
				for i := range tasks {
					told(i)
				}
				p.pass(probeWaitMax)
				whole := 0
				for i := range tasks {
					if slices.Equal(p.statuses("app", fmt.Sprint("t-", i)), []string{"received", "processed"}) {
						whole++
					}
				}
				if dead := len(p.out.got(ns.Deadletters())); whole < tasks-test.lost || test.lost == 0 && dead > 0 || p.in.unfinished() > 0 {
					p.Errorf("%d of %d tasks were told of, in order; %d dead letters; %d unfinished", whole, tasks, dead, p.in.unfinished())
				}
			})
		})
	}
}

// TestNotifierPausesAtItsLimit checks that the notifier pauses its consumer at outstandingMax until enough
// notifications are finished.
func TestNotifierPausesAtItsLimit(t *testing.T) {
	relaying(t, 4*notifyTopicMax, func(p *post) {
		p.out.silent["silent"] = true
		for i := range outstandingMax {
			p.in.tell("silent", fmt.Sprint("s-", i), "received")
		}
		p.start()
		p.pass(time.Second)
		p.in.tell("fine", "f", "received")
		p.pass(time.Second)
		if p.in.pauses != 1 || len(p.out.got("fine")) != 0 {
			p.Errorf("paused %d times; %d arrived past the bound", p.in.pauses, len(p.out.got("fine")))
		}
		p.pass(sendWithin)
		if n := len(p.out.got("fine")); n != 1 || p.in.paused || p.in.unfinished() > 0 {
			p.Errorf("%d of 1 arrived; %d unfinished", n, p.in.unfinished())
		}
	})
}

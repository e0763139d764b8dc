package logclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// openWaiter returns the waiter of a new client.
func (b *fakeLog) openWaiter(t *testing.T) *Waiter {
	t.Helper()
	b.mu.Lock()
	fault := b.fault
	b.fault = nil
	b.mu.Unlock()
	ends, err := b.EndOffsets(t.Context(), testNamespace.Events())
	if err != nil {
		t.Fatal(err)
	}
	b.fault, b.endsCalls = fault, 0
	w := NewWaiter(testNamespace, int32(len(ends)), ends, b, Options{Lookup: b.lookup})
	t.Cleanup(w.Close)
	return w
}

// submit records an acknowledged order of the waiter's client.
func (w *Waiter) submit(id, digest string, offset int64, at time.Time) {
	w.BeforeWrite(id)
	w.AfterAck(id, digest, &events.Record{Topic: testNamespace.Inbox(events.Tasks), Partition: w.partitionOf(id), Offset: offset, Time: at})
}

// withVirtualClock runs a test on a virtual clock.
func withVirtualClock(t *testing.T, fn func(t *testing.T)) { t.Helper(); synctest.Test(t, fn) }

// withinAnHour bounds a wait. Without it the virtual clock would never stop the wait.
func withinAnHour(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func mustEnd(t *testing.T, w *Waiter, id string, want events.TaskState) events.TaskView {
	t.Helper()
	task, err := w.Wait(withinAnHour(t), id)
	if err != nil || task.State != want {
		t.Errorf("task %s: %s, %v; want %s", id, task.State, err, want)
	}
	return task
}

func TestWaitFindsAnEarlierEnd(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		var g sync.WaitGroup
		for i := range 50 {
			b.task(fmt.Sprint("old-", i)).write(received(""), started, finished)
		}
		w := b.openWaiter(t)
		for i := range 50 {
			g.Go(func() { mustEnd(t, w, fmt.Sprint("old-", i), events.StateProcessed) })
		}
		g.Wait()
		if len(b.reads) > 2 {
			t.Errorf("50 tasks of one partition took %d reads: %q", len(b.reads), b.reads)
		}
		task := mustEnd(t, w, "old-7", events.StateProcessed)
		if task.LockedBy == nil || *task.LockedBy != "s1/0" || task.AsOf.Offset != "300" {
			t.Errorf("locked by %v, as of %s", task.LockedBy, task.AsOf.Offset)
		}
	})
}

func TestWaitReadsNoHistoryOfOwnOrders(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		for i := range 100 {
			b.task(fmt.Sprint("old-", i)).write(received(""), started, finished)
		}
		time.Sleep(24 * time.Hour)
		w := b.openWaiter(t)
		for i := range 20 {
			id := fmt.Sprint("new-", i)
			w.submit(id, "", int64(i), time.Now())
			if i%2 == 0 {
				time.Sleep(2 * time.Second) // it ends before the call of Wait
				b.task(id).write(received(""), started, finished)
			} else {
				go b.task(id).write(received(""), started, finished)
			}
			mustEnd(t, w, id, events.StateProcessed)
		}
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Events()) && strings.HasSuffix(read, " from 0") {
				t.Errorf("read the log from its start: %q", b.reads)
			}
		}
	})
}

func TestWaitDoesNotTrustClocks(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		withVirtualClock(t, func(t *testing.T) {
			b := newFakeLog(1)
			history := b.task("before")
			history.skew = skew
			history.write(received(""), started, finished)
			w := b.openWaiter(t)
			w.submit("new", "", 0, time.Now()) // by another broker's clock
			next := b.task("new")
			next.skew = skew
			next.write(received(""), started, finished)
			mustEnd(t, w, "new", events.StateProcessed)
		})
	}
}

func TestWaitForAnOrderSubmittedAfterItsEnd(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.task("o").write(received("d"), started, undoing(), undone())
		b.task("p").write(received("d"), started, finished)
		w := b.openWaiter(t)
		w.submit("o", "d", 0, time.Now()) // without a result
		mustEnd(t, w, "o", events.StateUndone)
		w.submit("p", "another", 1, time.Now())
		var refused *RefusedError
		if _, err := w.Wait(withinAnHour(t), "p"); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "id_conflict") || refused.State != events.StateProcessed {
			t.Errorf("got %v", err)
		}
	})
}

// TestWaitAfterASubmitThatFailed: an order that wasn't written says nothing about the existing task with its id, nor
// about an earlier order that was written.
func TestWaitAfterASubmitThatFailed(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(2)
		b.task("there").write(received("d"), started, finished)
		w := b.openWaiter(t)
		w.BeforeWrite("there") // with another body, and never acknowledged
		mustEnd(t, w, "there", events.StateProcessed)
		w.submit("refused", "d", 3, time.Now())
		b.deadletter(w, "refused", 3)
		w.BeforeWrite("refused") // again, and not acknowledged
		var refused *RefusedError
		if _, err := w.Wait(withinAnHour(t), "refused"); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "unknown_workflow") {
			t.Errorf("the order that was written before: %v", err)
		}
	})
}

func TestWaitForAnOrderThatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		after, most  time.Duration
		otherWaiting bool // for an hour
	}{
		{0, 100 * time.Millisecond, false},
		{0, 200 * time.Millisecond, true},
		{200 * time.Millisecond, 500 * time.Millisecond, true},
		{8 * time.Second, 8*time.Second + refusalsPauseMax, false}, // no scheduler runs for so long
	} {
		withVirtualClock(t, func(t *testing.T) {
			b := newFakeLog(3)
			w := b.openWaiter(t)
			if tt.otherWaiting {
				w.submit("open", "d", 16, time.Now())
				go func() { _, _ = w.Wait(withinAnHour(t), "open") }()
				time.Sleep(time.Minute)
			}
			at := time.Now()
			w.submit("o", "d", 17, at)
			go func() {
				time.Sleep(tt.after)
				b.deadletter(w, "o", 17)
			}()
			var refused *RefusedError
			if _, err := w.Wait(withinAnHour(t), "o"); !errors.As(err, &refused) || refused.Reason != "unknown_workflow: no workflow" {
				t.Errorf("got %v", err)
			}
			if took := time.Since(at); took > tt.most {
				t.Errorf("%+v: took %v", tt, took)
			}
		})
	}
}

// While no order is refused, the dead letters are not read again and again.
func TestDeadLettersAreReadOnce(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.submit("other", "d", 16, time.Now())
		b.deadletter(w, "other", 16)
		w.submit("o", "d", 17, time.Now())
		go func() {
			time.Sleep(time.Hour / 2)
			b.task("o").write(received("d"), started, finished)
		}()
		mustEnd(t, w, "o", events.StateProcessed)
		reads := 0
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Deadletters()) {
				reads++
			}
		}
		if reads != 1 {
			t.Errorf("the dead letters were read %d times: %q", reads, b.reads)
		}
	})
}

// deadletter writes the dead letter of an order at an offset.
func (b *fakeLog) deadletter(w *Waiter, id string, offset int64) {
	p := w.partitionOf(id)
	r := events.Record{Topic: testNamespace.Inbox(events.Tasks), Partition: p, Offset: offset, Key: []byte(id), Value: []byte("{}")}
	b.append(testNamespace.Deadletters(), p, events.Deadletter(testNamespace, "s", &r, &events.Unusable{Reason: events.ReasonUnknownWorkflow, Detail: "no workflow"}))
}

// An order in an added partition is forwarded. Its dead letter names the position where it was written first.
func TestWaitForAForwardedOrderThatIsRefused(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.BeforeWrite("o")
		w.AfterAck("o", "d", &events.Record{Topic: testNamespace.Inbox(events.Tasks), Partition: 7, Offset: 3, Time: time.Now()})
		r := events.Record{Topic: testNamespace.Inbox(events.Tasks), Offset: 99, Key: []byte("o"), Value: []byte("{}"),
			Headers: []events.Header{{Key: events.HeaderHop, Value: []byte("7/3")}}}
		b.append(testNamespace.Deadletters(), 0, events.Deadletter(testNamespace, "s", &r, &events.Unusable{Reason: events.ReasonUnknownWorkflow}))
		var refused *RefusedError
		if _, err := w.Wait(withinAnHour(t), "o"); !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	})
}

// A refused order continues when its dead letter is redriven after the workflow was applied.
func TestWaitForAnOrderThatIsNoLongerRefused(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.submit("o", "d", 17, time.Now())
		b.deadletter(w, "o", 17)
		var refused *RefusedError
		for range 2 {
			if _, err := w.Wait(withinAnHour(t), "o"); !errors.As(err, &refused) {
				t.Errorf("got %v", err)
			}
		}
		task := b.task("o").write(received("d"), started)
		go func() {
			time.Sleep(time.Minute)
			task.write(finished)
		}()
		mustEnd(t, w, "o", events.StateProcessed)
		mustEnd(t, w, "o", events.StateProcessed)
	})
}

// An order is submitted again while the dead letters are searched. The dead letter that is found belongs to the first
// submission.
func TestWaitForAnOrderThatWasSubmittedAgain(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.submit("o", "d", 17, time.Now())
		b.deadletter(w, "o", 17)
		var once sync.Once
		b.fault = func(what string) error {
			if what == "read" {
				once.Do(func() {
					w.submit("o", "d", 18, time.Now())
					go func() {
						time.Sleep(time.Minute)
						b.task("o").write(received("d"), started, finished)
					}()
				})
			}
			return nil
		}
		mustEnd(t, w, "o", events.StateProcessed)
	})
}

func TestWaitForAHoldIsAboutNow(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.submit("o", "", 0, time.Now())
		task := b.task("o").write(received(""), started, held())
		mustEnd(t, w, "o", events.StateError)
		mustEnd(t, w, "o", events.StateError)
		task.write(resumed)
		go func() {
			time.Sleep(time.Minute)
			task.write(finished)
		}()
		mustEnd(t, w, "o", events.StateProcessed)
	})
}

// A search that began before the call may find a hold that has ended meanwhile. Wait doesn't return that hold.
func TestWaitForAHoldIsNotOfALookBegunBefore(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.submit("o", "", 0, time.Now())
		task := b.task("o").write(received(""), started, held())
		mustEnd(t, w, "o", events.StateError)
		w.submit("another", "", 1, time.Now())
		var g sync.WaitGroup
		g.Go(func() { mustEnd(t, w, "another", events.StateProcessed) }) // keeps the search running
		time.Sleep(time.Minute)
		var once sync.Once
		b.mu.Lock()
		b.afterEnds = func() {
			once.Do(func() {
				task.write(resumed)
				g.Go(func() { mustEnd(t, w, "o", events.StateProcessed) })
				time.Sleep(time.Millisecond)
			})
		}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		task.write(finished)
		b.task("another").write(received(""), started, finished)
		g.Wait()
	})
}

func TestWaitSurvivesBrokersThatAreAway(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		away := errors.New("connection refused")
		begun := time.Now()
		b.fault = func(string) error {
			if s := time.Since(begun); s > 10*time.Second && s < 60*time.Second || s > 5*time.Minute {
				return away
			}
			return nil
		}
		w := b.openWaiter(t)
		w.submit("o", "", 0, time.Now())
		task := b.task("o").write(received(""), started)
		go func() {
			time.Sleep(30 * time.Second)
			task.write(finished)
		}()
		mustEnd(t, w, "o", events.StateProcessed)
		w.submit("p", "", 1, time.Now())
		from := time.Now()
		_, err := w.Wait(withinAnHour(t), "p")
		if took := time.Since(from); !errors.Is(err, away) || took < 4*time.Minute || took > 7*time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// If a partition can't be read although the brokers respond, only the waits for its tasks end.
func TestWaitForAPartitionThatCannotBeRead(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.task("o").write(received(""))
		w := b.openWaiter(t)
		denied := errors.New("not permitted")
		b.fault = func(what string) error {
			if what == "read" {
				return denied
			}
			return nil
		}
		if _, err := w.Wait(withinAnHour(t), "o"); !errors.Is(err, denied) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWaitEndsWithItsContextAndTheClient(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(2)
		w := b.openWaiter(t)
		w.submit("o", "", 0, time.Now())
		b.task("o").write(received(""), started)
		for id, want := range map[string]string{"o": "it is processing", "nobody": "no event of it was found"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := w.Wait(ctx, id); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		asked := b.endsCalls
		time.Sleep(time.Hour)
		if b.endsCalls > asked+1 {
			t.Errorf("asked %d times while nobody waits", b.endsCalls-asked)
		}
		go func() {
			time.Sleep(time.Second)
			w.Close()
		}()
		for range 2 { // during the wait, and after it
			if _, err := w.Wait(withinAnHour(t), "o"); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestWaitForWhatCannotBeUnderstood(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.task("trimmed").write(received(""), started, finished)
		all := &b.partitions[testNamespace.Events()][0]
		*all = (*all)[1:]
		b.task("broken").write(received(""), finished) // never started
		b.task("later").write(received(""))
		later := events.Record{Key: []byte("later"), Value: []byte("{}"), Headers: events.CloudHeaders("waybill.task.teleported.v1", "s", "later/2")}
		b.append(testNamespace.Events(), 0, later)
		b.task("fine").write(received(""), started, finished)
		w := b.openWaiter(t)
		for id, want := range map[string]string{"trimmed": "no longer has its first events", "broken": "can't be applied", "later": "unknown event type"} {
			if _, err := w.Wait(withinAnHour(t), id); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", id, err, want)
			}
		}
		mustEnd(t, w, "fine", events.StateProcessed)
	})
}

func TestWatchForgetsTheOldest(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		ctx, cancel := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() {
			if _, err := w.Wait(ctx, "waited for"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for i := range 3 * trackedDefault {
			w.BeforeWrite(fmt.Sprint(i))
		}
		if n := len(w.tasks); n > trackedDefault+1 || n != w.recent.Len() {
			t.Errorf("%d tasks are remembered, %d in order", n, w.recent.Len())
		}
		if w.tasks["waited for"] == nil {
			t.Error("forgot what is waited for")
		}
		cancel()
		g.Wait()
		// An evicted task is found again.
		b.task("0").write(received(""), started, finished)
		mustEnd(t, w, "0", events.StateProcessed)
	})
}

// The memory for tasks without a waiter is bounded in bytes. For an evicted task the log is read again, from the first
// event of the earliest evicted task.
func TestWatchKeepsFewBytes(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		const tasks, large = 60, 50_000
		b := newFakeLog(1)
		b.task("old").write(received(""), started, finished)
		time.Sleep(24 * time.Hour)
		w := b.openWaiter(t)
		w.idleBytesMax = 10 * large
		bounded := func() {
			t.Helper()
			w.mu.Lock()
			defer w.mu.Unlock()
			kept := 0
			for _, tracked := range w.tasks {
				if tracked.task != nil {
					kept += tracked.task.Bytes()
				}
			}
			if kept > w.idleBytesMax || w.idleBytes > w.idleBytesMax || w.idleBytes < kept {
				t.Errorf("%d bytes of tasks are kept, counted as %d, at most %d", kept, w.idleBytes, w.idleBytesMax)
			}
		}
		input := []byte(`"` + strings.Repeat("x", large) + `"`)
		w.submit("last", "", 0, time.Now())
		var g sync.WaitGroup
		g.Go(func() { mustEnd(t, w, "last", events.StateProcessed) }) // keeps it reading
		for i := range tasks {
			id := fmt.Sprint(i)
			w.submit(id, "", 0, time.Now())
			b.task(id).write(&events.TaskReceived{Workflow: "w", Version: 1, Input: input, Plan: events.NewPlan(events.OnErrorUndo, time.Hour, nil)},
				started, &events.TaskProcessed{Output: input})
			if i%7 == 0 {
				mustEnd(t, w, id, events.StateProcessed)
			}
		}
		b.task("last").write(received(""), started, finished)
		g.Wait()
		bounded()
		for i := range tasks {
			task := mustEnd(t, w, fmt.Sprint(i), events.StateProcessed)
			if string(task.Input) != string(input) || string(task.Output) != string(input) {
				t.Fatalf("task %d has an input of %d bytes and an output of %d", i, len(task.Input), len(task.Output))
			}
		}
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Events()) && strings.HasSuffix(read, " from 0") {
				t.Errorf("read the log from its start: %q", b.reads)
			}
		}
		bounded()
	})
}

// For any order of submits, waits, faults and delays, each call returns the end of its task.
func TestWaitAlwaysReturnsTheEnd(t *testing.T) {
	for seed := range uint64(80) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			withVirtualClock(t, func(t *testing.T) { randomWaits(t, rand.New(rand.NewPCG(seed/2, 1)), seed%2 == 1) })
		})
	}
}

func randomWaits(t *testing.T, r *rand.Rand, lookups bool) {
	const tasks = 60
	b := newFakeLog(3)
	if lookups {
		b.lookup = b.lookUp
	}
	var chance sync.Mutex // guards the generator
	under := func(n int) int {
		chance.Lock()
		defer chance.Unlock()
		return r.IntN(n)
	}
	b.fault = func(string) error {
		if under(20) == 0 {
			return errors.New("away for a moment")
		}
		return nil
	}
	skew := time.Duration(under(7200)-3600) * time.Second
	ends := map[string]events.TaskState{}
	var g sync.WaitGroup
	write := func(id string, old bool) {
		h := b.task(id)
		h.skew = skew
		pause := func() {
			if !old {
				time.Sleep(time.Duration(under(3000)) * time.Millisecond)
			}
		}
		pause()
		h.write(received("d"))
		pause()
		h.write(started)
		pause()
		switch ends[id] {
		case events.StateProcessed:
			h.write(finished)
		case events.StateError:
			h.write(held())
		case events.StateUndone:
			h.write(undoing())
			pause()
			h.write(undone())
		}
	}
	for i := range tasks {
		ends[fmt.Sprint(i)] = []events.TaskState{events.StateProcessed, events.StateError, events.StateUndone}[under(3)]
	}
	for i := range tasks / 3 {
		write(fmt.Sprint(i), true)
	}
	w := b.openWaiter(t)
	w.idleBytesMax = under(2) * under(5000)
	for i := range tasks {
		id := fmt.Sprint(i)
		g.Go(func() {
			time.Sleep(time.Duration(under(5000)) * time.Millisecond)
			if under(2) == 0 {
				w.submit(id, "d", int64(i), time.Now())
			}
			if i >= tasks/3 {
				g.Go(func() { write(id, false) })
			}
			for range 1 + under(3) {
				time.Sleep(time.Duration(under(5000)) * time.Millisecond)
				mustEnd(t, w, id, ends[id])
			}
		})
	}
	g.Wait()
}

// gone returns the error with which the client gives up a request to a closed broker.
func gone(t *testing.T) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kafkaadmin.Open(kafka.Config{Brokers: []string{l.Addr().String()}, Namespace: testNamespace})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	l.Close()
	if err = admin.Ping(t.Context()); err == nil {
		t.Fatal("an answer, and nobody is there")
	}
	return err
}

// Brokers that are unavailable for longer than the client retries are reported as unreachable. Programs can distinguish
// that from an error that a broker returned.
func TestWaitSaysThatNoBrokerAnswers(t *testing.T) {
	away := gone(t)
	for name, c := range map[string]struct {
		what        string
		err         error
		unreachable bool
	}{
		"away":                   {"ends", away, true},
		"away while it reads":    {"read", away, true},
		"silent":                 {"ends", unreachableError(away, BrokerSilenceMax), true},
		"cut off":                {"ends", fmt.Errorf("list: %w", io.EOF), true},
		"out of time":            {"ends", fmt.Errorf("list: %w", context.DeadlineExceeded), true},
		"refused":                {"ends", errors.New("TOPIC_AUTHORIZATION_FAILED"), false},
		"refused while it reads": {"read", errors.New("TOPIC_AUTHORIZATION_FAILED"), false},
		"corrupt":                {"read", &logreader.CorruptError{Topic: "t"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			withVirtualClock(t, func(t *testing.T) {
				b := newFakeLog(1)
				b.task("o").write(received(""))
				w := b.openWaiter(t)
				b.fault = func(what string) error {
					if what == c.what {
						return c.err
					}
					return nil
				}
				from := time.Now()
				_, err := w.Wait(withinAnHour(t), "o")
				if took := time.Since(from); took < BrokerSilenceMax || took > 2*BrokerSilenceMax {
					t.Errorf("took %v", took)
				}
				if !errors.Is(err, c.err) || errors.Is(err, ErrUnreachable) != c.unreachable {
					t.Errorf("got %v", err)
				}
				if n := strings.Count(err.Error(), ErrUnreachable.Error()); n > 1 {
					t.Errorf("says it %d times: %v", n, err)
				}
			})
		})
	}
}

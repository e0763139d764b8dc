package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// start runs an agent on one session, in a bubble. stop ends it and checks that the agent kept the session's contract.
func start(t *testing.T, s *fakeSession, cfg Config, h HandlerFunc) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Source = "test"
	if cfg.Open == nil {
		cfg.Open = func(context.Context) (Session, error) { return s, nil }
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, h) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		got := s.calls()
		if !got.closed {
			t.Error("not closed")
		}
		for _, f := range got.faults {
			t.Error(f)
		}
	}
}

// advance sleeps for d, and then waits until all goroutines are blocked.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func completes(context.Context, Request) (any, error) { return map[string]bool{"ok": true}, nil }

func TestRunReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var finished atomic.Int32
		stop := start(t, s, Config{Listener: Listener{Finished: func(Request, events.Outcome, time.Duration) { finished.Add(1) }}},
			func(ctx context.Context, r Request) (any, error) {
				var in struct{ N int }
				if err := r.Into(&in); err != nil || in.N != 1 {
					t.Errorf("input %s: %v", r.Input, err)
				}
				if end, ok := ctx.Deadline(); !ok || !end.Equal(r.CompleteBy) {
					t.Errorf("context ends at %v; complete-by is %v", end, r.CompleteBy)
				}
				return completes(ctx, r)
			})
		r := testRecord(1, time.Now().Add(time.Minute))
		r.Headers = append(r.Headers, events.Header{Key: events.HeaderTraceparent, Value: []byte("00-1-2-03")})
		s.deliver(r)
		advance(time.Second)
		reply := s.calls().replies[testID(1)]
		task, in, err := events.DecodeInput(events.Replies, &reply)
		rep, _ := in.(*events.Reply)
		if err != nil || task != "o-1" || rep.Outcome != events.Completed || string(rep.Body) != `{"ok":true}` ||
			reply.Topic != "waybill.replies" || string(reply.Key) != "o-1" || finished.Load() != 1 {
			t.Errorf("%s %+v: %v", task, rep, err)
		}
		if tp, _ := reply.Header(events.HeaderTraceparent); tp != "00-1-2-03" {
			t.Errorf("traceparent %q", tp)
		}
		stop()
		if s.calls().done[position{0, 1}] != 1 {
			t.Errorf("done %v", s.calls().done)
		}
	})
}

// TestMalformedIsSkipped checks that a record without the headers of a request is skipped.
func TestMalformedIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var malformed atomic.Int32
		stop := start(t, s, Config{Listener: Listener{Malformed: func(events.Record, error) { malformed.Add(1) }}}, completes)
		by := time.Now().Add(time.Minute)
		s.deliverMalformed(events.Record{Offset: 1, Value: []byte("?")})
		s.deliver(testRecord(4, by))
		advance(time.Second)
		stop()
		if malformed.Load() != 1 || len(s.calls().done) != 2 || s.outcome(testID(4)) != "completed" {
			t.Errorf("%d malformed, done %v, %q", malformed.Load(), s.calls().done, s.outcome(testID(4)))
		}
	})
}

func TestUndoOfIsParsed(t *testing.T) {
	value, err := events.UndoValue(events.UndoOf{IdempotencyKey: "k", Outcome: "completed", Input: []byte(`{"a":1}`), Output: []byte(`2`)}, []byte(`{"more":true}`))
	if err != nil {
		t.Fatal(err)
	}
	q := events.Request{Task: "o", Ref: events.RequestRef{Step: "s", Kind: Undo, Attempt: 3}, Token: "t", Operation: "op", CompleteBy: t0, IdempotencyKey: "u", Value: value}
	rec := q.Record("waybill.", "test", "a", 0)
	r, err := newRequest(&rec)
	if err != nil || r.UndoOf == nil || r.UndoOf.IdempotencyKey != "k" || r.UndoOf.Outcome != "completed" ||
		string(r.UndoOf.Input) != `{"a":1}` || string(r.UndoOf.Output) != "2" || r.Kind != Undo || r.Attempt != 3 {
		t.Errorf("%+v %+v: %v", r, r.UndoOf, err)
	}
}

func TestLateRequestIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var late time.Duration
		skew := 3 * time.Second // the broker's clock is ahead of the local one
		s2 := Config{Clock: func() time.Time { return time.Now().Add(skew) },
			Listener: Listener{Late: func(_ Request, by time.Duration) { late = by }}}
		stop := start(t, s, s2, func(context.Context, Request) (any, error) { t.Error("begun"); return nil, nil })
		r := testRecord(1, time.Now().Add(2*time.Second))
		s.deliverUntil(time.Now().Add(-time.Second), r)
		advance(time.Second)
		stop()
		if late != time.Second || s.calls().done[position{0, 1}] != 1 {
			t.Errorf("late by %v, done %v", late, s.calls().done)
		}
	})
}

func TestTransientIsRetriedAndPanicSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var calls, panics atomic.Int32
		stop := start(t, s, Config{Listener: Listener{Panicked: func(Request, any, []byte) { panics.Add(1) }}},
			func(_ context.Context, r Request) (any, error) {
				if r.Task == "o-2" {
					panic("boom")
				}
				if calls.Add(1) < 4 {
					return nil, Transient(errors.New("try again"))
				}
				return 1, nil
			})
		s.deliver(testRecord(1, time.Now().Add(time.Minute)), testRecord(2, time.Now().Add(time.Minute)))
		advance(10 * time.Second)
		stop()
		if s.outcome(testID(1)) != "completed" || calls.Load() != 4 {
			t.Errorf("%q after %d calls", s.outcome(testID(1)), calls.Load())
		}
		if s.outcome(testID(2)) != "failed" || panics.Load() != 1 {
			t.Errorf("panic: %q, %d counted", s.outcome(testID(2)), panics.Load())
		}
	})
}

func TestConcurrencyIsBoundedByPausing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var now, most atomic.Int32
		stop := start(t, s, Config{Concurrency: 3}, func(context.Context, Request) (any, error) {
			storeMax(&most, now.Add(1))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil, nil
		})
		for i := range 60 {
			s.deliver(testRecord(i, time.Now().Add(time.Minute)))
		}
		advance(500 * time.Millisecond)
		s.mu.Lock()
		if left := len(s.ready); left < 45 {
			t.Errorf("%d of 60 still at the broker while 3 run", left)
		}
		s.mu.Unlock()
		advance(40 * time.Second)
		stop()
		if most.Load() != 3 || len(s.calls().replies) != 60 || s.calls().pauses < 5 {
			t.Errorf("%d at once, %d replied, paused %d times", most.Load(), len(s.calls().replies), s.calls().pauses)
		}
	})
}

func TestHandlerThatIgnoresItsContextKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var overran atomic.Int32
		stop := start(t, s, Config{Concurrency: 1, Listener: Listener{Overran: func(Request) { overran.Add(1) }}},
			func(_ context.Context, r Request) (any, error) {
				if r.Task == "o-1" {
					time.Sleep(time.Minute)
				}
				return nil, nil
			})
		s.deliver(testRecord(1, time.Now().Add(time.Second)), testRecord(2, time.Now().Add(time.Hour)))
		advance(2 * time.Second)
		if s.calls().done[position{0, 1}] != 1 || len(s.calls().replies) != 0 {
			t.Errorf("after complete-by: done %v, replied %v", s.calls().done, s.calls().replies)
		}
		advance(time.Minute)
		stop()
		if s.outcome(testID(1)) != "" || s.outcome(testID(2)) != "completed" || overran.Load() != 1 {
			t.Errorf("%q, %q, %d overran", s.outcome(testID(1)), s.outcome(testID(2)), overran.Load())
		}
	})
}

func TestUnacknowledgedReplyIsSentAgainUntilItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var failed, dropped atomic.Int32
		began := time.Now()
		s.sendErr = func() error {
			if time.Since(began) < 5*time.Second {
				return errSend
			}
			return nil
		}
		stop := start(t, s, Config{Listener: Listener{
			SendFailed: func(Request, error) { failed.Add(1) }, Dropped: func(Request) { dropped.Add(1) }}}, completes)
		s.deliver(testRecord(1, time.Now().Add(3*time.Second)), testRecord(2, time.Now().Add(10*time.Second)))
		advance(20 * time.Second)
		stop()
		if s.outcome(testID(1)) != "" || s.outcome(testID(2)) != "completed" || dropped.Load() != 1 || failed.Load() < 8 {
			t.Errorf("%q, %q, %d dropped, %d failed sends", s.outcome(testID(1)), s.outcome(testID(2)), dropped.Load(), failed.Load())
		}
	})
}

// A process that was stopped past complete-by sends nothing, although its contexts are not done yet.
func TestStoppedProcessSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var stopped atomic.Int64
		var dropped atomic.Int32
		stop := start(t, s, Config{
			Clock:    func() time.Time { return time.Now().Add(time.Duration(stopped.Load())) },
			Listener: Listener{Dropped: func(Request) { dropped.Add(1) }},
		}, func(ctx context.Context, _ Request) (any, error) {
			stopped.Store(int64(time.Hour))
			return nil, ctx.Err()
		})
		// The handler is stopped past complete-by as soon as it starts.
		s.deliverUntil(time.Now(), testRecord(1, time.Now().Add(time.Minute)))
		advance(time.Second)
		stop()
		if len(s.calls().replies) != 0 || s.calls().done[position{0, 1}] != 1 || dropped.Load() != 1 {
			t.Errorf("replied %v, done %v, dropped %d", s.calls().replies, s.calls().done, dropped.Load())
		}
	})
}

// A correction of the clock never gives an attempt more time. After a stop, a process takes the age of its first
// records for a difference of clocks.
func TestClockThatFallsBackGivesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var behind atomic.Int64
		began := time.Now()
		s.sendErr = func() error {
			if time.Since(began) < 5*time.Second {
				return errSend
			}
			return nil
		}
		stop := start(t, s, Config{Clock: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }},
			func(context.Context, Request) (any, error) {
				behind.Store(int64(time.Hour))
				return nil, nil
			})
		s.deliver(testRecord(1, time.Now().Add(3*time.Second)))
		advance(20 * time.Second)
		stop()
		if len(s.calls().replies) != 0 || s.calls().done[position{0, 1}] != 1 {
			t.Errorf("replied %v, done %v", s.calls().replies, s.calls().done)
		}
	})
}

// On a machine whose clock is an hour behind, the handlers of a process that has just started don't get an extra hour.
// Otherwise a few of them would use all slots.
func TestClockThatIsBehindGivesNoExtraTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var ended atomic.Int64
		began := time.Now()
		stop := start(t, s, Config{Clock: func() time.Time { return time.Now().Add(-time.Hour) }},
			func(ctx context.Context, _ Request) (any, error) {
				<-ctx.Done()
				ended.Store(int64(time.Since(began)))
				return nil, ctx.Err()
			})
		r := testRecord(1, time.Now().Add(3*time.Second))
		r.Time = time.Now()
		s.deliver(r)
		advance(time.Minute)
		stop()
		if got := time.Duration(ended.Load()); got != 3*time.Second {
			t.Errorf("the handler's time was over after %v, want 3s", got)
		}
		if len(s.calls().replies) != 0 || s.calls().done[position{0, 1}] != 1 {
			t.Errorf("replied %v, done %v", s.calls().replies, s.calls().done)
		}
	})
}

func TestCircuitOpensWaitsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var mu sync.Mutex
		var states []string
		var calls atomic.Int32
		var healthy atomic.Bool
		stop := start(t, s, Config{
			Breaker: Breaker{Failures: 3, OpenFor: 5 * time.Second},
			Listener: Listener{CircuitChanged: func(_, _, to string) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, to)
			}},
		}, func(context.Context, Request) (any, error) {
			calls.Add(1)
			if !healthy.Load() {
				return nil, errors.New("down")
			}
			return nil, nil
		})
		for i := range 3 {
			s.deliver(testRecord(i, time.Now().Add(time.Minute)))
		}
		advance(time.Second)
		healthy.Store(true)
		s.deliver(testRecord(3, time.Now().Add(time.Second)), testRecord(4, time.Now().Add(time.Minute)), testRecord(5, time.Now().Add(time.Minute)))
		advance(time.Second)
		if n := calls.Load(); n != 3 || s.outcome(testID(3)) != "failed none" {
			t.Errorf("circuit open: %d calls; too short of time: %q", n, s.outcome(testID(3)))
		}
		advance(10 * time.Second)
		stop()
		if s.outcome(testID(4)) != "completed" || s.outcome(testID(5)) != "completed" || calls.Load() != 5 {
			t.Errorf("%q, %q, %d calls", s.outcome(testID(4)), s.outcome(testID(5)), calls.Load())
		}
		want := []string{"open", "half-open", "closed"}
		if !slices.Equal(states, want) {
			t.Errorf("circuit went %v; want %v", states, want)
		}
		if want := append([]string{"closed"}, want...); !slices.Equal(s.calls().circuitStates, want) {
			t.Errorf("others were shown %v; want %v", s.calls().circuitStates, want)
		}
	})
}

// Timeouts of requests that had almost no time left don't open the circuit.
func TestCircuitIgnoresCallsWithTooLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var states []string
		var mu sync.Mutex
		stop := start(t, s, Config{
			Breaker:  Breaker{Failures: 3, OpenFor: time.Minute},
			Listener: Listener{CircuitChanged: func(_, _, to string) { mu.Lock(); defer mu.Unlock(); states = append(states, to) }},
		}, func(ctx context.Context, r Request) (any, error) {
			if r.Task == "o-1" {
				time.Sleep(time.Second) // beyond its time, ignoring the context
				return nil, nil
			}
			d := time.Second
			if r.Task > "o-20" {
				d = time.Hour
			}
			select {
			case <-time.After(d):
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		deliver := func(from, to int, within time.Duration) {
			for i := from; i <= to; i++ {
				s.deliver(testRecord(i, time.Now().Add(within)))
			}
			advance(2 * within)
		}
		deliver(10, 11, 5*time.Second)
		deliver(1, 1, 500*time.Millisecond)
		deliver(12, 20, 900*time.Millisecond)
		mu.Lock()
		if len(states) != 0 {
			t.Errorf("calls of 1 s that were given less: the circuit went %v", states)
		}
		mu.Unlock()
		deliver(21, 23, 5*time.Second)
		stop()
		if !slices.Equal(states, []string{"open"}) {
			t.Errorf("three calls that were given 5 s, and hang: the circuit went %v; want open", states)
		}
	})
}

func TestShutdownFinishesWhatRunsAndLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var abandoned atomic.Int32
		stop := start(t, s, Config{Concurrency: 2, Grace: 5 * time.Second,
			Listener: Listener{Abandoned: func(Request) { abandoned.Add(1) }}},
			func(ctx context.Context, r Request) (any, error) {
				d := 3 * time.Second
				if r.Task == "o-1" {
					d = time.Hour
				}
				select {
				case <-time.After(d):
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
		for i := range 4 {
			s.deliver(testRecord(i, time.Now().Add(time.Hour)))
		}
		advance(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("left after %v; the grace is 5s", took)
		}
		if s.outcome(testID(0)) != "completed" || len(s.calls().replies) != 1 || len(s.calls().done) != 1 || abandoned.Load() != 3 {
			t.Errorf("replied %d, done %v, abandoned %d", len(s.calls().replies), s.calls().done, abandoned.Load())
		}
	})
}

// The context of a call is cancelled when the call fails, not only when the handler is called again.
func TestContextOfACallEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var failed, ended time.Time
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			if failed.IsZero() {
				failed = time.Now()
				context.AfterFunc(ctx, func() { ended = time.Now() })
				return nil, Transient(errors.New("busy"))
			}
			return nil, nil
		})
		s.deliver(testRecord(0, time.Now().Add(time.Hour)))
		advance(time.Minute)
		stop()
		if got := s.outcome(testID(0)); got != "completed" || !ended.Equal(failed) {
			t.Errorf("replied %q; the context of a call that failed at %v ended at %v", got, failed, ended)
		}
	})
}

// The context of a call is done when the grace period is over. Its reply may be sent until the time for sending is
// over.
func TestReplyOutlivesTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		s.sendDelay = func() time.Duration { return returnTimeout / 2 }
		var failed atomic.Int32
		stop := start(t, s, Config{Grace: 5 * time.Second, Listener: Listener{SendFailed: func(Request, error) { failed.Add(1) }}},
			func(context.Context, Request) (any, error) {
				time.Sleep(5*time.Second - returnTimeout/4)
				return nil, nil
			})
		s.deliver(testRecord(0, time.Now().Add(time.Hour)))
		synctest.Wait()
		stop()
		if s.outcome(testID(0)) != "completed" || failed.Load() != 0 {
			t.Errorf("replied %q; %d sends failed", s.outcome(testID(0)), failed.Load())
		}
	})
}

func TestUnhealthyInstanceLeavesAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []*fakeSession
		var sick atomic.Bool
		var left error
		cfg := Config{
			Open: func(context.Context) (Session, error) {
				sessions = append(sessions, newFakeSession())
				return sessions[len(sessions)-1], nil
			},
			Health: Health{Every: time.Second, Failures: 3, Check: func(context.Context) error {
				if sick.Load() {
					return errors.New("disk full")
				}
				return nil
			}},
			Listener: Listener{Left: func(reason error) { left = reason }},
		}
		last := newFakeSession()
		last.closed = true
		stop := start(t, last, cfg, completes)
		advance(10 * time.Second)
		sick.Store(true)
		advance(5 * time.Second)
		if len(sessions) != 1 || !sessions[0].calls().closed || left == nil {
			t.Fatalf("%d sessions, closed %v, left by %v", len(sessions), sessions[0].calls().closed, left)
		}
		sick.Store(false)
		advance(2 * time.Second)
		if len(sessions) != 2 || sessions[1].calls().closed {
			t.Errorf("%d sessions after the instance was healthy again", len(sessions))
		}
		sessions[1].deliver(testRecord(1, time.Now().Add(time.Minute)))
		advance(time.Second)
		stop()
		if sessions[1].outcome(testID(1)) != "completed" {
			t.Error("no reply after the return")
		}
	})
}

// A health check that hangs and ignores its context counts as failed. The instance leaves its group and can end. The
// check is not called again before it returns.
func TestHealthCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []*fakeSession
		var calls atomic.Int32
		hangs, proceed := atomic.Bool{}, make(chan struct{})
		cfg := Config{
			Open: func(context.Context) (Session, error) {
				sessions = append(sessions, newFakeSession())
				return sessions[len(sessions)-1], nil
			},
			Health: Health{Every: time.Second, Failures: 3, Check: func(context.Context) error {
				calls.Add(1)
				if hangs.Load() {
					<-proceed
				}
				return nil
			}},
		}
		last := newFakeSession()
		last.closed = true
		stop := start(t, last, cfg, completes)
		advance(1500 * time.Millisecond)
		hangs.Store(true)
		before := calls.Load()
		advance(10 * time.Second)
		if len(sessions) != 1 || !sessions[0].calls().closed || calls.Load() != before+1 {
			t.Errorf("%d sessions, closed %v; %d checks hang", len(sessions), sessions[0].calls().closed, calls.Load()-before)
		}
		hangs.Store(false)
		close(proceed)
		advance(5 * time.Second)
		if len(sessions) != 2 || sessions[1].calls().closed {
			t.Errorf("%d sessions after the instance was healthy again", len(sessions))
		}
		proceed = make(chan struct{})
		hangs.Store(true)
		advance(1100 * time.Millisecond)
		stop()
		close(proceed)
	})
}

// panickingDownstream is a handler whose Downstream panics.
type panickingDownstream struct{ HandlerFunc }

func (panickingDownstream) Downstream(r Request) string {
	if number(r.Task) == 1 {
		panic("no such host")
	}
	return "host"
}

// A panic of Downstream fails the request. It doesn't affect the process or other requests.
func TestDownstreamThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var panicked atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{Source: "test", Open: func(context.Context) (Session, error) { return s, nil },
				Listener: Listener{Panicked: func(Request, any, []byte) { panicked.Add(1) }}}, panickingDownstream{completes})
		}()
		s.deliver(testRecord(1, time.Now().Add(time.Minute)), testRecord(2, time.Now().Add(time.Minute)))
		advance(time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if a, b := s.outcome(testID(1)), s.outcome(testID(2)); a != "failed none" || b != "completed" || panicked.Load() != 1 {
			t.Errorf("%q and %q; %d panics told", a, b, panicked.Load())
		}
	})
}

func TestBrokenSessionEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		fenced := errors.New("fenced")
		s.broken = fenced
		err := Run(t.Context(), Config{Source: "test", Open: func(context.Context) (Session, error) { return s, nil }}, HandlerFunc(completes))
		if !errors.Is(err, fenced) || !s.calls().closed {
			t.Errorf("%v, closed %v", err, s.calls().closed)
		}
	})
}

func TestRedeliveredRequestIsHandledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var calls atomic.Int32
		stop := start(t, s, Config{}, func(context.Context, Request) (any, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil, nil
		})
		r := testRecord(1, time.Now().Add(time.Minute))
		s.deliver(r, r)
		advance(3 * time.Second)
		stop()
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// If the partition of a waiting request is reassigned, the request is left to the new owner, without Done. If the
// partition comes back, the request is handled here.
func TestPartitionIsReassignedAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &movingSession{fakeSession: newFakeSession()}
		here := t.Context()
		gone, cancel := context.WithCancel(here)
		cancel()
		s.held.Store(&here)
		var calls, abandoned atomic.Int32
		stop := start(t, s.fakeSession, Config{Concurrency: 1,
			Open:     func(context.Context) (Session, error) { return s, nil },
			Listener: Listener{Abandoned: func(Request) { abandoned.Add(1) }},
		}, func(context.Context, Request) (any, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil, nil
		})
		first, second := testRecord(1, time.Now().Add(time.Minute)), testRecord(2, time.Now().Add(time.Minute))
		s.deliver(first, second)
		advance(100 * time.Millisecond)
		s.held.Store(&gone)
		advance(2 * time.Second)
		if calls.Load() != 1 || abandoned.Load() != 1 || s.calls().done[position{0, 2}] != 0 {
			t.Errorf("%d calls, %d abandoned, done %v", calls.Load(), abandoned.Load(), s.calls().done)
		}
		s.held.Store(&here)
		s.deliver(second)
		advance(2 * time.Second)
		stop()
		if s.outcome(testID(2)) != "completed" || s.calls().done[position{0, 2}] != 1 {
			t.Errorf("%q, done %v", s.outcome(testID(2)), s.calls().done)
		}
	})
}

func TestConfigNamesEveryFault(t *testing.T) {
	cfg := Config{Concurrency: -1, Grace: -1, Retry: Retry{MaxTries: -1, Backoff: -1, Factor: 0.5, Max: -2},
		Breaker: Breaker{OpenFor: -1}, Health: Health{Every: -1, Failures: -1}}
	err := Run(t.Context(), cfg, HandlerFunc(completes))
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{"no Open", "no Source", "Concurrency -1", "Grace -1ns", "Retry.MaxTries -1", "Retry.Backoff -1ns", "Retry.Max -2ns", "Retry.Factor 0.5",
		"Breaker.OpenFor -1ns", "Health.Every -1ns", "Health.Failures -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing of %q", err, want)
		}
	}
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// beatingRecord is testRecord with a heartbeat, and the progress of an earlier attempt.
func beatingRecord(n int, completeBy time.Time, heartbeat time.Duration, last string) events.Record {
	q := events.Request{Task: fmt.Sprintf("o-%d", n), Ref: events.RequestRef{Step: "s", Kind: Do, Attempt: 1}, Token: testToken, Operation: "op",
		CompleteBy: completeBy, IdempotencyKey: fmt.Sprintf("k-%d", n), Value: []byte(`{"n":1}`), Heartbeat: heartbeat, Progress: []byte(last)}
	r := q.Record("waybill.", "test", "a", 0)
	r.Offset = int64(n)
	return r
}

// reportsOf returns the reports as "<seconds since from>:<value>".
func (s *fakeSession) reportsOf(from time.Time) (list []string) {
	for _, r := range s.calls().reports {
		list = append(list, fmt.Sprintf("%.1f:%s", r.at.Sub(from).Seconds(), r.rec.Value))
	}
	return list
}

// A handler that reports often is throttled: the first value is sent at once, then the newest one in each two fifths of
// the heartbeat. The reply ends the reports.
func TestProgressIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var progressed atomic.Int32
		stop := start(t, s, Config{Listener: Listener{Progressed: func(Request) { progressed.Add(1) }}}, func(ctx context.Context, r Request) (any, error) {
			var last int
			if err := r.LastProgress(&last); err != nil || last != 40 || r.Heartbeat != 10*time.Second {
				t.Errorf("heartbeat %v, last progress %d: %v", r.Heartbeat, last, err)
			}
			for i := range 34 {
				if err := Progress(ctx, last+i); err != nil {
					return nil, err
				}
				time.Sleep(300 * time.Millisecond)
			}
			return "done", nil
		})
		from := time.Now()
		s.deliver(beatingRecord(1, from.Add(time.Minute), 10*time.Second, "40"))
		advance(time.Minute)
		if got, want := s.reportsOf(from), []string{"0.0:40", "4.0:53", "8.0:66"}; !slices.Equal(got, want) {
			t.Errorf("reports %q, want %q", got, want)
		}
		if s.outcome(testID(1)) != "completed" || progressed.Load() != 3 {
			t.Errorf("%q, %d progressed", s.outcome(testID(1)), progressed.Load())
		}
		ids := map[string]bool{}
		for _, r := range s.calls().reports {
			task, in, err := events.DecodeInput(events.Replies, &r.rec)
			if rep, ok := in.(*events.Reply); err != nil || task != "o-1" || !ok || rep.Outcome != events.Progress {
				t.Errorf("%s %+v: %v", task, in, err)
			}
			id, _ := r.rec.Header(events.HeaderID)
			ids[id] = true
		}
		if len(ids) != 3 {
			t.Errorf("ids %v", ids)
		}
		stop()
	})
}

// A value that was throttled is sent when its time has come, although the handler reports nothing more. So a handler
// may report a little less often than the heartbeat.
func TestLastProgressIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			for _, wait := range []time.Duration{0, time.Second, 9 * time.Second, 9 * time.Second} {
				time.Sleep(wait)
				if err := Progress(ctx, wait.Seconds()); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		from := time.Now()
		s.deliver(beatingRecord(1, from.Add(time.Minute), 10*time.Second, ""))
		advance(time.Minute)
		if got, want := s.reportsOf(from), []string{"0.0:0", "4.0:1", "10.0:9"}; !slices.Equal(got, want) || s.outcome(testID(1)) != "completed" {
			t.Errorf("reports %q, want %q; %q", got, want, s.outcome(testID(1)))
		}
		stop()
	})
}

// If a handler is silent for a heartbeat, its attempt is over: its context ends, and Progress returns an error.
func TestSilenceEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		from := time.Now()
		var over time.Duration
		var cause, late error
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			time.Sleep(3 * time.Second)
			if err := Progress(ctx, nil); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			over, cause = time.Since(from), context.Cause(ctx)
			late = Progress(ctx, 1)
			return nil, ctx.Err()
		})
		s.deliver(beatingRecord(1, from.Add(time.Minute), 10*time.Second, ""))
		advance(time.Minute)
		if over != 13*time.Second || !errors.Is(cause, ErrOver) || !errors.Is(late, ErrOver) {
			t.Errorf("over after %v by %v; then Progress: %v", over, cause, late)
		}
		if got := s.reportsOf(from); len(got) != 1 {
			t.Errorf("reports %q", got)
		}
		stop()
	})
}

// After a silence the handler isn't called again, nothing is replied, and the circuit counts one failure.
func TestNothingFollowsASilence(t *testing.T) {
	busy := Transient(errors.New("busy"))
	for name, ends := range map[string]func(ctx context.Context) (any, error){
		"a failure":         func(context.Context) (any, error) { return nil, errors.New("lost") },
		"a transient one":   func(context.Context) (any, error) { return nil, busy },
		"no effect":         func(context.Context) (any, error) { return nil, NoEffect(busy) },
		"an output":         func(context.Context) (any, error) { return 1, nil },
		"work that goes on": func(context.Context) (any, error) { return nil, Pending(nil, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSession()
				var calls, dropped, opened atomic.Int32
				stop := start(t, s, Config{Breaker: Breaker{Failures: 2},
					Listener: Listener{Dropped: func(Request) { dropped.Add(1) }, CircuitChanged: func(string, string, string) { opened.Add(1) }},
				}, func(ctx context.Context, _ Request) (any, error) {
					calls.Add(1)
					<-ctx.Done()
					return ends(ctx)
				})
				s.deliver(beatingRecord(1, time.Now().Add(time.Minute), 10*time.Second, ""))
				advance(30 * time.Second)
				if calls.Load() != 1 || dropped.Load() != 1 || opened.Load() != 0 || s.outcome(testID(1)) != "" || s.calls().done[position{0, 1}] != 1 {
					t.Errorf("%d calls, %d dropped, the circuit changed %d times, replied %q, done %v", calls.Load(), dropped.Load(), opened.Load(), s.outcome(testID(1)), s.calls().done)
				}
				stop()
			})
		})
	}
}

// A silence may begin between two calls. The handler isn't called after it.
func TestNoCallAfterASilence(t *testing.T) {
	for name, err := range map[string]error{"pending": Pending(nil, time.Second), "transient": RetryAfter(errors.New("busy"), 15*time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSession()
				s.sendErr = func() error { return errSend }
				from := time.Now()
				var dropped atomic.Int32
				stop := start(t, s, Config{Listener: Listener{Dropped: func(Request) { dropped.Add(1) }}}, func(context.Context, Request) (any, error) {
					if d := time.Since(from); d >= 10*time.Second {
						t.Errorf("called after %v", d)
					}
					return nil, err
				})
				s.deliver(beatingRecord(1, from.Add(time.Minute), 10*time.Second, ""))
				advance(30 * time.Second)
				if dropped.Load() != 1 || s.calls().done[position{0, 1}] != 1 {
					t.Errorf("%d dropped, done %v", dropped.Load(), s.calls().done)
				}
				stop()
			})
		})
	}
}

// Progress never waits for the broker. If no report is acknowledged for a heartbeat, the attempt is over.
func TestProgressWhileTheBrokerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		s.sendErr = func() error { return errSend }
		from := time.Now()
		var over time.Duration
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			for {
				before := time.Now()
				err := Progress(ctx, "x")
				if took := time.Since(before); took > 0 {
					t.Errorf("Progress took %v", took)
				}
				if err != nil {
					over = time.Since(from)
					return nil, err
				}
				time.Sleep(time.Second)
			}
		})
		s.deliver(beatingRecord(1, from.Add(time.Minute), 10*time.Second, ""))
		advance(30 * time.Second)
		if over != 10*time.Second {
			t.Errorf("over after %v", over)
		}
		advance(time.Minute)
		stop()
	})
}

// Without a heartbeat progress is sent at most once in 10 s, and silence ends nothing.
func TestProgressWithoutAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			for i := range 9 {
				if err := Progress(ctx, i); err != nil {
					return nil, err
				}
				time.Sleep(3 * time.Second)
			}
			time.Sleep(20 * time.Second)
			return nil, ctx.Err()
		})
		from := time.Now()
		s.deliver(testRecord(1, from.Add(time.Minute)))
		advance(time.Minute)
		if got, want := s.reportsOf(from), []string{"0.0:0", "10.0:3", "20.0:6", "30.0:8"}; !slices.Equal(got, want) || s.outcome(testID(1)) != "completed" {
			t.Errorf("reports %q, want %q; %q", got, want, s.outcome(testID(1)))
		}
		stop()
	})
}

// Nothing is sent after complete-by, also if a handler ignores its context and goes on reporting.
func TestNoProgressAfterCompleteBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var failed atomic.Int32
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			for range 100 {
				if err := Progress(ctx, "still here"); errors.Is(err, ErrOver) {
					failed.Add(1)
				}
				time.Sleep(130 * time.Millisecond)
			}
			return nil, nil
		})
		from := time.Now()
		s.deliver(beatingRecord(1, from.Add(5*time.Second), 2*time.Second, ""))
		advance(time.Minute) // the session reports what is sent too late
		if n := len(s.calls().reports); n == 0 || failed.Load() != 61 || s.outcome(testID(1)) != "" {
			t.Errorf("%d reports, %d refused, %q", n, failed.Load(), s.outcome(testID(1)))
		}
		stop()
	})
}

func TestProgressRefusesValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var errs []error
		stop := start(t, s, Config{}, func(ctx context.Context, _ Request) (any, error) {
			for _, v := range []any{strings.Repeat("x", events.MaxProgressBytes), func() {}, "fits"} {
				errs = append(errs, Progress(ctx, v))
			}
			return nil, nil
		})
		s.deliver(testRecord(1, time.Now().Add(time.Minute)))
		advance(time.Second)
		if len(errs) != 3 || errs[0] == nil || errs[1] == nil || errs[2] != nil {
			t.Errorf("%v", errs)
		}
		stop()
	})
	if err := Progress(context.Background(), 1); err == nil || errors.Is(err, ErrOver) {
		t.Errorf("outside of a handler: %v", err)
	}
}

// A pending request needs no slot while it waits. Its values are reported, and the handler is called until the work has
// ended.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var calls atomic.Int32
		stop := start(t, s, Config{Concurrency: 1}, func(ctx context.Context, r Request) (any, error) {
			if r.Task == "o-2" {
				return completes(ctx, r)
			}
			if n := calls.Add(1); n <= 15 {
				return nil, Pending(n, 700*time.Millisecond)
			}
			return "done", nil
		})
		from := time.Now()
		s.deliver(beatingRecord(1, from.Add(time.Minute), 5*time.Second, ""))
		advance(500 * time.Millisecond)
		s.deliver(testRecord(2, time.Now().Add(time.Second))) // while the first one waits
		advance(time.Minute)
		if got, want := s.reportsOf(from), []string{"0.0:1", "2.0:3", "4.0:6", "6.0:9", "8.0:12", "10.0:15"}; !slices.Equal(got, want) {
			t.Errorf("reports %q, want %q", got, want)
		}
		if s.outcome(testID(1)) != "completed" || s.outcome(testID(2)) != "completed" || calls.Load() != 16 {
			t.Errorf("%q, %q, %d calls", s.outcome(testID(1)), s.outcome(testID(2)), calls.Load())
		}
		stop()
	})
}

// Any number of pending requests wait without a slot. They are called when their time has come, and others are served.
func TestPendingRequestsUseNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pending = 100
		s := newFakeSession()
		var calls [pending]atomic.Int32
		stop := start(t, s, Config{Concurrency: 2}, func(ctx context.Context, r Request) (any, error) {
			n := number(r.Task)
			if n >= pending || calls[n].Add(1) > 5 {
				return completes(ctx, r)
			}
			return nil, Pending(nil, time.Second)
		})
		for n := range pending {
			s.deliver(testRecord(n, time.Now().Add(time.Hour)))
		}
		advance(500 * time.Millisecond)
		s.deliver(testRecord(pending, time.Now().Add(time.Hour)))
		advance(100 * time.Millisecond)
		if got := s.outcome(testID(pending)); got != "completed" {
			t.Errorf("a request behind %d pending ones: %q", pending, got)
		}
		advance(9 * time.Second)
		for n := range pending {
			if got := s.outcome(testID(n)); got != "completed" || calls[n].Load() != 6 {
				t.Errorf("o-%d: %q after %d calls", n, got, calls[n].Load())
			}
		}
		stop()
	})
}

// The number of pending requests in memory is bounded: the rest stays at the broker until some have ended.
func TestPendingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 1000
		s := newFakeSession()
		s.sendDelay = func() time.Duration { return 0 }
		var calls atomic.Int32
		var ended atomic.Bool
		cfg := Config{}
		stop := start(t, s, cfg, func(ctx context.Context, r Request) (any, error) {
			calls.Add(1)
			if ended.Load() {
				return completes(ctx, r)
			}
			return nil, Pending(nil, time.Minute)
		})
		for n := range pendingMax + more {
			s.deliver(testRecord(n, time.Now().Add(time.Hour)))
		}
		advance(time.Second)
		if n := calls.Load(); n < pendingMax || n > pendingMax+DefaultConcurrency {
			t.Errorf("%d requests were started, want %d", n, pendingMax)
		}
		s.mu.Lock()
		if left := len(s.ready); left < more-3*DefaultConcurrency {
			t.Errorf("%d requests are still at the broker", left)
		}
		s.mu.Unlock()
		ended.Store(true)
		advance(5 * time.Minute)
		if n := len(s.calls().replies); n != pendingMax+more {
			t.Errorf("%d replies, want %d", n, pendingMax+more)
		}
		stop()
	})
}

// A pending request is left to another instance when the process ends, and is dropped silently at complete-by.
func TestPendingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var dropped, abandoned atomic.Int32
		stop := start(t, s, Config{Grace: time.Second, Listener: Listener{Dropped: func(Request) { dropped.Add(1) }, Abandoned: func(Request) { abandoned.Add(1) }}},
			func(context.Context, Request) (any, error) { return nil, Pending("at work", time.Second) })
		s.deliver(testRecord(1, time.Now().Add(10*time.Second)), testRecord(2, time.Now().Add(time.Hour)))
		advance(time.Minute)
		stop()
		if dropped.Load() != 1 || abandoned.Load() != 1 || s.outcome(testID(1))+s.outcome(testID(2)) != "" {
			t.Errorf("%d dropped, %d abandoned, %q, %q", dropped.Load(), abandoned.Load(), s.outcome(testID(1)), s.outcome(testID(2)))
		}
	})
}

// TestPendingErrorOfAHandler checks that a PendingError that a handler made is treated as Pending's, and that a nil one,
// which Go passes as an error, is a failure.
func TestPendingErrorOfAHandler(t *testing.T) {
	for _, c := range []struct {
		p     PendingError
		value string
		after time.Duration
	}{
		{PendingError{}, "null", pendingMin},
		{PendingError{Value: json.RawMessage(`{"a":1}`), After: time.Second}, `{"a":1}`, time.Second},
		{PendingError{Value: json.RawMessage(`{`), After: -1}, "null", pendingMin},
	} {
		if r := resultOf(Do, nil, fmt.Errorf("bank: %w", &c.p)); r.pending == nil || string(r.pending.Value) != c.value || r.pending.After != c.after {
			t.Errorf("%+v: %+v", c.p, r.pending)
		}
	}
	nothing, failure := (*PendingError)(nil), (*Failure)(nil)
	for _, err := range []error{nothing, fmt.Errorf("bank: %w", nothing), failure} {
		if r := resultOf(Do, "output", err); r.pending != nil || r.output != nil || r.fail == nil || r.fail.NoEffect || r.fail.Rejected || r.fail.Code != CodeFailed {
			t.Errorf("%T: %+v", err, r)
		}
	}
}

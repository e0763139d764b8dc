package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// operationRecord is the request of an attempt at an operation, at an offset of partition 0.
func operationRecord(offset int, q events.Request) events.Record {
	q.Token, q.IdempotencyKey, q.Value = testToken, fmt.Sprintf("k-%d", offset), []byte(`{"n":1}`)
	if q.Ref.Kind == Undo {
		q.Value, _ = events.UndoValue(events.UndoOf{IdempotencyKey: "k", Outcome: "completed"}, nil)
	}
	r := q.Record("waybill.", "test", "a", 0)
	r.Offset = int64(offset)
	return r
}

func requestOf(n int, step string, k events.Kind, by time.Time) events.Request {
	return events.Request{Task: fmt.Sprintf("o-%d", n), Ref: events.RequestRef{Step: step, Kind: k, Attempt: 1}, Token: testToken, Operation: step, CompleteBy: by}
}

// sharedHostHandler is a handler whose downstreams are on one host.
type sharedHostHandler struct{ HandlerFunc }

func (sharedHostHandler) Downstream(r Request) string { return "host/" + r.Operation }

func startHandler(t *testing.T, s *fakeSession, cfg Config, h Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Source, cfg.Open = "test", func(context.Context) (Session, error) { return s, nil }
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, h) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, f := range s.calls().faults {
			t.Error(f)
		}
	}
}

// A failing operation with more requests than slots doesn't delay 50 requests of another operation of the same service.
// They don't wait for the circuit of the failing operation.
func TestFailingOperationLeavesTheOthers(t *testing.T) {
	for name, wrap := range map[string]func(HandlerFunc) Handler{
		"a handler without downstreams": func(h HandlerFunc) Handler { return h },
		"one host":                      func(h HandlerFunc) Handler { return sharedHostHandler{h} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSession()
				stop := startHandler(t, s, Config{Concurrency: 4}, wrap(func(_ context.Context, r Request) (any, error) {
					time.Sleep(10 * time.Millisecond)
					if r.Operation == "charge" {
						return nil, Transient(errors.New("503"))
					}
					return 1, nil
				}))
				by := time.Now().Add(10 * time.Second)
				for n := range 50 {
					s.deliver(operationRecord(2*n, requestOf(n, "charge", Do, by)), operationRecord(2*n+1, requestOf(n, "reserve", Do, by)))
				}
				advance(4 * time.Second)
				for n := range 50 {
					if got := s.outcome(fmt.Sprintf("o-%d/reserve/do/1", n)); got != "completed" {
						t.Errorf("reserve of o-%d, 4 s later: %q", n, got)
					}
				}
				advance(10 * time.Second)
				stop()
			})
		})
	}
}

// The open circuit of an operation doesn't refuse its undos, even if both have the same name.
func TestUndoIsCalledUnderTheOpenCircuitOfADo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		stop := start(t, s, Config{Breaker: Breaker{Failures: 3, OpenFor: time.Minute}}, func(_ context.Context, r Request) (any, error) {
			if r.Kind == Do {
				return nil, errors.New("down")
			}
			return nil, nil
		})
		by := time.Now().Add(2 * time.Second)
		for n := range 3 {
			s.deliver(operationRecord(n, requestOf(n, "charge", Do, by)))
		}
		advance(100 * time.Millisecond)
		for n := range 60 {
			s.deliver(operationRecord(10+n, requestOf(n, "charge", Undo, by)))
		}
		advance(100 * time.Millisecond)
		for n := range 60 {
			if got := s.outcome(fmt.Sprintf("o-%d/charge/undo/1", n)); got != "completed" {
				t.Errorf("the undo of o-%d: %q", n, got)
			}
		}
		stop()
	})
}

// If an open circuit blocks a request until complete-by, the reply has retry-after and the attempt doesn't count. An
// attempt with a call counts.
func TestOpenCircuitRepliesRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		stop := start(t, s, Config{Breaker: Breaker{Failures: 2, OpenFor: 5 * time.Second}}, func(_ context.Context, r Request) (any, error) {
			if r.Task == "o-0" {
				return nil, NoEffect(errors.New("refused"))
			}
			return nil, Transient(errors.New("down"))
		})
		s.deliver(testRecord(0, time.Now().Add(2*time.Second)), testRecord(1, time.Now().Add(2*time.Second)))
		advance(time.Second)
		s.deliver(testRecord(2, time.Now().Add(2*time.Second)))
		advance(time.Second)
		stop()
		for n, want := range map[int]struct {
			outcome string
			after   time.Duration
		}{
			0: {"failed none", 0},                                // it was called, so it counts
			1: {"failed", 4900 * time.Millisecond},               // it was called; when the circuit opened, too little time was left to wait for it
			2: {"failed none", 4*time.Second + time.Millisecond}, // the circuit had been open for 1 s
		} {
			rec := s.calls().replies[testID(n)]
			_, in, err := events.DecodeInput(events.Replies, &rec)
			if err != nil {
				t.Fatalf("o-%d: %v", n, err)
			}
			got := in.(*events.Reply).RetryAfter
			if s.outcome(testID(n)) != want.outcome || got < want.after || got > want.after+200*time.Millisecond {
				t.Errorf("o-%d: %q, again after %v; want %q, after %v", n, s.outcome(testID(n)), got, want.outcome, want.after)
			}
		}
	})
}

// A request that waits for a circuit or a backoff has no slot. Its next call gets a slot before requests that were not
// started. At most Concurrency handlers run at once.
func TestWaitingReleasesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		var now, most atomic.Int32
		var failed [3]atomic.Bool
		stop := start(t, s, Config{Concurrency: 3, Retry: Retry{Backoff: 10 * time.Second, Max: 10 * time.Second}}, func(_ context.Context, r Request) (any, error) {
			storeMax(&most, now.Add(1))
			defer now.Add(-1)
			if n := number(r.Task); n < 3 && !failed[n].Swap(true) {
				return nil, Transient(errors.New("busy"))
			}
			time.Sleep(time.Second)
			return nil, nil
		})
		for n := range 3 {
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
		}
		advance(100 * time.Millisecond)
		for n := 3; n < 63; n++ {
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
		}
		advance(9 * time.Second)
		if got := len(s.calls().replies); got < 24 {
			t.Errorf("%d of 60 were finished in 9 s while three others wait; three slots allow 27", got)
		}
		advance(4 * time.Second)
		for n := range 3 {
			if got := s.outcome(testID(n)); got != "completed" {
				t.Errorf("o-%d has waited and must be called before requests that were not started: %q", n, got)
			}
		}
		advance(30 * time.Second)
		stop()
		if len(s.calls().replies) != 63 || most.Load() != 3 {
			t.Errorf("%d of 63 were replied, %d called at once", len(s.calls().replies), most.Load())
		}
	})
}

// Requests that wait for a backoff use no slots, even if they are many. Requests that were not started wait then, and
// those whose backoff is over are called.
func TestBackoffsUseNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 40
		s := newFakeSession()
		var first, second atomic.Int32
		var called [requests]atomic.Bool
		stop := start(t, s, Config{Concurrency: 2, Breaker: Breaker{Failures: 1000}}, func(_ context.Context, r Request) (any, error) {
			n := number(r.Task)
			if called[n].Swap(true) {
				second.Add(1)
				return nil, nil
			}
			first.Add(1)
			wait := time.Second
			if n >= parkedPerSlot*2 {
				wait = 10 * time.Minute // the last to be started
			}
			return nil, RetryAfter(errors.New("busy"), wait)
		})
		for n := range requests {
			s.deliver(testRecord(n, time.Now().Add(time.Hour)))
		}
		advance(500 * time.Millisecond)
		if n := first.Load(); n < parkedPerSlot*2 || n > parkedPerSlot*2+2 {
			t.Errorf("%d requests were started, want about %d", n, parkedPerSlot*2)
		}
		advance(time.Second)
		if n := second.Load(); n != parkedPerSlot*2 {
			t.Errorf("%d of %d requests were called after their backoff", n, parkedPerSlot*2)
		}
		advance(59 * time.Minute)
		if n := len(s.calls().replies); n != requests {
			t.Errorf("%d of %d requests were replied", n, requests)
		}
		stop()
	})
}

// The number of requests that wait for a circuit is bounded. Further requests are replied with retry-after.
func TestWaitsForACircuitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSession()
		down := atomic.Bool{}
		down.Store(true)
		stop := start(t, s, Config{Concurrency: 2, Breaker: Breaker{Failures: 2, OpenFor: 5 * time.Second}}, func(context.Context, Request) (any, error) {
			if down.Load() {
				return nil, errors.New("down")
			}
			return nil, nil
		})
		for n := range 20 {
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
		}
		advance(time.Second)
		down.Store(false)
		advance(time.Minute)
		stop()
		got := map[string]int{}
		for n := range 20 {
			got[s.outcome(testID(n))]++
		}
		if got["failed"] != 2 || got["failed none"] != 18-parkedPerSlot*2 || got["completed"] != parkedPerSlot*2 {
			t.Errorf("%v; want two failed calls, %d requests that waited, and retry-after for the others", got, parkedPerSlot*2)
		}
	})
}

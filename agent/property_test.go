package agent

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// behaviour is what a random handler does with one request.
type behaviour struct {
	arrives, completeIn time.Duration
	calls               []callBehaviour // the last one repeats
}

type callBehaviour struct {
	takes         time.Duration
	ignoresCtx    bool
	ends          int // index into endings
	retryAfterDur time.Duration
}

var endings = []func(callBehaviour) error{
	func(callBehaviour) error { return nil },
	func(callBehaviour) error { return nil },
	func(callBehaviour) error { return errors.New("failed") },
	func(callBehaviour) error { return Transient(errors.New("transient")) },
	func(callBehaviour) error { return NoEffect(Transient(errors.New("refused"))) },
	func(c callBehaviour) error { return RetryAfter(errors.New("busy"), c.retryAfterDur) },
	func(callBehaviour) error { return Rejected("no", "never") },
	func(callBehaviour) error { panic("boom") },
}

// storeMax sets most to n if n is larger.
func storeMax(most *atomic.Int32, n int32) {
	for {
		if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
			return
		}
	}
}

// number returns n for the task o-<n>.
func number(task string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(task, "o-"))
	if err != nil {
		panic(err)
	}
	return n
}

func millis(t *rapid.T, least, most int, label string) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Millisecond
}

func drawBehaviour(t *rapid.T) behaviour {
	b := behaviour{arrives: millis(t, 0, 3000, "arrives"), completeIn: millis(t, -50, 4000, "complete in")}
	for range rapid.IntRange(1, 4).Draw(t, "calls") {
		b.calls = append(b.calls, callBehaviour{millis(t, 0, 1500, "takes"), rapid.IntRange(0, 9).Draw(t, "ignores ctx") == 0,
			rapid.IntRange(0, len(endings)-1).Draw(t, "ends"), millis(t, 0, 3000, "retry after")})
	}
	return b
}

// The following holds for any behaviour of handlers, the network and time. Nothing is sent at or after complete-by, and
// every send ends by then. Every request is done exactly once, and not before its reply is acknowledged or its time is
// over. The number of running handlers is bounded. The session checks all but the last.
func TestNothingAfterCompleteBy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bs := rapid.SliceOfN(rapid.Custom(drawBehaviour), 1, 30).Draw(rt, "requests")
		concurrency := rapid.IntRange(1, 8).Draw(rt, "concurrency")
		latencies := rapid.SliceOfN(rapid.IntRange(0, 800), 1, 20).Draw(rt, "send latencies")
		failures := rapid.SliceOfN(rapid.Bool(), 1, 20).Draw(rt, "send failures")
		failures[0] = false
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			faults = runSession(t, bs, concurrency, latencies, failures)
		})
		if len(faults) > 0 {
			rt.Fatalf("%s", strings.Join(faults, "\n"))
		}
	})
}

func runSession(t *testing.T, bs []behaviour, concurrency int, latencies []int, failures []bool) []string {
	s := newFakeSession()
	var sends, acks, now, most atomic.Int32
	s.sendDelay = func() time.Duration {
		return time.Duration(latencies[int(sends.Add(1))%len(latencies)]) * time.Millisecond
	}
	s.sendErr = func() error {
		if failures[int(acks.Add(1))%len(failures)] {
			return errSend
		}
		return nil
	}
	tries := make([]atomic.Int32, len(bs))
	handler := func(ctx context.Context, r Request) (any, error) {
		storeMax(&most, now.Add(1))
		defer now.Add(-1)
		i := number(r.Task)
		b := bs[i]
		c := b.calls[min(int(tries[i].Add(1)), len(b.calls))-1]
		if c.ignoresCtx {
			time.Sleep(c.takes)
			return nil, endings[c.ends](c)
		}
		select {
		case <-time.After(c.takes):
			return nil, endings[c.ends](c)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{Source: "test", Concurrency: concurrency, Breaker: Breaker{Failures: 4, OpenFor: 500 * time.Millisecond},
			Open: func(context.Context) (Session, error) { return s, nil }}, HandlerFunc(handler))
	}()
	for i, b := range bs {
		go func() {
			time.Sleep(b.arrives)
			s.deliver(testRecord(i, time.Now().Add(b.completeIn)))
		}()
	}
	time.Sleep(time.Minute)
	cancel()
	if err := <-ended; err != nil {
		s.fault("Run: %v", err)
	}
	for i := range bs {
		if n := s.calls().done[position{0, int64(i)}]; n != 1 {
			s.fault("%s: done %d times", testID(i), n)
		}
	}
	if int(most.Load()) > concurrency {
		s.fault("%d handlers at once; the bound is %d", most.Load(), concurrency)
	}
	return s.calls().faults
}

package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endsAs is a handler that takes 1 s. The task's number selects its result.
func endsAs(_ context.Context, r Request) (any, error) {
	time.Sleep(time.Second)
	return nil, []error{nil, errors.New("lost"), Rejected("no", "never"), NoEffect(errors.New("refused"))}[number(r.Task)]
}

// If an instance dies after a reply was acknowledged and before its offset is committed, the attempt is repeated. So a
// reply without effect is followed by a commit at once.
func TestReplyWithoutEffectIsCommittedSoon(t *testing.T) {
	for n, want := range []int{0, 0, 1, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeSession()
			stop := start(t, s, Config{}, endsAs)
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
			advance(2 * time.Second)
			if s.calls().commitsAsked != want || s.calls().done[position{0, int64(n)}] != 1 {
				t.Errorf("%s: %d commits asked for, want %d; done %v", s.outcome(testID(n)), s.calls().commitsAsked, want, s.calls().done)
			}
			stop()
		})
	}
}

// After its partition was reassigned, an instance doesn't send a reply without effect, because the new owner may be
// calling the handler.
func TestReplyWithoutEffectIsNotSentAfterReassignment(t *testing.T) {
	for n, want := range []string{"completed", "failed", "", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &movingSession{fakeSession: newFakeSession()}
			here := t.Context()
			gone, cancel := context.WithCancel(here)
			cancel()
			s.held.Store(&here)
			var abandoned atomic.Int32
			stop := start(t, s.fakeSession, Config{
				Open:     func(context.Context) (Session, error) { return s, nil },
				Listener: Listener{Abandoned: func(Request) { abandoned.Add(1) }},
			}, endsAs)
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
			advance(100 * time.Millisecond)
			s.held.Store(&gone)
			advance(2 * time.Second)
			stop()
			done := s.calls().done[position{0, int64(n)}]
			if s.outcome(testID(n)) != want || (done == 0) != (want == "") || (abandoned.Load() == 1) != (want == "") {
				t.Errorf("ending %d: %q, want %q; done %d times, %d abandoned", n, s.outcome(testID(n)), want, done, abandoned.Load())
			}
		})
	}
}

// A reply without effect that is being sent is withdrawn when its partition is reassigned. The request is left to the
// new owner.
func TestReplyWithoutEffectIsSentAsOwner(t *testing.T) {
	for n, want := range []string{"completed", "failed", "", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &movingSession{fakeSession: newFakeSession()}
			s.sendDelay = func() time.Duration { return time.Second }
			held, lose := context.WithCancel(t.Context())
			s.held.Store(&held)
			var abandoned, failed atomic.Int32
			stop := start(t, s.fakeSession, Config{
				Open:     func(context.Context) (Session, error) { return s, nil },
				Listener: Listener{Abandoned: func(Request) { abandoned.Add(1) }, SendFailed: func(Request, error) { failed.Add(1) }},
			}, endsAs)
			s.deliver(testRecord(n, time.Now().Add(time.Minute)))
			advance(1500 * time.Millisecond) // the reply is being sent
			lose()
			advance(time.Second)
			stop()
			withdrawn := want == ""
			if s.outcome(testID(n)) != want || (s.asOwner.Load() == 1) != withdrawn || (abandoned.Load() == 1) != withdrawn || failed.Load() != 0 {
				t.Errorf("ending %d: %q, want %q; %d sent as owner, %d abandoned, %d sends failed", n, s.outcome(testID(n)), want, s.asOwner.Load(), abandoned.Load(), failed.Load())
			}
		})
	}
}

// A previous owner of the partition may have started an attempt and died, so a failure here has an unknown effect. The
// same holds for an attempt that was started here before the partition was reassigned and came back.
func TestFailureHasUnknownEffectIfAnotherMayHaveStarted(t *testing.T) {
	for _, backAgain := range []bool{false, true} {
		for n, want := range []string{"completed", "failed", "rejected", "failed"} {
			synctest.Test(t, func(t *testing.T) {
				s := &movingSession{fakeSession: newFakeSession()}
				here := t.Context()
				s.held.Store(&here)
				if !backAgain {
					s.startedBelow.Store(10)
				}
				stop := start(t, s.fakeSession, Config{Open: func(context.Context) (Session, error) { return s, nil }}, endsAs)
				s.deliver(testRecord(n, time.Now().Add(time.Minute)))
				advance(100 * time.Millisecond)
				s.startedBelow.Store(10)
				advance(2 * time.Second)
				stop()
				if s.outcome(testID(n)) != want || s.calls().done[position{0, int64(n)}] != 1 {
					t.Errorf("ending %d: %q, want %q; done %v", n, s.outcome(testID(n)), want, s.calls().done)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // no other instance had this partition
		s := &movingSession{fakeSession: newFakeSession()}
		here := t.Context()
		s.held.Store(&here)
		s.startedBelow.Store(3)
		stop := start(t, s.fakeSession, Config{Open: func(context.Context) (Session, error) { return s, nil }}, endsAs)
		s.deliver(testRecord(3, time.Now().Add(time.Minute)))
		advance(2 * time.Second)
		stop()
		if got := s.outcome(testID(3)); got != "failed none" {
			t.Errorf("%q of a request that came when the partition was here", got)
		}
	})
}

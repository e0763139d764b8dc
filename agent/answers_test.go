package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endsAs is a handler that takes a second and ends as the task's number says.
func endsAs(_ context.Context, r Request) (any, error) {
	time.Sleep(time.Second)
	return nil, []error{nil, errors.New("lost"), Rejected("no", "never"), NoEffect(errors.New("refused"))}[number(r.Task)]
}

// Whoever has died with a reply acknowledged and its offset not committed leaves
// the attempt to be done again. Where the reply says that nothing happened the
// commit is not waited for.
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

// Once its partition is another's, an instance no longer says of an attempt that
// nothing happened: it may be happening there.
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

// Whoever had the partition before may have begun an attempt, and have died with what it
// knew. So a failure here isn't said to be without effect, as the attempt may have had one. It
// is the same with one that was begun here, when the partition went meanwhile and came back.
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
	synctest.Test(t, func(t *testing.T) { // and what nobody else has had
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

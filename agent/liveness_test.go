package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// hangingPoll is a session whose Poll doesn't return after it returned all available records.
type hangingPoll struct {
	*fakeSession
	release chan struct{}
}

func (s hangingPoll) Poll(context.Context) ([]events.Record, error) {
	<-s.release
	return nil, errors.New("released")
}

// A Poll that doesn't return is reported as stalled. So is a loop that doesn't accept its records.
func TestStalledPollIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live Liveness
		s := hangingPoll{newFakeSession(), make(chan struct{})}
		ended := make(chan error, 1)
		go func() {
			ended <- Run(t.Context(), Config{Source: "test", Liveness: &live, Open: func(context.Context) (Session, error) { return s, nil }}, HandlerFunc(completes))
		}()
		advance(10 * time.Second)
		if d := live.HungFor(); d != 0 {
			t.Errorf("after 10s: %v", d)
		}
		advance(15 * time.Second)
		if d := live.HungFor(); d != 25*time.Second {
			t.Errorf("after 25s: %v", d)
		}
		close(s.release)
		if err := <-ended; err == nil {
			t.Error("it has not ended")
		}
		advance(time.Hour)
		if d := live.HungFor(); d != 0 {
			t.Errorf("it hangs after its end: %v", d)
		}
	})
}

// pollsQuickly is a session whose Poll returns within its bound.
type pollsQuickly struct{ *fakeSession }

func (s pollsQuickly) Poll(ctx context.Context) ([]events.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	records, err := s.fakeSession.Poll(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return records, err
}

// Slow handlers, handlers that ignore their context, unreachable brokers and more requests than slots are not
// reported as stalled.
func TestSlowHandlersAndBrokersAreNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live Liveness
		s := pollsQuickly{newFakeSession()}
		release := make(chan struct{})
		unreachable := true
		s.sendErr = func() error {
			if unreachable {
				return errors.New("no broker")
			}
			return nil
		}
		stop := start(t, s.fakeSession, Config{Concurrency: 2, Liveness: &live, Open: func(context.Context) (Session, error) { return s, nil }},
			func(_ context.Context, r Request) (any, error) {
				switch r.Task {
				case "o-0":
					<-release
				case "o-2":
					return nil, &Failure{Code: "later", Transient: true, After: time.Minute}
				}
				return nil, nil
			})
		s.deliver(testRecord(0, time.Now().Add(time.Minute)))
		for n := range 5 {
			s.deliver(testRecord(n+1, time.Now().Add(time.Hour)))
		}
		for range 30 {
			advance(10 * time.Second)
			if d := live.HungFor(); d != 0 {
				t.Fatalf("it hangs: %v", d)
			}
		}
		s.mu.Lock()
		unreachable = false
		s.mu.Unlock()
		close(release)
		advance(time.Hour)
		stop()
	})
}

// A worker that hangs outside of the handler is reported as stalled. Here a listener hangs.
func TestStalledWorkerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live Liveness
		s := pollsQuickly{newFakeSession()}
		release := make(chan struct{})
		stop := start(t, s.fakeSession, Config{Concurrency: 2, Liveness: &live, Open: func(context.Context) (Session, error) { return s, nil },
			Listener: Listener{Finished: func(r Request, _ events.Outcome, _ time.Duration) {
				if r.Task == "o-0" {
					<-release
				}
			}}}, completes)
		s.deliver(testRecord(0, time.Now().Add(time.Hour)))
		for i := range 5 { // other workers continue
			advance(5 * time.Second)
			s.deliver(testRecord(i+1, time.Now().Add(time.Hour)))
		}
		if d := live.HungFor().Round(time.Second); d != 25*time.Second { // it hangs since the reply was acknowledged
			t.Errorf("after 25s: %v", d)
		}
		close(release)
		advance(time.Second)
		if d := live.HungFor(); d != 0 {
			t.Errorf("it goes on, and is said to hang: %v", d)
		}
		stop()
	})
}

// Requests that wait although slots are free are reported as stalled.
func TestStarvedRequestsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live Liveness
		m := membership{runner: &runner{cfg: Config{Concurrency: 1, Liveness: &live}}, queue: []job{{}}}
		m.mu.Lock()
		m.unlock()
		time.Sleep(25 * time.Second)
		if d := live.HungFor(); d != 25*time.Second {
			t.Errorf("after 25s: %v", d)
		}
		m.mu.Lock()
		m.slotsUsed = 1
		m.unlock()
		if d := live.HungFor(); d != 0 {
			t.Errorf("one was taken: %v", d)
		}
	})
}

package chaos

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

// timerFigure is a number of timers that become due, evenly over a time or all at once. Other timers are due far in the
// future.
type timerFigure struct {
	name       string
	due, armed int
	over       time.Duration // 0: all at one instant, as near as the decisions are
	within     time.Duration // from the decision that creates a timer until it is due
}

func timerFigures() []timerFigure {
	if *figures {
		return []timerFigure{
			{"spread", 100_000, 100_000, 60 * time.Second, 75 * time.Second},
			{"burst", 10_000, 100_000, 0, 20 * time.Second},
		}
	}
	return []timerFigure{{"spread", 1_000, 1_000, 2 * time.Second, 4 * time.Second}}
}

// The test measures how late timers are. One figure is from a timer's due time until a consumer of the topic receives
// the recovery, shortly after it is acknowledged. The other is until the timestamp (at) of the event that accepts it.
// Each role is a process.
func TestTimerLateness(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	for _, kind := range []string{kafkatest.EmbeddedKind, kafkatest.KafkaKind} {
		for _, f := range timerFigures() {
			t.Run(kind+"/"+f.name, func(t *testing.T) {
				s := newFigureSystem(t, brokerOf(t, kind), 50*time.Hour, f.within)
				s.start(schedulerChild)
				s.start(supervisorChild)
				s.awaitCount(s.cfg.Namespace.Requests(systemAgent), f.armed, func() { s.submit("w0", f.armed, 0) })
				s.timers(f)
			})
		}
	}
}

// timers creates the timers of a figure, waits until all are decided, and reports the lateness.
func (s *figureSystem) timers(f timerFigure) {
	var mu sync.Mutex
	asked := map[string]time.Time{} // task -> when its recovery was received
	all := make(chan struct{})
	stop := s.follow(s.cfg.Namespace.Inbox(events.Recoveries), func(a arrival) {
		mu.Lock()
		defer mu.Unlock()
		if _, again := asked[string(a.Key)]; !again {
			if asked[string(a.Key)] = a.seen; len(asked) == f.due {
				close(all)
			}
		}
	})
	defer stop()
	load := machineLoad(s.t)
	s.submit("w1", f.due, f.over)
	overslept := measureSleepDelays()
	select {
	case <-all:
	case <-time.After(suite.Patience):
		s.t.Fatalf("%d of %d recoveries within %s", len(asked), f.due, suite.Patience)
	}
	sleeper := overslept()
	mu.Lock()
	defer mu.Unlock()
	due, accepted := s.decided(f.due)
	var late, decided []time.Duration
	for task, at := range due {
		late = append(late, asked[task].Sub(at))
		decided = append(decided, accepted[task].Sub(at))
	}
	slices.Sort(late)
	slices.Sort(decided)
	if late[0] < 0 || decided[0] < 0 {
		s.t.Errorf("a timer fired %s before it was due, and was decided %s before", -late[0], -decided[0])
	}
	tally.Say(s.t, "%d timers due over %s, %d more armed, on the %s broker: asked for %s after due, decided %s after; load %s to %s, where who only sleeps wakes %s late",
		len(due), f.over, f.armed, s.broker.Kind, percentiles(late), percentiles(decided), load, machineLoad(s.t), percentiles(sleeper))
}

// measureSleepDelays sleeps repeatedly until stop is called. stop returns how much each sleep was too long: the delay
// that a busy machine causes for any process.
func measureSleepDelays() (stop func() []time.Duration) {
	const beat = 5 * time.Millisecond
	var late []time.Duration
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			began := time.Now()
			select {
			case <-ended:
				return
			case <-time.After(beat):
				late = append(late, time.Since(began)-beat)
			}
		}
	}()
	return func() []time.Duration {
		close(ended)
		<-done
		slices.Sort(late)
		return late
	}
}

// decided returns when the timers of n tasks of "w1" were due and when they were decided. It reads the log and waits
// for the last one.
func (s *figureSystem) decided(n int) (due, accepted map[string]time.Time) {
	s.t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		due, accepted = map[string]time.Time{}, map[string]time.Time{}
		_, err := s.restorer.ReadAll(s.t.Context(), s.cfg.Namespace.Events(), logreader.Range{}, func(rs []events.Record) error {
			for i := range rs {
				e, err := events.DecodeEvent(&rs[i])
				if err != nil {
					return err
				}
				if !strings.HasPrefix(e.Task, "w1-") {
					continue
				}
				if _, arms := e.Fact.(*events.AttemptStarted); arms {
					due[e.Task] = e.Due
				} else if _, armed := due[e.Task]; armed && accepted[e.Task].IsZero() {
					accepted[e.Task] = e.At // the events after it end the task
				}
			}
			return nil
		}, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(due) == n && len(accepted) == n {
			return due, accepted
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d timers armed, %d decided, want %d", len(due), len(accepted), n)
		}
	}
}

package chaos

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

// timerFigure is a number of timers that become due, evenly over a time or all
// at once, while others are armed far in the future.
type timerFigure struct {
	name       string
	due, armed int
	over       time.Duration // 0: all at one instant, as near as decisions are
	within     time.Duration // from the decision that arms a timer to its due
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

// Timers become due, and are asked for and decided: how late, from the due of each
// to the recovery as a reader of the topic sees it (a little after it is
// acknowledged), and to the instant (at) of the event that accepts it. Real roles,
// each a process.
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

// timers arms those of a figure, waits until all are decided, and tells.
func (s *figureSystem) timers(f timerFigure) {
	var mu sync.Mutex
	asked := map[string]time.Time{} // task -> when its recovery was seen
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
	case <-time.After(figureBuild):
		s.t.Fatalf("%d of %d recoveries within %s", len(asked), f.due, figureBuild)
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

// measureSleepDelays sleeps again and again, until the returned func is called, which tells
// by how much it overslept: what a machine that others use does to anyone.
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

// decided reads, for n tasks of "w1", when their timer was due and when it was
// decided about, from the log; it waits for the last.
func (s *figureSystem) decided(n int) (due, accepted map[string]time.Time) {
	s.t.Helper()
	for deadline := time.Now().Add(figureBuild); ; {
		due, accepted = map[string]time.Time{}, map[string]time.Time{}
		_, err := s.restorer.ReadAll(s.t.Context(), s.cfg.Namespace.Events(), kafka.Range{}, func(rs []events.Record) error {
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
					accepted[e.Task] = e.At // what follows is its end
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

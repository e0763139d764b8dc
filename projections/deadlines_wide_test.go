package projections_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// wide makes the records of one task with many parallel steps. A scheduler might not write them, but a view must accept
// them.
type wide struct {
	at  time.Time
	seq uint64
}

func newWide() *wide { return &wide{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// event returns an event that arms a timer which is due after a duration; 0: none.
func (w *wide) event(due time.Duration, p events.TimerKind, f events.Fact) events.Record {
	w.seq++
	w.at = w.at.Add(time.Millisecond)
	e := &events.Event{Task: "wide", Seq: w.seq, At: w.at, Fact: f}
	if due > 0 {
		e.Due = events.Millis(w.at.Add(due))
		e.Policy = &events.Policy{Timer: p, Attempts: testAttempts, OnError: events.OnErrorUndo}
	}
	r := e.Record(events.DefaultNamespace, "test", testPartition, e.Value())
	r.Offset = int64(w.seq)
	return r
}

func (w *wide) started(step int) events.Record {
	return w.event(10*time.Second, events.TimerAttempt, &events.AttemptStarted{Kind: events.Do, Step: fmt.Sprint("step-", step), Attempt: 1})
}

func (w *wide) completed(step int) events.Record {
	return w.event(0, "", &events.AttemptCompleted{Kind: events.Do, Step: fmt.Sprint("step-", step), Attempt: 1})
}

// random returns an event about one of the steps, and sometimes about all.
func (w *wide) random(rnd *rand.Rand, steps int) events.Record {
	step := rnd.IntN(steps)
	name := fmt.Sprint("step-", step)
	due := time.Duration(1+rnd.IntN(20_000)) * time.Millisecond
	switch n := rnd.IntN(200); {
	case n < 120:
		return w.started(step)
	case n < 150:
		return w.completed(step)
	case n < 170:
		return w.event(due, events.TimerWaiting, &events.AttemptWaiting{Kind: events.Do, Step: name, Attempt: 1})
	case n < 180:
		return w.event(due, events.TimerAttempt, &events.AttemptStarted{Kind: events.Undo, Step: name, Attempt: 1})
	case n < 190:
		return w.event(0, "", &events.RunReleased{Step: name})
	case n < 196:
		return w.event(due, events.TimerTask, &events.TaskStarted{})
	case n < 199:
		return w.event(0, "", &events.TaskHeld{})
	default:
		return w.event(0, "", &events.TaskProcessed{})
	}
}

// TestDeadlinesOfATaskOfManySteps checks that a task with more than linearSearchMax timers has the timers of the fold,
// in its order, even after a restart.
func TestDeadlinesOfATaskOfManySteps(t *testing.T) {
	const steps, all = 60, 2000
	most := 0
	for seed := range seeds(t, 8) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		fs := vfs.NewMem()
		s := open(t, fs, projections.ViewDeadlines)
		v := deadlinesOf(t, s)
		w := newWide()
		naive := &alarms{timers: map[string]*events.Timers{}, put: map[string]alarm{}}
		for i := range all {
			r := w.random(rnd, steps)
			apply(t, v, []events.Record{r})
			naive.apply(&r)
			now := w.at.Add(time.Duration(rnd.IntN(20)) * time.Second)
			got, want := v.Due(now, all), naive.due(now, all)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, event %d: due\n got %v\nwant %v", seed, i, got, want)
			}
			most = max(most, v.Armed())
			if len(got) > 0 && rnd.IntN(3) == 0 {
				v.Snooze(got[0], now.Add(time.Second))
				naive.snooze(got[0], now.Add(time.Second))
			}
			if rnd.IntN(100) == 0 {
				live := v.Digest()
				v.Close()
				closeStore(t, s)
				s = open(t, fs, projections.ViewDeadlines)
				v = deadlinesOf(t, s)
				clear(naive.put)
				if loaded := v.Digest(); loaded != live {
					t.Fatalf("seed %d, event %d: loaded %s, live %s", seed, i, loaded, live)
				}
			}
		}
		v.Close()
		closeStore(t, s)
	}
	if most < 40 {
		t.Errorf("at most %d timers were armed at once: the test says little", most)
	}
}

// BenchmarkDeadlinesWide measures the start and completion of one step of a task with many parallel steps.
func BenchmarkDeadlinesWide(b *testing.B) {
	for _, steps := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			s := benchStore(b, projections.ViewDeadlines)
			v := deadlinesOf(b, s)
			w := newWide()
			for b.Loop() {
				b.StopTimer()
				var rs []events.Record
				for i := range steps {
					rs = append(rs, w.started(i))
				}
				for i := range steps {
					rs = append(rs, w.completed(i))
				}
				b.StartTimer()
				apply(b, v, rs)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*steps), "µs/step")
			v.Discard()
			closeStore(b, s)
		})
	}
}

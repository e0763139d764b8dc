package projections_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

func deadlinesOf(t testing.TB, s *projections.Store) *projections.Deadlines {
	t.Helper()
	v, err := s.Deadlines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// alarm is an armed timer in the naive index.
type alarm struct {
	due   projections.Due
	awake time.Time
}

// alarms is a naive index of timers: the fold of every task, searched linearly.
type alarms struct {
	timers map[string]*events.Timers
	put    map[string]alarm // snoozed timers
}

func timerName(task string, a events.Armed) string {
	return fmt.Sprint(task, "|", a.Timer.Seq, a.Slot)
}

func (n *alarms) apply(r *events.Record) {
	e, err := events.DecodeEvent(r)
	if err != nil {
		panic(err)
	}
	if e.Task == "" {
		return
	}
	if e.Seq == 1 { // another task may have had the id
		maps.DeleteFunc(n.put, func(_ string, a alarm) bool { return a.due.Task == e.Task })
	}
	if n.timers[e.Task] == nil {
		n.timers[e.Task] = &events.Timers{}
	}
	n.timers[e.Task].Evolve(e)
}

func (n *alarms) all() []alarm {
	var out []alarm
	for task, t := range n.timers {
		for _, a := range t.Armed {
			al := alarm{projections.Due{Task: task, Armed: a}, a.Timer.Due}
			if put, ok := n.put[timerName(task, a)]; ok {
				al = put
				al.due.Armed = a // a resume changes its complete-by
			}
			out = append(out, al)
		}
	}
	slices.SortFunc(out, func(a, b alarm) int {
		return cmp.Or(a.awake.Compare(b.awake), cmp.Compare(a.due.Task, b.due.Task), cmp.Compare(a.due.Armed.Timer.Seq, b.due.Armed.Timer.Seq))
	})
	return out
}

func (n *alarms) due(now time.Time, most int) []projections.Due {
	var out []projections.Due
	for _, a := range n.all() {
		if len(out) < most && !a.awake.After(now) {
			out = append(out, a.due)
		}
	}
	return out
}

func (n *alarms) snooze(d projections.Due, until time.Time) {
	d.Asked++
	n.put[timerName(d.Task, d.Armed)] = alarm{d, until}
}

// TestDeadlinesAgreeWithANaiveIndex compares Deadlines with the naive index over random histories, with queries,
// snoozes and restarts (which lose the snoozes).
func TestDeadlinesAgreeWithANaiveIndex(t *testing.T) {
	for seed := range seeds(t, 12) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		fs := vfs.NewMem()
		s := open(t, fs, projections.ViewDeadlines)
		v := deadlinesOf(t, s)
		h := newForgettingHistory(seed)
		naive := &alarms{timers: map[string]*events.Timers{}, put: map[string]alarm{}}
		for i := range 1000 {
			r := h.next()
			apply(t, v, []events.Record{r})
			naive.apply(&r)
			now := h.at.Add(time.Duration(rnd.IntN(20)) * time.Second)
			if rnd.IntN(5) == 0 {
				most := rnd.IntN(20)
				got, want := v.Due(now, most), naive.due(now, most)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, event %d: due\n got %v\nwant %v", seed, i, got, want)
				}
				for _, d := range got {
					if rnd.IntN(2) == 0 {
						until := now.Add(time.Duration(rnd.IntN(5)-1) * time.Second)
						v.Snooze(d, until)
						naive.snooze(d, until)
					}
				}
			}
			all := naive.all()
			if v.Armed() != len(all) {
				t.Fatalf("seed %d, event %d: %d armed, want %d", seed, i, v.Armed(), len(all))
			}
			if at, ok := v.Earliest(); ok != (len(all) > 0) || ok && !at.Equal(all[0].awake) {
				t.Fatalf("seed %d, event %d: earliest %v %v, want %v", seed, i, at, ok, all)
			}
			if rnd.IntN(30) == 0 {
				v.Save()
			}
			if rnd.IntN(300) == 0 {
				v.Close()
				closeStore(t, s)
				s = open(t, fs, projections.ViewDeadlines)
				v = deadlinesOf(t, s)
				clear(naive.put)
			}
		}
		if !v.At().Equal(events.Millis(h.at)) || v.Next() <= 0 {
			t.Fatalf("at %v, want %v", v.At(), h.at)
		}
		other := open(t, vfs.NewMem(), projections.ViewDeadlines)
		rebuilt := deadlinesOf(t, other)
		apply(t, rebuilt, newForgettingHistory(seed).records(1000))
		if got, want := rebuilt.Digest(), v.Digest(); got != want {
			t.Fatalf("seed %d: rebuilt %s, live with restarts %s", seed, got, want)
		}
		closeStore(t, other)
		closeStore(t, s)
	}
}

// TestTimerOfAnotherMillennium checks timers after the year 2262, when nanoseconds since 1970 overflow an int64.
func TestTimerOfAnotherMillennium(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewDeadlines)
	defer closeStore(t, s)
	v := deadlinesOf(t, s)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	far := time.Date(3000, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &events.Event{Task: "t", Seq: 3, At: at, Due: far, Policy: &events.Policy{Timer: events.TimerAttempt, Attempts: testAttempts, OnError: events.OnErrorUndo},
		Fact: &events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1}}
	apply(t, v, []events.Record{e.Record("waybill.", "s", testPartition, e.Value())})
	if first, ok := v.Earliest(); !ok || !first.Equal(far) {
		t.Errorf("the earliest is %v, %v; want %v", first, ok, far)
	}
	if due := v.Due(at.AddDate(100, 0, 0), 10); len(due) > 0 {
		t.Errorf("due: %v", due)
	}
}

func TestSnoozeOfADisarmedTimerIsIgnored(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewDeadlines)
	defer closeStore(t, s)
	v := deadlinesOf(t, s)
	v.Snooze(projections.Due{Task: "nobody"}, time.Now())
	if _, ok := v.Earliest(); ok || v.Armed() != 0 {
		t.Fatal("snoozing armed a timer")
	}
}

func TestUnreadableSilencesItsTaskOnly(t *testing.T) {
	h := newHistory(4)
	rs := h.records(400)
	fs := vfs.NewMem()
	s := open(t, fs, projections.ViewDeadlines)
	v := deadlinesOf(t, s)
	apply(t, v, rs)
	far := h.at.Add(24 * time.Hour)
	all := v.Due(far, 1000)
	if len(all) < 2 {
		t.Fatal("too few timers are armed")
	}
	victim := all[0].Task
	bad := events.Record{Partition: testPartition, Offset: h.offset, Key: []byte(victim), Value: []byte("{")}
	apply(t, v, []events.Record{bad})
	check := func() {
		t.Helper()
		want := slices.DeleteFunc(slices.Clone(all), func(d projections.Due) bool { return d.Task == victim })
		if got := v.Due(far, 1000); !reflect.DeepEqual(got, want) {
			t.Fatalf("due %v, want %v", got, want)
		}
		if st := v.Stopped(); len(st) != 1 || st[0].Task != victim {
			t.Fatalf("stopped %v", st)
		}
	}
	check()
	v.Close()
	closeStore(t, s)
	s = open(t, fs, projections.ViewDeadlines)
	defer closeStore(t, s)
	v = deadlinesOf(t, s)
	check()
}

// TestUnreadableEventAdvancesThePartition checks that an unreadable event advances the partition's state in each view:
// its instant and the reflected inputs.
func TestUnreadableEventAdvancesThePartition(t *testing.T) {
	for name, viewOf := range map[string]func(*projections.Store) stateful{
		projections.ViewTasks:     func(s *projections.Store) stateful { return tasksOf(t, s) },
		projections.ViewDeadlines: func(s *projections.Store) stateful { return deadlinesOf(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, vfs.NewMem(), name)
			defer closeStore(t, s)
			v := viewOf(s)
			rs := newHistory(3).records(20)
			for i := range rs {
				if err := v.Apply(&rs[i]); err != nil {
					t.Fatal(err)
				}
			}
			newer := rs[len(rs)-1]
			newer.Offset++
			newer.Key, newer.Headers = []byte("t-1"), events.CloudHeaders("waybill.task.started.v9", "test", "t-1/4")
			newer.Value = fmt.Appendf(nil, `{"at":"2036-01-01T00:00:00.000Z","cause":"tasks/%d/77","epoch":%d}`, testPartition, v.State().Epoch)
			if err := v.Apply(&newer); err != nil {
				t.Fatal(err)
			}
			if st := v.State(); st.At.Year() != 2036 || st.Reflected[events.Tasks] != 78 || len(v.Stopped()) != 1 || v.Next() != newer.Offset+1 {
				t.Errorf("state %+v, stopped %v, next %d", st, v.Stopped(), v.Next())
			}
		})
	}
}

type stateful interface {
	Apply(r *events.Record) error
	State() events.PartitionState
	Stopped() []projections.Stop
	Next() int64
}

package projections_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

var listTasks = flag.Int("tasks", 100_000, "BenchmarkList: tasks in the store")

const (
	listPartitions = 4
	listOpen       = 200 // open tasks
	listEvery      = 5 * time.Millisecond
)

var listBegin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// manyTasks fills a store with tasks of a system that receives one every 5 ms. Of a hundred 97 are processed; of the
// rest half are undone and half held with a step in error. The newest are open. One in a thousand has one of the shops
// as a label, one in 50,000 is marked.
type manyTasks struct {
	b     *testing.B
	views []*projections.Timelines
	next  []int64 // offsets
	at    time.Time
}

type aTask struct {
	id  string
	n   int
	p   int32
	seq uint64
}

func (m *manyTasks) add(t *aTask, due bool, f events.Fact) {
	t.seq++
	e := &events.Event{Task: t.id, Seq: t.seq, At: events.Millis(m.at), Epoch: 1, Cause: events.Cause{Partition: t.p, Offset: m.next[t.p]}, Fact: f}
	if due {
		e.Due, e.Policy = events.Millis(m.at.Add(10*time.Second)), &events.Policy{Timer: events.TimerAttempt, Attempts: testAttempts, OnError: events.OnErrorUndo}
	}
	r := e.Record(events.DefaultNamespace, "s", t.p, e.Value())
	r.Offset = m.next[t.p]
	m.next[t.p]++
	v := m.views[t.p]
	if err := v.Apply(&r); err != nil {
		m.b.Fatal(err)
	}
	if v.ChangedBytes() > 8<<20 {
		v.Save()
	}
}

// fill makes n tasks; the last ones don't end.
func (m *manyTasks) fill(n int) {
	for i := range n {
		t := &aTask{id: benchTask(i, n), n: i, p: int32(i % listPartitions)}
		m.at = m.at.Add(listEvery)
		if i < n-listOpen {
			m.end(t)
		} else {
			m.begin(t)
		}
	}
	for _, v := range m.views {
		v.Save()
	}
}

// benchTask returns an id. The order of ids differs from that of the submissions.
func benchTask(i, n int) string { return fmt.Sprintf("order-%08d", i*7919%n) }

func (m *manyTasks) begin(t *aTask) {
	labels := map[string]string{"region": fmt.Sprint(t.n % 5), "shop": fmt.Sprint(t.n % 1000)}
	if t.n%50_000 == 17 {
		labels["marked"] = "yes"
	}
	m.add(t, false, &events.TaskReceived{Workflow: "order", Version: 1 + t.n%2, Digest: "d", Plan: testPlan, Labels: labels,
		Input: []byte(`{"items":["a","b"],"total":100,"card":"4111","address":"Somewhere 1"}`)})
	m.add(t, true, &events.TaskStarted{})
	m.add(t, true, started("reserve", events.Do))
}

func started(step string, k events.Kind) *events.AttemptStarted {
	return &events.AttemptStarted{Kind: k, Step: step, Attempt: 1, Agent: "a", Operation: "o", Key: "k", Input: []byte(`{"order":"o"}`)}
}

// end adds the events up to a task's end.
func (m *manyTasks) end(t *aTask) {
	m.begin(t)
	done := func(step string, k events.Kind) {
		m.add(t, false, &events.AttemptCompleted{Kind: k, Step: step, Attempt: 1, Output: []byte(`{"ok":true}`)})
	}
	done("reserve", events.Do)
	m.add(t, true, started("charge", events.Do))
	if t.n%100 < 3 {
		broken := &events.Error{Code: "card_declined", Message: "no", Step: "charge"}
		m.add(t, false, &events.AttemptRejected{Step: "charge", Kind: events.Do, Attempt: 1, Error: broken})
		if t.n%200 < 3 {
			m.add(t, false, &events.TaskHeld{Error: broken})
			return
		}
		m.add(t, false, &events.TaskUndoing{Ending: events.StateUndone, Error: broken})
		m.add(t, true, started("reserve", events.Undo))
		done("reserve", events.Undo)
		m.add(t, false, &events.TaskUndone{})
		return
	}
	done("charge", events.Do)
	m.add(t, true, started("ship", events.Do))
	done("ship", events.Do)
	m.add(t, false, &events.TaskProcessed{Output: []byte(`{"tracking":"t"}`)})
}

// fullStore returns a store with -tasks tasks, from listBegin on.
func fullStore(b *testing.B) (*projections.Store, *manyTasks) {
	b.Helper()
	s, err := projections.Open(b.TempDir(), identity(projections.ViewTimelines), projections.Options{})
	if err != nil {
		b.Fatal(err)
	}
	m := &manyTasks{b: b, next: make([]int64, listPartitions), at: listBegin}
	for p := range int32(listPartitions) {
		v, err := s.Timelines(p)
		if err != nil {
			b.Fatal(err)
		}
		m.views = append(m.views, v)
	}
	m.fill(*listTasks)
	if err := s.Compact(); err != nil {
		b.Fatal(err)
	}
	return s, m
}

// BenchmarkList reads pages of a store with many tasks, each from another place of the list:
//
//	go test ./projections -run '^$' -bench 'BenchmarkList$' -tasks 1000000 -benchtime 1000x
func BenchmarkList(b *testing.B) {
	s, m := fullStore(b)
	begin, all := listBegin, []int32{0, 1, 2, 3}
	rnd := rand.New(rand.NewPCG(1, 1))
	anywhere := func() time.Time { return begin.Add(time.Duration(rnd.Int64N(int64(m.at.Sub(begin))))) }
	lists := []struct {
		name string
		make func(f *projections.Filter)
	}{
		{"all", func(f *projections.Filter) {}},
		{"state=processed", func(f *projections.Filter) { f.States = []events.TaskState{events.StateProcessed} }},
		{"state=error", func(f *projections.Filter) { f.States = []events.TaskState{events.StateError} }},
		{"state=undone,error", func(f *projections.Filter) {
			f.States = []events.TaskState{events.StateUndone, events.StateError}
		}},
		{"workflow+label", func(f *projections.Filter) { f.Workflow, f.Labels = "order", map[string]string{"region": "3"} }},
		{"version+label+state", func(f *projections.Filter) {
			f.Workflow, f.Version, f.Labels, f.States = "order", 2, map[string]string{"region": "1"}, []events.TaskState{events.StateUndone}
		}},
		{"step-in-error", func(f *projections.Filter) { f.StepInError = "charge" }},
		{"agent", func(f *projections.Filter) { f.Agent = "a" }},
		{"rare-label", func(f *projections.Filter) { f.Labels = map[string]string{"shop": "517"} }},
		{"rarest-label", func(f *projections.Filter) { f.Labels = map[string]string{"marked": "yes"} }},
		{"labels-that-never-meet", func(f *projections.Filter) { f.Labels = map[string]string{"shop": "517", "region": "3"} }},
		{"common-labels-that-never-meet", func(f *projections.Filter) {
			f.Workflow, f.Version, f.StepInError = "order", 2, "charge"
			f.Labels = map[string]string{"region": "0"}
		}},
		{"due-before", func(f *projections.Filter) { f.DueBefore = anywhere() }},
		{"since-until", func(f *projections.Filter) { f.Since = anywhere(); f.Until = f.Since.Add(time.Minute) }},
	}
	for _, l := range lists {
		b.Run(l.name, func(b *testing.B) {
			tasks, pages := 0, 0
			times(b, func() {
				var f projections.Filter
				l.make(&f)
				var after projections.Cursor
				if rnd.IntN(2) == 0 {
					after = projections.Cursor{Submitted: anywhere().UnixMilli()}
				}
				page, err := s.List(context.Background(), all, f, after, 50)
				if err != nil {
					b.Fatal(err)
				}
				pages++
				tasks += len(page.Tasks)
			})
			b.ReportMetric(float64(tasks)/float64(pages), "tasks/page")
		})
	}
	oneOf := func() (int32, string) {
		n := rnd.IntN(*listTasks)
		return int32(n % listPartitions), benchTask(n, *listTasks)
	}
	b.Run("Summary", func(b *testing.B) {
		times(b, func() {
			if sum, _, err := s.Summary(oneOf()); err != nil || sum == nil {
				b.Fatal(sum, err)
			}
		})
	})
	b.Run("Places", func(b *testing.B) {
		times(b, func() {
			if places, _, err := s.Places(oneOf()); err != nil || len(places) < 3 {
				b.Fatal(places, err)
			}
		})
	})
	b.Run("Counts", func(b *testing.B) {
		times(b, func() {
			if _, _, err := s.Counts(1); err != nil {
				b.Fatal(err)
			}
		})
	})
	sizes, err := s.DiskUsage()
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"places", "rows", "index", "groups", "stats", "steps"} {
		b.Logf("%d tasks: %s %.1f bytes a task on disk", *listTasks, kind, float64(sizes[kind])/float64(*listTasks))
	}
	for _, v := range m.views {
		v.Close()
	}
	closeStore(b, s)
}

// times reports the median, the 99th percentile and the maximum of the duration of fn.
func times(b *testing.B, fn func()) {
	var took []time.Duration
	for range b.N {
		start := time.Now()
		fn()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	b.ReportMetric(float64(took[len(took)-1])/1e6, "max-ms")
}

package projections_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

// orders makes the records of n successful tasks, width of them concurrently. Each has 8 events, as a scheduler writes
// for three steps.
func orders(n, width int) []events.Record {
	h := newHistory(1)
	rs := make([]events.Record, 0, 9*n)
	claim := &events.Event{Seq: 1, Epoch: 1, Fact: &events.PartitionClaimed{Owner: "s"}}
	rs = append(rs, h.record(claim))
	add := func(id string, due bool, f events.Fact) {
		e := &events.Event{Task: id, Seq: 1, Epoch: 1, Fact: f}
		if t := h.tasks[id]; t != nil {
			e.Seq, e.Prev = t.Seq+1, t.Prev
		}
		if due {
			e.Due, e.Policy = h.at.Add(10e9), &events.Policy{Timer: events.TimerAttempt, Attempts: testAttempts, OnError: events.OnErrorUndo}
		}
		rs = append(rs, h.record(e))
	}
	for from := 0; from < n; from += width {
		for stage := range 9 {
			for i := from; i < min(from+width, n); i++ {
				id := fmt.Sprintf("order-%08d", i)
				step := testPlan.Steps[max(0, min((stage-2)/2, 2))].ID
				switch {
				case stage == 0:
					add(id, false, &events.TaskReceived{Workflow: "order", Version: 1, Digest: "d", Plan: testPlan, Input: []byte(`{"items":["a","b"],"total":100,"card":"4111","address":"Somewhere 1"}`)})
				case stage == 1:
					add(id, true, &events.TaskStarted{})
				case stage == 8:
					add(id, false, &events.TaskProcessed{Output: []byte(`{"tracking":"t"}`)})
				case stage%2 == 0:
					add(id, true, &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: 1, Agent: "a", Operation: "o", Key: "k", Input: []byte(`{"order":"o","items":["a","b"]}`)})
				default:
					add(id, false, &events.AttemptCompleted{Kind: events.Do, Step: step, Attempt: 1, Output: []byte(`{"ok":true,"id":"r-1"}`)})
				}
			}
		}
	}
	return rs
}

// saveBytes is the ChangedBytes at which the benchmarks save.
const saveBytes = scheduler.SaveBytes

// cpuTime reports the CPU time of all threads of the process in the measured part, including Pebble's and the garbage
// collector's.
func cpuTime(b *testing.B) (stop func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	runtime.GC()
	start := used()
	b.ResetTimer()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op")
	}
}

func benchStore(b *testing.B, view string) *projections.Store {
	b.Helper()
	s, err := projections.Open(b.TempDir(), identity(view), projections.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkTasksApply measures a restore: decode, check the chain, evolve, save.
func BenchmarkTasksApply(b *testing.B) {
	for _, c := range []struct{ width, saveBytes int }{{100, saveBytes}, {10000, saveBytes}, {10000, scheduler.RestoreSaveBytes}} {
		width, saveBytes := c.width, c.saveBytes
		b.Run(fmt.Sprintf("open=%d/save=%dMB", width, saveBytes>>20), func(b *testing.B) {
			rs := orders(b.N/9+1, width)
			s := benchStore(b, projections.ViewTasks)
			v := tasksOf(b, s)
			stop := cpuTime(b)
			for i := range b.N {
				if err := v.Apply(&rs[i]); err != nil {
					b.Fatal(err)
				}
				if v.ChangedBytes() > saveBytes {
					v.Save()
				}
			}
			v.Save()
			stop()
			closeStore(b, s)
		})
	}
}

// BenchmarkDecodeAndEvolve measures the part of a restore outside this package.
func BenchmarkDecodeAndEvolve(b *testing.B) {
	rs := orders(b.N/9+1, 100)
	tasks := map[string]*events.Task{}
	stop := cpuTime(b)
	for i := range b.N {
		e, err := events.DecodeEvent(&rs[i])
		if err != nil {
			b.Fatal(err)
		}
		if e.Task == "" {
			continue
		}
		if tasks[e.Task], err = events.Evolve(tasks[e.Task], e, events.Hash(e.Fact.Type(), rs[i].Value)); err != nil {
			b.Fatal(err)
		}
	}
	stop()
}

// BenchmarkTasksAcceptSave measures the live path: decided states, 200 events per commit, saved by size.

func BenchmarkTasksAcceptSave(b *testing.B) {
	rs := orders(b.N/9+1, 500)
	states := make([]*events.Task, b.N)
	tasks := map[string]*events.Task{}
	var st events.PartitionState
	for i := range b.N {
		e, err := events.DecodeEvent(&rs[i])
		if err != nil {
			b.Fatal(err)
		}
		if e.Task == "" {
			continue
		}
		if states[i], err = events.Evolve(tasks[e.Task].Clone(), e, events.Hash(e.Fact.Type(), rs[i].Value)); err != nil {
			b.Fatal(err)
		}
		tasks[e.Task] = states[i]
	}
	s := benchStore(b, projections.ViewTasks)
	v := tasksOf(b, s)
	saves := 0
	stop := cpuTime(b)
	for i := 1; i < b.N; i += 200 {
		v.Accept(states[i:min(i+200, b.N)], st, rs[i].Offset+1)
		if v.ChangedBytes() > saveBytes {
			saves++
			v.Save()
		}
	}
	stop()
	b.ReportMetric(float64(saves), "saves")
	closeStore(b, s)
}

func BenchmarkDeadlinesApply(b *testing.B) {
	rs := orders(b.N/9+1, 1000)
	s := benchStore(b, projections.ViewDeadlines)
	v := deadlinesOf(b, s)
	stop := cpuTime(b)
	for i := range b.N {
		if err := v.Apply(&rs[i]); err != nil {
			b.Fatal(err)
		}
		if i%10000 == 0 {
			v.Save()
		}
	}
	stop()
	closeStore(b, s)
}

// BenchmarkDue measures Due with 100,000 timers: none of them due, as usual, and a page of a burst.
func BenchmarkDue(b *testing.B) {
	const armed, page = 100_000, 1000
	s := benchStore(b, projections.ViewDeadlines)
	v := deadlinesOf(b, s)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range armed {
		e := &events.Event{Task: fmt.Sprintf("order-%06d", i), Seq: 3, At: at, Due: at.Add(time.Hour),
			Policy: &events.Policy{Timer: events.TimerAttempt, Attempts: testAttempts, OnError: events.OnErrorUndo},
			Fact:   &events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1}}
		r := e.Record("waybill.", "s", testPartition, e.Value())
		r.Offset = int64(i)
		if err := v.Apply(&r); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		now  time.Time
		want int
	}{{"none", at, 0}, {fmt.Sprintf("page=%d", page), at.Add(time.Hour), page}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if due := v.Due(c.now, page); len(due) != c.want {
					b.Fatalf("%d timers are due, want %d", len(due), c.want)
				}
			}
		})
	}
	v.Discard()
	closeStore(b, s)
}

// BenchmarkTimelinesApply measures the index: 200 events per poll, saved by size.
func BenchmarkTimelinesApply(b *testing.B) {
	rs := orders(b.N/9+1, 1000)
	s := benchStore(b, projections.ViewTimelines)
	v, err := s.Timelines(testPartition)
	if err != nil {
		b.Fatal(err)
	}
	stop := cpuTime(b)
	for i := range b.N {
		if i%200 == 0 {
			v.EndLookups()
			v.BeginLookups()
		}
		if err := v.Apply(&rs[i]); err != nil {
			b.Fatal(err)
		}
		if v.ChangedBytes() > saveBytes {
			v.Save()
		}
	}
	stop()
	v.EndLookups()
	closeStore(b, s)
}

// BenchmarkUnknownTask measures the lookup of an unknown id, which every submission needs.
func BenchmarkUnknownTask(b *testing.B) {
	rs := orders(50000, 500)
	s := benchStore(b, projections.ViewTasks)
	v := tasksOf(b, s)
	apply(b, v, rs)
	v.Save()
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	stop := cpuTime(b)
	for i := range b.N {
		if t := v.Task(fmt.Sprintf("order-x%07d", i)); t != nil {
			b.Fatal(t)
		}
	}
	stop()
	closeStore(b, s)
}

// BenchmarkLoad measures opening a partition with 1,000 open and 20,000 finished tasks.
func BenchmarkLoad(b *testing.B) {
	s := benchStore(b, projections.ViewTasks)
	v := tasksOf(b, s)
	rs := orders(21000, 1000)
	apply(b, v, rs[:len(rs)-1000])
	v.Close()
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		v := tasksOf(b, s)
		if v.Open() != 1000 {
			b.Fatal(v.Open())
		}
		v.Discard()
	}
	b.StopTimer()
	closeStore(b, s)
}

// BenchmarkHeldMemory reports the memory of 1,000 open tasks if each came in a batch of 1 MB, as in a fetch after a
// pause.
func BenchmarkHeldMemory(b *testing.B) {
	for range b.N {
		s, err := projections.Open("d", identity(projections.ViewTasks), projections.Options{FS: vfs.NewMem()})
		if err != nil {
			b.Fatal(err)
		}
		v := tasksOf(b, s)
		h := newHistory(1)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		first := h.next()
		apply(b, v, []events.Record{first})
		for range 1000 {
			r := h.submit()
			batch := make([]byte, 1<<20)
			r.Value = batch[:copy(batch, r.Value)]
			apply(b, v, []events.Record{r})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1000, "B/task")
		runtime.KeepAlive(v)
		v.Discard()
		closeStore(b, s)
	}
}

package projections_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// prefix returns the model after the records below an offset.
func prefix(seed uint64, next int64, n int) *history {
	h := newHistory(seed)
	for range n {
		if h.offset >= next {
			break
		}
		before := h.offset
		r := h.next()
		if r.Offset != before {
			panic("offsets aren't replayed")
		}
	}
	return h
}

// TestCrashLeavesAPrefix crashes stores at random points, with any part of the unsynced data on disk. The reopened
// store equals the fold at its offset, isn't below the flushed offset, and continues to the same end.
func TestCrashLeavesAPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, suite.Some(t, func(rt *rapid.T) {
		seed := rapid.Uint64Range(0, 1<<20).Draw(rt, "seed")
		rnd := rand.New(rand.NewPCG(seed, 1))
		h := newHistory(seed)
		rs := h.records(rapid.IntRange(50, 600).Draw(rt, "events"))
		percent := rapid.SampledFrom([]int{0, 10, 50, 90, 100}).Draw(rt, "unsynced percent")
		fs := vfs.NewCrashableMem()
		done := int64(0)
		for life := 0; done <= rs[len(rs)-1].Offset; life++ {
			s := open(t, fs, projections.ViewTasks)
			v := tasksOf(t, s)
			if v.Next() < done {
				rt.Fatalf("life %d begins at %d; %d was flushed", life, v.Next(), done)
			}
			model := prefix(seed, v.Next(), len(rs))
			same(t, v, model.tasks, model.state)
			crashAt := rnd.Int64N(rs[len(rs)-1].Offset*3/2 + 1)
			for i := range rs {
				if rs[i].Offset < v.Next() {
					continue
				}
				if rs[i].Offset >= crashAt && life < 4 {
					break
				}
				apply(t, v, rs[i:i+1])
				if rnd.IntN(10) == 0 {
					v.Save()
				}
				if rnd.IntN(60) == 0 {
					if err := s.Flush(); err != nil {
						rt.Fatal(err)
					}
				}
			}
			if v.Next() > rs[len(rs)-1].Offset {
				same(t, v, h.tasks, h.state)
				closeStore(t, s)
				return
			}
			_, done = v.FlushedState()
			after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rnd})
			closeStore(t, s)
			fs = after
		}
	}))
}

// TestCrashWhileItIsCreated checks that the directory opens again after a crash at any point of its creation.
func TestCrashWhileItIsCreated(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, 20) {
		fs := vfs.NewCrashableMem()
		clones := make(chan *vfs.MemFS, 1000)
		rnd := rand.New(rand.NewPCG(seed, 2))
		hooked := &errorfs.Toggle{Injector: writes(func(errorfs.Op) error {
			clones <- fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rnd})
			return nil
		})}
		hooked.On()
		s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{FS: errorfs.Wrap(fs, hooked)})
		if err != nil {
			t.Fatal(err)
		}
		hooked.Off()
		closeStore(t, s)
		n := 0
		for len(clones) > 0 {
			clone := <-clones
			closeStore(t, open(t, clone, projections.ViewTasks))
			n++
		}
		if n < 5 {
			t.Fatalf("only %d moments of the creation were seen", n)
		}
	}
}

func TestCrashLeavesAPrefixOfDeadlinesAndTimelines(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, 40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		rs := newHistory(seed).records(400)
		for _, name := range []string{projections.ViewDeadlines, projections.ViewTimelines} {
			fs := vfs.NewCrashableMem()
			s := open(t, fs, name)
			v := otherView(t, s, name)
			for i := range rs[:300] {
				apply(t, v, rs[i:i+1])
				if rnd.IntN(10) == 0 {
					v.Save()
				}
				if rnd.IntN(60) == 0 {
					if err := s.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
			after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rnd})
			closeStore(t, s)
			s = open(t, after, name)
			v = otherView(t, s, name)
			other := open(t, vfs.NewMem(), name)
			rebuilt := otherView(t, other, name)
			for i := range rs {
				if rs[i].Offset < v.Next() {
					apply(t, rebuilt, rs[i:i+1])
				}
			}
			if got, want := v.Digest(), rebuilt.Digest(); got != want {
				t.Fatalf("seed %d: %s at %d: %s, the fold there %s", seed, name, v.Next(), got, want)
			}
			apply(t, v, rs)
			apply(t, rebuilt, rs)
			if got, want := v.Digest(), rebuilt.Digest(); got != want {
				t.Fatalf("seed %d: %s at the end: %s, rebuilt %s", seed, name, got, want)
			}
			closeStore(t, s)
			closeStore(t, other)
		}
	}
}

type anyView interface {
	Apply(*events.Record) error
	Next() int64
	Save()
	Digest() string
	Close()
}

func otherView(t testing.TB, s *projections.Store, name string) anyView {
	t.Helper()
	var v anyView
	var err error
	switch name {
	case projections.ViewTasks:
		v, err = s.Tasks(testPartition)
	case projections.ViewDeadlines:
		v, err = s.Deadlines(testPartition)
	default:
		v, err = s.Timelines(testPartition)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTasksKeepNoBatch checks that tasks in memory don't alias the records.
func TestTasksKeepNoBatch(t *testing.T) {
	for _, how := range []string{"applied", "accepted"} {
		h := newHistory(5)
		rs := h.records(600)
		s := open(t, vfs.NewMem(), projections.ViewTasks)
		v := tasksOf(t, s)
		for i := range rs {
			value := bytes.Clone(rs[i].Value)
			r := rs[i]
			r.Value = value
			if how == "applied" {
				apply(t, v, []events.Record{r})
			} else {
				live(t, v, []events.Record{r}, 1)
			}
			if i%50 == 0 || !bytes.Contains(value, []byte(`received`)) {
				v.Save() // until then finished tasks are in memory
			}
			for j := range value {
				value[j] = '#'
			}
		}
		v.EachOpen(func(task *events.Task) {
			if got, want := task.Encode(), h.tasks[task.ID].Encode(); !bytes.Equal(got, want) {
				t.Fatalf("%s: task %s changed with the record:\n got %s\nwant %s", how, task.ID, got, want)
			}
		})
		closeStore(t, s)
	}
}

// TestCrashAtAnyChange crashes at each change that Pebble makes to the disk, and not only between calls.
func TestCrashAtAnyChange(t *testing.T) {
	t.Parallel()
	rs := newHistory(11).records(600)
	step := int64(suite.Of(t, 3*oneIn, oneIn))
	for k := int64(1); k < 250; k += step * (1 + k/30) {
		mem := vfs.NewCrashableMem()
		rnd := rand.New(rand.NewPCG(uint64(k), 4))
		var ops, flushed atomic.Int64
		var atCrash int64
		var after *vfs.MemFS
		var once sync.Mutex
		fs := errorfs.Wrap(mem, writes(func(errorfs.Op) error {
			once.Lock()
			defer once.Unlock()
			if ops.Add(1) == k {
				atCrash = flushed.Load()
				after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(k%5) * 25, RNG: rnd})
			}
			return nil
		}))
		s := open(t, fs, projections.ViewTasks)
		v := tasksOf(t, s)
		for i := range rs {
			apply(t, v, rs[i:i+1])
			if i%10 == 0 {
				v.Save()
			}
			if i%100 == 0 {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
				_, next := v.FlushedState()
				flushed.Store(next)
			}
		}
		closeStore(t, s)
		once.Lock()
		if after == nil {
			if k > 100 {
				return // all changes were tried
			}
			once.Unlock()
			continue
		}
		s = open(t, after, projections.ViewTasks)
		v = tasksOf(t, s)
		if v.Next() < atCrash {
			t.Fatalf("change %d: opens at %d, %d was flushed", k, v.Next(), atCrash)
		}
		model := prefix(11, v.Next(), len(rs))
		same(t, v, model.tasks, model.state)
		closeStore(t, s)
		once.Unlock()
	}
}

package projections_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

func identity(view string) projections.Identity {
	return projections.Identity{ClusterID: "c1", Namespace: events.DefaultNamespace, Partitions: 12, View: view}
}

// hotBytes holds only a few tasks, so that mostly changed tasks are in memory.
const hotBytes = 4000

func open(t testing.TB, fs vfs.FS, view string) *projections.Store {
	t.Helper()
	s, err := projections.Open("data/"+view, identity(view), projections.Options{FS: fs, MemtableBytes: projections.MinMemtableBytes, CacheBytes: 1 << 20, HotBytes: hotBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *projections.Store) {
	t.Helper()
	s.DropViews()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func tasksOf(t testing.TB, s *projections.Store) *projections.Tasks {
	t.Helper()
	v, err := s.Tasks(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

type applier interface{ Apply(*events.Record) error }

// apply applies borrowed records. It overwrites their memory afterwards, so a view that retains any of it fails.
func apply(t testing.TB, v applier, rs []events.Record) {
	t.Helper()
	var room []byte
	var headers []events.Header
	lent := func(b []byte) []byte {
		from := len(room)
		room = append(room, b...)
		return room[from:len(room):len(room)]
	}
	for i := range rs {
		r := rs[i]
		size := len(r.Key) + len(r.Value)
		headers = append(headers[:0], r.Headers...)
		for _, h := range headers {
			size += len(h.Value)
		}
		room = slices.Grow(room[:0], size)
		r.Key, r.Headers = lent(r.Key), headers
		if r.Value != nil { // nil differs from an empty value
			r.Value = lent(r.Value)
		}
		for k := range headers {
			headers[k].Value = lent(headers[k].Value)
		}
		err := v.Apply(&r)
		clear(room)
		clear(headers)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// live feeds a view as a scheduler does. Clones evolve by several events, and are accepted after the commit.
func live(t testing.TB, v *projections.Tasks, rs []events.Record, perCommit int) {
	t.Helper()
	for chunk := range slices.Chunk(rs, perCommit) {
		var changed []*events.Task
		at := map[string]int{}
		state := v.State()
		for i := range chunk {
			e, err := events.DecodeEvent(&chunk[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := state.Evolve(e); err != nil {
				t.Fatal(err)
			}
			if e.Task == "" {
				continue
			}
			n, ok := at[e.Task]
			if !ok {
				was := v.Task(e.Task)
				n = len(changed)
				at[e.Task] = n
				changed = append(changed, was.Clone())
			}
			if changed[n], err = events.Evolve(changed[n], e, events.Hash(e.Fact.Type(), chunk[i].Value)); err != nil {
				t.Fatal(err)
			}
		}
		v.Accept(changed, state, chunk[len(chunk)-1].Offset+1)
	}
}

// same compares a view with the model's tasks.
func same(t testing.TB, v *projections.Tasks, want map[string]*events.Task, state events.PartitionState) {
	t.Helper()
	if got := v.State(); !bytes.Equal(got.Encode(), state.Encode()) {
		t.Errorf("partition state %s, want %s", got.Encode(), state.Encode())
	}
	n, open, last := 0, 0, ""
	err := v.Each(func(task *events.Task) error {
		n++
		if task.Open() {
			open++
		}
		if task.ID <= last {
			t.Errorf("%q after %q", task.ID, last)
		}
		last = task.ID
		if w := want[task.ID]; w == nil || !bytes.Equal(w.Finished().Encode(), task.Encode()) {
			t.Errorf("task %s:\n got %s\nwant %s", task.ID, task.Encode(), w.Finished().Encode())
		}
		if byID := v.Task(task.ID); !bytes.Equal(byID.Encode(), task.Encode()) {
			t.Errorf("task %s by id: %v", task.ID, byID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != len(want) || open != v.Open() {
		t.Errorf("%d tasks of which %d open; want %d, and %d in memory", n, open, len(want), v.Open())
	}
}

func TestTasksAgreeWithTheFold(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, 12) {
		h := newHistory(seed)
		rs := h.records(1100)

		s1 := open(t, vfs.NewMem(), projections.ViewTasks)
		rebuilt := tasksOf(t, s1)
		apply(t, rebuilt, rs)
		same(t, rebuilt, h.tasks, h.state)
		want := rebuilt.Digest()

		fs := vfs.NewMem()
		s2 := open(t, fs, projections.ViewTasks)
		v := tasksOf(t, s2)
		for chunk := range slices.Chunk(rs[:1000], 70) {
			live(t, v, chunk, 1+int(seed))
			v.Save()
		}
		v.Close()
		closeStore(t, s2)

		s2 = open(t, fs, projections.ViewTasks) // restart
		v = tasksOf(t, s2)
		if v.Next() != rs[999].Offset+1 {
			t.Fatalf("restart at %d, want %d", v.Next(), rs[999].Offset+1)
		}
		apply(t, v, rs) // from the start, to check that events below Next are skipped
		same(t, v, h.tasks, h.state)
		if got := v.Digest(); got != want {
			t.Fatalf("seed %d: live and restarted %s, rebuilt %s", seed, got, want)
		}
		if ps, err := s2.Partitions(); err != nil || !slices.Equal(ps, []int32{testPartition}) {
			t.Fatalf("partitions %v %v", ps, err)
		}
		closeStore(t, s1)
		closeStore(t, s2)
	}
}

func TestTaskThatIsUnknownIsNil(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	defer closeStore(t, s)
	if task := tasksOf(t, s).Task("nobody"); task != nil {
		t.Fatalf("got %v", task)
	}
}

func TestFlushedStateSurvivesACrash(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	rs := newHistory(1).records(100)
	flushed := func(want int64) {
		t.Helper()
		if st, next := v.FlushedState(); next != want || (next > 0) != (st.Epoch > 0) {
			t.Fatalf("flushed %d (epoch %d), want %d", next, st.Epoch, want)
		}
	}
	apply(t, v, rs[:50])
	flushed(0)
	v.Save()
	flushed(0)
	apply(t, v, rs[50:])
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	flushed(rs[49].Offset + 1)
	v.Close()
	v = tasksOf(t, s) // loaded again from data that isn't on disk yet
	if v.Next() != rs[99].Offset+1 {
		t.Fatalf("next %d", v.Next())
	}
	flushed(rs[49].Offset + 1)
}

// unreadable returns records that can't be folded. Each is of the task of good, which is the task's next event.
func unreadable(good events.Record) map[string]events.Record {
	with := func(change func(*events.Record)) events.Record {
		r := good
		r.Headers = slices.Clone(good.Headers)
		change(&r)
		return r
	}
	header := func(key, value string) func(*events.Record) {
		return func(r *events.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == key {
					r.Headers[i].Value = []byte(value)
				}
			}
		}
	}
	id := string(good.Key)
	return map[string]events.Record{
		"unknown type":    with(header(events.HeaderType, "waybill.step.teleported.v1")),
		"unknown version": with(header(events.HeaderType, "waybill.step.started.v9")),
		"null value":      with(func(r *events.Record) { r.Value = nil }),
		"malformed":       with(func(r *events.Record) { r.Value = []byte(`{"at":`) }),
		"seq gap":         with(header(events.HeaderID, events.TaskEventID(id, 999))),
		"chain break":     with(func(r *events.Record) { r.Value = bytes.Replace(r.Value, []byte(`"prev":"`), []byte(`"prev":"!`), 1) }),
		"no headers":      with(func(r *events.Record) { r.Headers = nil }),
	}
}

func TestUnreadableStopsItsTaskAndNoOther(t *testing.T) {
	for name := range unreadable(events.Record{}) {
		t.Run(name, func(t *testing.T) {
			h := newHistory(7)
			rs := h.records(900)
			// The unreadable event is the middle one of a long-lived task.
			byTask := map[string][]int{}
			for i := range rs {
				byTask[string(rs[i].Key)] = append(byTask[string(rs[i].Key)], i)
			}
			delete(byTask, "")
			victim := ""
			for id, is := range byTask {
				if victim == "" || len(is) > len(byTask[victim]) || len(is) == len(byTask[victim]) && id < victim {
					victim = id
				}
			}
			at := byTask[victim][len(byTask[victim])/2]
			after := len(byTask[victim]) - len(byTask[victim])/2 - 1
			rs[at] = unreadable(rs[at])[name]

			fs := vfs.NewMem()
			s := open(t, fs, projections.ViewTasks)
			v := tasksOf(t, s)
			apply(t, v, rs[:at+1])
			v.Close()
			closeStore(t, s)
			s = open(t, fs, projections.ViewTasks)
			defer closeStore(t, s)
			v = tasksOf(t, s)
			apply(t, v, rs[at+1:])

			stops := v.Stopped()
			if len(stops) != 1 || stops[0].Task != victim || stops[0].Offset != rs[at].Offset || stops[0].Reason == "" || stops[0].Skipped != int64(after) {
				t.Fatalf("stopped %+v; want %s at %d with %d after", stops, victim, rs[at].Offset, after)
			}
			if _, ok := v.StopOf(victim); !ok {
				t.Error("StopOf doesn't know it")
			}
			stopped := v.Task(victim)
			if stopped.Seq != uint64(len(byTask[victim])/2) {
				t.Fatalf("the stopped task: %+v", stopped)
			}
			h.tasks[victim] = stopped
			state := v.State()
			same(t, v, h.tasks, state)

			other := open(t, vfs.NewMem(), projections.ViewTasks)
			defer closeStore(t, other)
			rebuilt := tasksOf(t, other)
			apply(t, rebuilt, rs)
			if got, want := rebuilt.Digest(), v.Digest(); got != want {
				t.Fatalf("rebuilt %s, live %s", got, want)
			}
		})
	}
}

func TestEpochThatFallsStopsThePartition(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	h := newHistory(3)
	apply(t, v, h.records(300))
	next := v.Next()
	h.state.Epoch = 0
	stale := h.submit()
	err := v.Apply(&stale)
	if err == nil || !strings.Contains(err.Error(), "epoch falls") || v.Next() != next {
		t.Fatalf("got %v, next %d", err, v.Next())
	}
	other := stale
	other.Partition++
	if err := v.Apply(&other); err == nil || !strings.Contains(err.Error(), "partition") {
		t.Fatalf("a record of another partition: %v", err)
	}
}

func TestSecondViewOfAPartitionIsRefused(t *testing.T) {
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	if _, err := s.Tasks(testPartition); err == nil {
		t.Fatal("a second view of the partition opened")
	}
	rs := newHistory(1).records(10)
	apply(t, v, rs)
	v.Discard()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a discarded view applies")
			}
		}()
		_ = v.Apply(&rs[0])
	}()
	if v = tasksOf(t, s); v.Next() != 0 {
		t.Fatalf("discarded, but next is %d", v.Next())
	}
	if _, err := s.Tasks(12); err == nil {
		t.Fatal("partition 12 of 12 opened")
	}
	if _, err := s.Deadlines(testPartition + 1); err == nil {
		t.Fatal("deadlines from a store of tasks")
	}
}

func TestSaveLargerThanAMemtable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs, projections.ViewTasks)
	v := tasksOf(t, s)
	h := newHistory(1)
	h.input = 20_000
	apply(t, v, h.records(1600))
	if v.ChangedBytes() < 4*projections.MinMemtableBytes {
		t.Fatalf("only %d bytes changed", v.ChangedBytes())
	}
	v.Save()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	after := open(t, fs.CrashClone(vfs.CrashCloneCfg{}), projections.ViewTasks)
	same(t, tasksOf(t, after), h.tasks, h.state)
	closeStore(t, after)
	closeStore(t, s)
}

func ExampleTasks() {
	s, err := projections.Open("data", projections.Identity{ClusterID: "c", Namespace: "waybill.", Partitions: 12, View: projections.ViewTasks},
		projections.Options{FS: vfs.NewMem()})
	if err != nil {
		panic(err)
	}
	v, err := s.Tasks(testPartition)
	if err != nil {
		panic(err)
	}
	h := newHistory(1)
	for range 10 {
		r := h.next()
		if err := v.Apply(&r); err != nil {
			panic(err)
		}
	}
	fmt.Println(v.Open(), "open,", v.Changed(), "changed")
	v.Save()
	fmt.Println(v.Changed(), "changed")
	v.Close()
	if err := s.Close(); err != nil {
		panic(err)
	}
	// Output:
	// 1 open, 2 changed
	// 0 changed
}

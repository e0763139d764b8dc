package projections_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// topic is a partition of the snapshots topic.
type topic []events.Record

// compact randomly removes records that a later record with their key replaces, and tombstones.
func (c *topic) compact(rnd *rand.Rand) {
	last := map[string]int{}
	for i := range *c {
		last[string((*c)[i].Key)] = i
	}
	kept := topic{}
	for i, r := range *c {
		old := last[string(r.Key)] > i
		if rnd.IntN(2) == 0 || !old && r.Value != nil {
			kept = append(kept, r)
		}
	}
	*c = kept
}

func (c topic) reader() *events.SnapshotReader {
	r := &events.SnapshotReader{}
	for i := range c {
		r.Add(&c[i])
	}
	return r
}

func (c topic) base(t testing.TB) *events.Snapshot {
	t.Helper()
	m, err := c.reader().Snapshot()
	if err != nil && !errors.Is(err, events.ErrNoSnapshot) {
		t.Fatal(err)
	}
	return m
}

// tiny makes snapshots frequent, and cuts them into many chunks.
func tiny(chunkBytes int) projections.Options {
	return projections.Options{MemtableBytes: projections.MinMemtableBytes, CacheBytes: 1 << 20, HotBytes: hotBytes,
		Snapshots: projections.SnapshotOptions{Share: 1, EventBytes: 1, ChunkBytes: chunkBytes}}
}

func openTiny(t testing.TB, fs vfs.FS, chunkBytes int) *projections.Store {
	t.Helper()
	o := tiny(chunkBytes)
	o.FS = fs
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fromDisk continues from the state of the store.
func fromDisk(t testing.TB, v *projections.Tasks, c topic, rs []events.Record) {
	t.Helper()
	from := v.SnapshotBase(c.base(t), true)
	tail(t, v, from, rs)
}

func tail(t testing.TB, v *projections.Tasks, from int64, rs []events.Record) {
	t.Helper()
	next := int64(0)
	for i := range rs {
		if rs[i].Offset >= from {
			apply(t, v, rs[i:i+1])
		}
		next = rs[i].Offset + 1
	}
	if why, _ := v.SnapshotReached(next); why != "" {
		t.Fatalf("the snapshot isn't of this log: %s", why)
	}
}

// fromSnapshot begins with a snapshot instead of the state of the store.
func fromSnapshot(t testing.TB, v *projections.Tasks, c topic, rs []events.Record) {
	t.Helper()
	load, err := v.LoadSnapshot(c.reader())
	if err != nil {
		t.Fatal(err)
	}
	tail(t, v, v.Next(), rs)
	if err := load(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.FinishLoad()
}

// rebuilt returns the digest of a rebuild from the log.
func rebuilt(t testing.TB, rs []events.Record) string {
	t.Helper()
	s := open(t, vfs.NewMem(), projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	apply(t, v, rs)
	return v.Digest()
}

// owner writes events and snapshots, as a worker does.
func (c *topic) owner(t testing.TB, rnd *rand.Rand, v *projections.Tasks, rs []events.Record) {
	t.Helper()
	for len(rs) > 0 {
		n := min(len(rs), 1+rnd.IntN(5))
		if slices.ContainsFunc(rs[:n], func(r events.Record) bool { return isForgot(&r) }) {
			c.forget(t, v, rs[:n])
			rs = rs[n:]
			continue
		}
		size := 0
		for i := range rs[:n] {
			size += len(rs[i].Value)
		}
		written, err := v.Snapshot("test", size)
		if err != nil {
			t.Fatal(err)
		}
		if rnd.IntN(4) == 0 {
			continue // rolled back
		}
		*c = append(*c, written...)
		v.SnapshotWritten()
		live(t, v, rs[:n], n)
		rs = rs[n:]
		if rnd.IntN(10) == 0 {
			v.Save()
		}
	}
}

// forget writes events that forget ids. No snapshot may be under way then, and none begins.
func (c *topic) forget(t testing.TB, v *projections.Tasks, rs []events.Record) {
	t.Helper()
	for n := 0; !v.MayForget(); n++ {
		written, err := v.Snapshot("test", 1<<20)
		if err != nil || n == 1000 {
			t.Fatal("a snapshot doesn't end:", err)
		}
		*c = append(*c, written...)
		v.SnapshotWritten()
	}
	live(t, v, rs, len(rs))
}

// TestSnapshotAndTailEqualARebuild checks P8 for snapshots: a snapshot and the events after it equal a rebuild of the
// log. Owners commit and roll back, lose their disks or take over with old ones, and the topic is compacted.
func TestSnapshotAndTailEqualARebuild(t *testing.T) {
	t.Parallel()
	snapshots, chunks := 0, 0
	for seed := range seeds(t, 15) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		rs := newForgettingHistory(seed).records(1500)
		var c topic
		fs := vfs.NewMem() // the disk of an owner that takes over repeatedly
		done, chunkBytes := 0, 200+rnd.IntN(20_000)
		for done < len(rs) {
			upto := min(len(rs), done+rnd.IntN(250))
			disk := fs
			if rnd.IntN(2) == 0 {
				disk = vfs.NewMem() // a fresh disk
			}
			s := openTiny(t, disk, chunkBytes)
			v := tasksOf(t, s)
			if m := c.base(t); m != nil && rnd.IntN(2) == 0 {
				fromSnapshot(t, v, c, rs[:done])
			} else {
				fromDisk(t, v, c, rs[:done])
			}
			c.owner(t, rnd, v, rs[done:upto])
			if rnd.IntN(3) == 0 {
				v.Discard()
			} else {
				v.Close()
			}
			closeStore(t, s)
			c.compact(rnd)
			done = upto

			m := c.base(t)
			if m == nil {
				continue
			}
			snapshots++
			chunks += int(m.Open.To - m.Open.From + m.Finished.To - m.Finished.From)
			s = openTiny(t, vfs.NewMem(), chunkBytes)
			v = tasksOf(t, s)
			fromSnapshot(t, v, c, rs[:done])
			if rows, listed := v.Stored(); v.Kept() != rows || listed > int(rows) {
				t.Fatalf("seed %d at %d: %d ended tasks are stored, %d counted, %d listed", seed, done, rows, v.Kept(), listed)
			}
			if got, want := v.Digest(), rebuilt(t, rs[:done]); got != want {
				t.Fatalf("seed %d at %d: the digest of snapshot %d and tail is %s, that of a rebuild %s", seed, done, m.Next, got, want)
			}
			v.Close()
			closeStore(t, s)
			if got, want := deadlinesFromSnapshot(t, rnd, c, rs[:done]), rebuiltDeadlines(t, rs[:done]); got != want {
				t.Fatalf("seed %d at %d: the digest of the timers of snapshot %d and tail is %s, that of a rebuild %s", seed, done, m.Next, got, want)
			}
		}
	}
	t.Logf("%d snapshots of %d chunks", snapshots, chunks)
	if snapshots < 7*int(seeds(t, 15)) || chunks < 5*snapshots {
		t.Errorf("%d snapshots of %d chunks prove little", snapshots, chunks)
	}
}

// TestCorruptSnapshotIsRefused checks that a snapshot which lacks a record, or has a changed one, is refused and
// changes nothing.
func TestCorruptSnapshotIsRefused(t *testing.T) {
	rs := newHistory(3).records(800)
	s := openTiny(t, vfs.NewMem(), 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	v.SnapshotBase(nil, true)
	var c topic
	c.owner(t, rand.New(rand.NewPCG(1, 1)), v, rs)
	want := v.Digest()
	m := c.base(t)
	for i := range c {
		key := string(c[i].Key)
		kind, n, chunk := events.ParseChunkKey(key)
		counts := chunk && (kind == events.ChunkOpen && n >= m.Open.From && n < m.Open.To || kind == events.ChunkFinished && n < m.Finished.To)
		if later := slices.ContainsFunc(c[i+1:], func(r events.Record) bool { return string(r.Key) == key }); !counts || later {
			continue
		}
		for what, value := range map[string][]byte{"gone": nil, "another": bytes.Replace(c[i].Value, []byte(`"seq":`), []byte(`"seq":1`), 1)} {
			bad := append(topic{}, c...)
			bad[i].Value = value
			if _, err := v.LoadSnapshot(bad.reader()); !errors.Is(err, events.ErrSnapshot) {
				t.Errorf("%s is %s: %v", key, what, err)
			}
		}
	}
	if got := v.Digest(); got != want {
		t.Error("a snapshot that was refused has changed the view")
	}
	newer := *m
	newer.Format = events.SnapshotFormat + 1
	r := newer.Record(events.DefaultNamespace, "test", testPartition)
	c = append(c, r)
	if m, err := c.reader().Snapshot(); m != nil || !errors.Is(err, events.ErrSnapshotFormat) {
		t.Errorf("a snapshot of a later format is read as %v, %v", m, err)
	}
}

// ownersTopic returns the snapshots topic that an owner of the partition writes, from the first event on.
func ownersTopic(t testing.TB, rs []events.Record) (c topic) {
	t.Helper()
	s := openTiny(t, vfs.NewMem(), 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	v.SnapshotBase(nil, true)
	c.owner(t, rand.New(rand.NewPCG(1, 1)), v, rs)
	return c
}

// TestLoadingCutShort checks that a crash while finished tasks are loaded empties the partition, so that no used id is
// taken for unused.
func TestLoadingCutShort(t *testing.T) {
	rs := newHistory(4).records(900)
	c := ownersTopic(t, rs)

	fs := vfs.NewCrashableMem()
	s := openTiny(t, fs, 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	load, err := v.LoadSnapshot(c.reader())
	if err != nil {
		t.Fatal(err)
	}
	tail(t, v, v.Next(), rs)
	v.Save()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	unknown := 0
	for i := range rs {
		if id := string(rs[i].Key); id != "" && !v.Knows(id) {
			unknown++
		}
	}
	if unknown == 0 {
		t.Error("before its finished tasks are loaded the view says that it knows all of them")
	}
	if err := load(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Save()
	if err := s.Flush(); err != nil { // all tasks are on disk, but not marked as complete
		t.Fatal(err)
	}
	crashed := openTiny(t, fs.CrashClone(vfs.CrashCloneCfg{}), 2000)
	defer closeStore(t, crashed)
	left := tasksOf(t, crashed)
	if left.Next() != 0 || left.Open() != 0 {
		t.Fatalf("what was cut short is taken for the state at %d, with %d open tasks", left.Next(), left.Open())
	}
	apply(t, left, rs)
	if got, want := left.Digest(), rebuilt(t, rs); got != want {
		t.Errorf("after a rebuild the digest is %s, want %s", got, want)
	}
}

// TestSnapshotsOfAnotherLog checks that a snapshot which doesn't fit the log is reported, and that the next one is a
// full one.
func TestSnapshotsOfAnotherLog(t *testing.T) {
	for name, change := range map[string]func(*events.Snapshot){
		"past the end":     func(m *events.Snapshot) { m.Next, m.Until = 1<<40, 1<<40 },
		"of other tasks":   func(m *events.Snapshot) { m.IDs++ },
		"of one task less": func(m *events.Snapshot) { m.Tasks-- },
	} {
		t.Run(name, func(t *testing.T) {
			rs := newHistory(5).records(1000)
			s := openTiny(t, vfs.NewMem(), 2000)
			defer closeStore(t, s)
			v := tasksOf(t, s)
			v.SnapshotBase(nil, true)
			var c topic
			rnd := rand.New(rand.NewPCG(1, 1))
			c.owner(t, rnd, v, rs[:500])
			m := *c.base(t)
			change(&m)
			c = append(c, m.Record(events.DefaultNamespace, "test", testPartition))

			s2 := openTiny(t, vfs.NewMem(), 2000)
			defer closeStore(t, s2)
			v2 := tasksOf(t, s2)
			apply(t, v2, rs[v2.SnapshotBase(&m, true):500])
			if why, foreign := v2.SnapshotReached(rs[499].Offset + 1); why == "" || foreign != (name == "past the end") {
				t.Fatal("nothing was said")
			}
			c.owner(t, rnd, v2, rs[500:])
			if fmt.Sprint(c.base(t)) == fmt.Sprint(&m) {
				t.Fatal("no snapshot was written after it")
			}
			s3 := openTiny(t, vfs.NewMem(), 2000)
			defer closeStore(t, s3)
			v3 := tasksOf(t, s3)
			fromSnapshot(t, v3, c, rs)
			if got, want := v3.Digest(), rebuilt(t, rs); got != want {
				t.Errorf("the digest of snapshot and tail is %s, that of a rebuild %s", got, want)
			}
		})
	}
}

// TestReopenedWhileLoading applies events while the finished tasks of a snapshot are loaded: before, after, and
// concurrently. Some undo tasks that are in the snapshot as processed. The store then has what a rebuild has, and counts it.
func TestReopenedWhileLoading(t *testing.T) {
	for seed := range seeds(t, 6) {
		h := newForgettingHistory(seed)
		rs := h.records(700)
		c := ownersTopic(t, rs)
		h.forget = false // nothing is forgotten while a snapshot is loaded
		more := h.records(200)
		want := rebuilt(t, slices.Concat(rs, more))
		for order, when := range []string{"before", "after", "concurrently"} {
			s := openTiny(t, vfs.NewMem(), 300)
			v := tasksOf(t, s)
			load, err := v.LoadSnapshot(c.reader())
			if err != nil {
				t.Fatal(err)
			}
			tail(t, v, v.Next(), rs)
			loaded := make(chan error, 1)
			if order == 1 {
				loaded <- load(t.Context())
			} else if order == 2 {
				go func() { loaded <- load(t.Context()) }()
			}
			for i := range more {
				apply(t, v, more[i:i+1])
				if i%20 == 0 {
					v.Save()
				}
			}
			if order == 0 {
				loaded <- load(t.Context())
			}
			if err := <-loaded; err != nil {
				t.Fatal(err)
			}
			v.FinishLoad()
			if rows, listed := v.Stored(); v.Kept() != rows || listed > int(rows) {
				t.Errorf("seed %d, events %s the load: %d ended tasks are stored, %d counted, %d listed", seed, when, rows, v.Kept(), listed)
			}
			if got := v.Digest(); got != want {
				t.Errorf("seed %d, events %s the load: digest %s, of a rebuild %s", seed, when, got, want)
			}
			v.Close()
			closeStore(t, s)
		}
	}
}

package projections_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// heavy returns a task without steps that ends with a large output. A snapshot keeps the output, since the task has a
// reply_to.
func (h *history) heavy(id string, output int) (rs []events.Record) {
	h.at = h.at.Add(time.Millisecond)
	for i, f := range []events.Fact{
		&events.TaskReceived{Workflow: "order", Version: 1, Digest: "d", Plan: events.NewPlan(events.OnErrorUndo, time.Hour, nil), ReplyTo: "told"},
		&events.TaskStarted{},
		&events.TaskProcessed{Output: []byte(`"` + strings.Repeat("x", output) + `"`)},
	} {
		e := &events.Event{Task: id, Seq: uint64(i + 1), Epoch: h.state.Epoch, Fact: f}
		if t := h.tasks[id]; t != nil {
			e.Prev = t.Prev
		}
		rs = append(rs, h.record(e))
	}
	return rs
}

// bounded is a partition whose store has finished tasks, without a snapshot on the topic.
type bounded struct {
	h   *history
	log []events.Record
	topic
	view        *projections.Tasks
	chunk, made int
	paid        int        // bytes of other events in each transaction
	rnd         *rand.Rand // source of random ids; nil: ids increase
	most        int        // maximum of EndedBytes
}

func newBounded(t *testing.T, share, chunk, finished int) *bounded {
	t.Helper()
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{
		FS: vfs.NewMem(), MemtableBytes: projections.MinMemtableBytes, CacheBytes: 1 << 20, HotBytes: hotBytes,
		Snapshots: projections.SnapshotOptions{Share: share, EventBytes: 1, ChunkBytes: chunk},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	b := &bounded{h: newHistory(1), chunk: chunk, view: tasksOf(t, s)}
	t.Cleanup(b.view.Close)
	b.log = b.h.records(1)
	for range 20 {
		b.log = append(b.log, b.h.submit())
	}
	for range finished {
		b.log = append(b.log, b.h.heavy(b.id(), 500)...)
	}
	apply(t, b.view, b.log)
	b.view.SnapshotBase(nil, true)
	return b
}

func (b *bounded) id() string {
	b.made++
	if b.rnd != nil {
		return fmt.Sprintf("order-%09d-%d", b.rnd.IntN(1e9), b.made)
	}
	return fmt.Sprintf("order-%09d", b.made)
}

// transaction ends tasks with outputs of a size. The records of the snapshot are committed with it. If refused, they
// are dropped and the transaction is repeated without them.
func (b *bounded) transaction(t *testing.T, refused bool, tasks, output int) {
	t.Helper()
	rs := b.h.records(1)
	for range tasks {
		rs = append(rs, b.h.heavy(b.id(), output)...)
	}
	size := b.paid
	for i := range rs {
		size += len(rs[i].Value)
	}
	written, err := b.view.Snapshot("test", size)
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	for i := range written {
		bytes += len(written[i].Value)
	}
	if limit := size + 2*(b.chunk+output) + 4000; bytes > limit {
		t.Fatalf("%d bytes of a snapshot beside %d of events, at most %d", bytes, size, limit)
	}
	if !refused {
		b.view.SnapshotWritten()
		b.topic = append(b.topic, written...)
	}
	live(t, b.view, rs, len(rs))
	b.log = append(b.log, rs...)
	b.most = max(b.most, b.view.EndedBytes())
	if b.made%100 == 0 {
		b.view.Save()
	}
}

// untilWhole makes transactions until there is a valid snapshot of the current offset or later.
func (b *bounded) untilWhole(t *testing.T, transactions, tasks, output int) {
	t.Helper()
	from := b.view.Next()
	for n := 0; ; n++ {
		if m := b.base(t); m != nil && m.Next >= from {
			t.Logf("a snapshot after %d transactions", n)
			return
		}
		if n > transactions {
			t.Fatalf("no snapshot after %d transactions, %d bytes of finished tasks are kept", n, b.view.EndedBytes())
		}
		b.transaction(t, false, tasks, output)
	}
}

// isTheRebuild compares the snapshot on the topic and the events after it with a rebuild.
func (b *bounded) isTheRebuild(t *testing.T) {
	t.Helper()
	s := openTiny(t, vfs.NewMem(), paceChunk)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	defer v.Close()
	fromSnapshot(t, v, b.topic, b.log)
	if got, want := v.Digest(), rebuilt(t, b.log); got != want {
		t.Errorf("the digest of snapshot and tail is %s, that of a rebuild %s", got, want)
	}
}

// TestRefusedSnapshotsTakeNoMemory checks that the finished tasks in memory are bounded while transactions with
// snapshot records fail, at the start of a scan, within it or within a pass. Once they succeed, a snapshot is
// completed.
func TestRefusedSnapshotsTakeNoMemory(t *testing.T) {
	suite.NeedAll(t, "logs of many finished tasks")
	const output = 15_000
	for name, taken := range map[string]int{"from the start": 0, "within a scan": 1, "within the first pass": -1} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, 1, 64<<10, 300)
			switch {
			case taken > 0:
				b.transaction(t, false, 1, 100)
			case taken < 0:
				b.untilWhole(t, 500, 1, 100)
			}
			for range 1000 {
				b.transaction(t, true, 4, output)
			}
			if most := projections.EndedMostBytes + 2*output; b.most > most {
				t.Errorf("%d bytes of finished tasks in memory, at most %d", b.most, most)
			}
			b.paid = 100_000
			b.untilWhole(t, 2000, 1, 100)
			b.isTheRebuild(t)
		})
	}
}

// TestScanEndsBesideHeavyOutput checks that a scan ends even if every transaction finishes more than a chunk of tasks,
// with increasing ids, and that few are kept in memory.
func TestScanEndsBesideHeavyOutput(t *testing.T) {
	b := newBounded(t, paceShare, paceChunk, 200)
	b.untilWhole(t, 1000, 4, paceChunk)
	if limit := 2 << 20; b.most > limit {
		t.Errorf("%d bytes of finished tasks in memory, at most %d", b.most, limit)
	}
	b.isTheRebuild(t)
}

// TestForgetWithinAScanLosesNothing checks that every valid snapshot equals a rebuild, with commits and rollbacks
// during a scan, and tasks that end before and after its cursor.
func TestForgetWithinAScanLosesNothing(t *testing.T) {
	for seed := range seeds(t, 6) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		b := newBounded(t, 1+rnd.IntN(5), paceChunk, 150)
		b.rnd = rnd
		for range 30 {
			if rnd.IntN(6) == 0 {
				b.view.Forget()
			}
			b.transaction(t, rnd.IntN(3) == 0, 1+rnd.IntN(8), rnd.IntN(3000))
		}
		b.untilWhole(t, 5000, 1, 100)
		b.isTheRebuild(t)
	}
}

// TestTasksThatEndAtTheInstantOfAScan lets tasks end at the instant at which a scan began: the partition's time stands
// still while it is ahead of its owner's clock. Each is written once, so the next owner counts as many ended tasks as
// there are.
func TestTasksThatEndAtTheInstantOfAScan(t *testing.T) {
	b := newBounded(t, 1, 300, 40)
	still := func(tasks int) {
		at := b.h.at
		for range tasks {
			b.h.at = at.Add(-time.Millisecond) // heavy adds it
			size := 0
			rs := b.h.heavy(b.id(), 100)
			for i := range rs {
				size += len(rs[i].Value)
			}
			written, err := b.view.Snapshot("test", size)
			if err != nil {
				t.Fatal(err)
			}
			b.view.SnapshotWritten()
			b.topic = append(b.topic, written...)
			live(t, b.view, rs, len(rs))
			b.log = append(b.log, rs...)
			b.view.Save()
		}
	}
	still(40)
	b.untilWhole(t, 300, 1, 100)
	if rows, _ := b.view.Stored(); b.view.Kept() != rows {
		t.Errorf("the owner counts %d ended tasks, and has %d", b.view.Kept(), rows)
	}
	s := openTiny(t, vfs.NewMem(), paceChunk)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	defer v.Close()
	fromSnapshot(t, v, b.topic, b.log)
	if rows, _ := v.Stored(); v.Kept() != rows {
		t.Errorf("the next owner counts %d ended tasks, and has %d", v.Kept(), rows)
	}
}

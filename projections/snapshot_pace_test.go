package projections_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

const (
	paceShare = projections.DefaultSnapshotShare
	paceChunk = 8 << 10
	// paceSlack bounds what is written at once: a chunk, the task that ends it, and meta.
	paceSlack = 2 * paceChunk
)

// paced returns a view with many open tasks, without a snapshot on the topic.
func paced(t *testing.T, h *history, tasks int) (v *projections.Tasks, open int) {
	t.Helper()
	s, err := projections.Open("data/tasks", identity(projections.ViewTasks), projections.Options{
		FS: vfs.NewMem(), MemtableBytes: projections.MinMemtableBytes, CacheBytes: 1 << 20, HotBytes: hotBytes,
		Snapshots: projections.SnapshotOptions{Share: paceShare, EventBytes: 1, ChunkBytes: paceChunk},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	v = tasksOf(t, s)
	t.Cleanup(v.Close)
	rs := h.records(1)
	for range tasks {
		rs = append(rs, h.submit())
	}
	apply(t, v, rs)
	for _, task := range h.tasks {
		open += len(task.Encode())
	}
	return v, open
}

// write makes a transaction with a number of bytes of events.
func (c *topic) write(t *testing.T, v *projections.Tasks, eventBytes int) (bytes int) {
	t.Helper()
	rs, err := v.Snapshot("test", eventBytes)
	if err != nil {
		t.Fatal(err)
	}
	v.SnapshotWritten()
	*c = append(*c, rs...)
	for i := range rs {
		bytes += len(rs[i].Value)
	}
	return bytes
}

// TestFirstSnapshotIsPaidFor checks that the first snapshot after a restart, if the topic has none, has no larger share
// of the written bytes than others, though it has all open tasks. Its bytes in a transaction are bounded by a share of
// the transaction's events.
func TestFirstSnapshotIsPaidFor(t *testing.T) {
	h := newHistory(1)
	h.input = 2000
	v, open := paced(t, h, 400)
	v.SnapshotBase(nil, true)
	const transaction = 10_000
	paid := int(v.Next()) * 400 / paceShare
	var c topic
	read, written, began := 0, 0, 0
	for c.base(t) == nil {
		if read > 2*open*paceShare {
			t.Fatalf("no snapshot of %d bytes after %d of events", open, read)
		}
		read += transaction
		n := c.write(t, v, transaction)
		if written == 0 && n > 0 {
			began = read
		}
		if written += n; written > paid+read/paceShare+paceSlack {
			t.Fatalf("%d bytes of the first snapshot after %d of events: it pays for one in %d", written, read, paceShare)
		}
		if most := (read-began)/(paceShare/5) + paceSlack; written > most {
			t.Fatalf("%d bytes of a snapshot within %d of events: at most %d", written, read-began, most)
		}
	}
	if written < open {
		t.Errorf("%d bytes of snapshot for %d that are open", written, open)
	}
	if read > began+2*open*paceShare/5 {
		t.Errorf("the snapshot took %d bytes of events to write, all that paid for it were %d", read-began, began)
	}
}

// TestPassEndsBeforeWhatEndedFillsMemory checks that the pace is ignored if too many finished tasks are in memory.
// Tasks that end during a pass are kept in memory until it has ended.
func TestPassEndsBeforeWhatEndedFillsMemory(t *testing.T) {
	h := newHistory(1)
	h.input = 2000
	v, open := paced(t, h, 400)
	v.SnapshotBase(nil, true)
	var c topic
	if c.write(t, v, 2*open*paceShare) == 0 {
		t.Fatal("the pass didn't begin")
	}
	if n := c.write(t, v, 1); n > 0 {
		t.Fatalf("a pass wrote %d bytes beside one of events", n)
	}
	for i := range 700 { // 21 MB in a snapshot
		apply(t, v, h.short(fmt.Sprintf("%030000d", i)))
	}
	for writes := 0; c.base(t) == nil; writes++ {
		if n := c.write(t, v, 1); n == 0 || writes > open/paceChunk+1 {
			t.Fatalf("transaction %d has %d bytes of the pass, which isn't over", writes, n)
		}
	}
}

// short returns a task that ends immediately.
func (h *history) short(id string) []events.Record {
	return h.task(id, &events.TaskUndoing{Ending: events.StateUndone}, &events.TaskUndone{})
}

// task returns a task that is received, with some facts after that.
func (h *history) task(id string, then ...events.Fact) []events.Record {
	var rs []events.Record
	for i, f := range append([]events.Fact{&events.TaskReceived{Workflow: "order", Version: 1, Digest: "d", Plan: testPlan}}, then...) {
		e := &events.Event{Task: id, Seq: uint64(i + 1), Epoch: h.state.Epoch, Fact: f}
		if t := h.tasks[id]; t != nil {
			e.Prev = t.Prev
		}
		rs = append(rs, h.record(e))
	}
	return rs
}

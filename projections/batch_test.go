package projections_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// TestOffsetAndDataAreInOneBatch checks that data and offset on disk always agree. Pebble flushes a batch larger than
// half a memtable immediately. With the offset in a batch of its own, a crash then would make the view fold events
// twice, or never.
func TestOffsetAndDataAreInOneBatch(t *testing.T) {
	const seed = 1 // enough of its tasks are open after 200 events
	h := newHistory(seed)
	h.input = 20_000
	rs := h.records(200)
	fs := vfs.NewCrashableMem()
	synced := make(chan struct{}, 1)
	s := open(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			select {
			case synced <- struct{}{}:
			default: // a check is pending already
			}
		}
		return nil
	})), projections.ViewTasks)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	apply(t, v, rs)
	if n := v.ChangedBytes(); n < projections.MinMemtableBytes || n >= 4*projections.MinMemtableBytes {
		t.Fatalf("%d bytes changed: the batch must be larger than a memtable, and not so large that Save flushes", n)
	}
	v.Save()
	// Pebble doesn't report its own flushes. A flush is complete after its last sync, so the test checks after each
	// sync, and after a while without any.
	late := time.After(suite.Patience)
	for {
		select {
		case <-synced:
		case <-time.After(100 * time.Millisecond):
		case <-late:
			t.Fatalf("nothing of the batch is on disk after %s", suite.Patience)
		}
		crashed := open(t, fs.CrashClone(vfs.CrashCloneCfg{}), projections.ViewTasks)
		left := tasksOf(t, crashed)
		tasks := 0
		if err := left.Each(func(*events.Task) error { tasks++; return nil }); err != nil {
			t.Fatal(err)
		}
		there := tasks > 0 || left.Next() > 0
		if there {
			model := newHistory(seed)
			model.input = h.input
			for model.offset < left.Next() {
				model.next()
			}
			same(t, left, model.tasks, model.state)
		}
		left.Close()
		closeStore(t, crashed)
		if there {
			return
		}
	}
}

package replay_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// A retained task doesn't retain the fetch buffers of its events. Those may be 1,000 times as large.
func TestOpenTasksKeepNoMoreThanTheirEvents(t *testing.T) {
	var first events.Record
	for _, records := range byTask(recorded(t)) {
		if e, err := events.DecodeEvent(&records[0]); err == nil && e.Fact.(*events.TaskReceived).Workflow == "order" {
			first = records[0]
			break
		}
	}
	in, choice := replay.NewInstant(noon.AddDate(100, 0, 0)), replay.NewChoice("order", 0)
	for name, add := range map[string]func(*events.Record){"an instant": in.Add, "a choice": choice.Add} {
		fetched := func() weak.Pointer[[1 << 20]byte] {
			batch := new([1 << 20]byte)
			r := first
			r.Value = batch[:copy(batch[:], first.Value)]
			add(&r)
			return weak.Make(batch)
		}()
		runtime.GC()
		if fetched.Value() != nil {
			t.Errorf("%s keeps the batch of an open task's event", name)
		}
	}
	if n := len(in.View(func(*events.Task) bool { return true }).Tasks); n != 1 {
		t.Errorf("%d tasks", n)
	}
	tasks := 0
	if _, err := choice.Each(func([]events.Record) error { tasks++; return nil }); err != nil || tasks != 1 {
		t.Errorf("%d tasks, %v", tasks, err)
	}
}

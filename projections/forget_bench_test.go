package projections_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

var endedTasks = flag.Int("ended", 200_000, "BenchmarkEndedTasks: tasks that end")

// BenchmarkEndedTasks measures what a scheduler's store holds after -ended tasks have ended, one each 10 ms, with ids that are
// known for ever and with ids that are forgotten after a minute: bytes on disk after compaction, and bytes of the heap.
//
//	go test ./projections -run xxx -bench EndedTasks -benchtime 1x -ended 200000
func BenchmarkEndedTasks(b *testing.B) {
	for _, c := range []struct {
		name string
		plan *events.Plan
	}{{"known for ever", testPlan}, {"known for a minute", testPlan.WithDedupeFor(time.Minute)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				s, err := projections.Open(dir, identity(projections.ViewTasks), projections.Options{})
				if err != nil {
					b.Fatal(err)
				}
				v := tasksOf(b, s)
				endTasks(b, v, c.plan, *endedTasks)
				if err := s.WaitCompacted(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(dirBytes(b, dir)), "disk-B")
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc), "heap-B")
				b.ReportMetric(float64(v.Kept()), "ids")
				v.Close()
				closeStore(b, s)
			}
		})
	}
}

// endTasks ends n tasks, one each 10 ms, and forgets ids each minute.
func endTasks(b *testing.B, v *projections.Tasks, plan *events.Plan, n int) {
	h := newHistory(1)
	r := h.record(&events.Event{Seq: 1, Epoch: 1, Fact: &events.PartitionClaimed{Owner: "s"}})
	apply(b, v, []events.Record{r})
	for i := range n {
		id := fmt.Sprintf("order-%d-%08x", i, uint32(i)*2654435761)
		h.at = h.at.Add(10 * time.Millisecond)
		rs := make([]events.Record, 0, 4)
		for _, f := range []events.Fact{&events.TaskReceived{Workflow: "order", Version: 1, Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Plan: plan},
			&events.TaskUndoing{Ending: events.StateUndone}, &events.TaskUndone{}} {
			e := &events.Event{Task: id, Seq: 1, Epoch: 1, Fact: f}
			if t := h.tasks[id]; t != nil {
				e.Seq, e.Prev = t.Seq+1, t.Prev
			}
			rs = append(rs, h.record(e))
		}
		delete(h.tasks, id)
		if i%6000 == 0 {
			f := &events.PartitionForgot{Until: events.Millis(h.at), Next: events.Millis(h.at.Add(time.Millisecond))}
			rs = append(rs, h.record(&events.Event{Seq: uint64(f.Until.UnixMilli()), Epoch: 1, Fact: f}))
		}
		apply(b, v, rs)
		if v.ChangedBytes() > scheduler.SaveBytes {
			v.Save()
		}
	}
	for range n/(1<<14) + 1 {
		v.Save()
	}
}

func dirBytes(b *testing.B, dir string) (n int64) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		} else if os.IsNotExist(err) {
			err = nil
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

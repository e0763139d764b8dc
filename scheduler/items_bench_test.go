package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// BenchmarkItems runs a task with items, from its submission to its end: all decisions of the task and of its items'
// tasks, with the folds of their events. The processor time of an item, also of collecting its garbage,
// must not grow with the number of items: on a busy machine ns/op does. log-B/item is what an
// item adds to the log: events, submissions, requests and replies.
func BenchmarkItems(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint("items=", n), func(b *testing.B) {
			var list strings.Builder
			for i := range n {
				fmt.Fprintf(&list, `,{"sku":"book-%d","n":%d}`, i, i%7)
			}
			input := `{"items":[` + list.String()[1:] + `]}`
			b.ReportAllocs()
			bytes, took := 0, time.Duration(0)
			for b.Loop() {
				f := newFamily(b, strings.Replace(pickEach, `{sku: "${ item }", n: "${ index }"}`, `{sku: "${ item.sku }", n: "${ index }"}`, 1))
				f.unsaved = true
				f.agent = func(_, _ string, _ json.RawMessage) (events.Outcome, string) {
					return events.Completed, `{"slip":"s-1"}`
				}
				began := processorTime()
				task := f.submit("o", "pick", input)
				if took += processorTime() - began; task.State != events.StateProcessed {
					b.Fatalf("%s: %v", task.State, task.Error)
				}
				bytes = f.written
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*n), "cpu-ns/item")
			b.ReportMetric(float64(bytes)/float64(n), "log-B/item")
		})
	}
}

// processorTime is that of the process.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it doesn't fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

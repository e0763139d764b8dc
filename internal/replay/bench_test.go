package replay_test

import (
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// BenchmarkFold measures what folds the events of a log: each task alone, all tasks up to an instant, and the choice of
// tasks for a plan.
func BenchmarkFold(b *testing.B) {
	records := recorded(b)
	tasks := byTask(records)
	for name, fold := range map[string]func(){
		"task": func() {
			for _, list := range tasks {
				s := replay.NewStepper(replay.Until{}, false)
				for i := range list {
					if _, err := s.Add(&list[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
		},
		"instant": func() {
			in := replay.NewInstant(noon.AddDate(100, 0, 0))
			for i := range records {
				in.Add(&records[i])
			}
			if v := in.View(func(*events.Task) bool { return true }); v.Broken > 0 || len(v.Tasks) != len(tasks) {
				b.Fatal(v.Faults, len(v.Tasks))
			}
		},
		"choice": func() {
			c := replay.NewChoice("order", 1000)
			for i := range records {
				c.Add(&records[i])
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fold()
			}
			b.ReportMetric(float64(b.N*len(records))/b.Elapsed().Seconds(), "events/s")
		})
	}
}

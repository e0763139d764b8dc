package projections_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestEndingAgreesWithTheLog checks that the index finds the tasks that must end within a time, with Saves and crashes at
// random points, and that an index that is rebuilt has the same. Tasks of items aren't among them.
func TestEndingAgreesWithTheLog(t *testing.T) {
	most, left := 0, 0
	for seed := range seeds(t, 6) {
		f := follow(t, seed, 15)
		rnd, h := f.rnd, f.h
		h.items = seed%2 == 1
		f.read(40, 3, func() time.Duration { return time.Duration(rnd.IntN(180)) * time.Second }, func() {
			from := h.at.Add(time.Duration(rnd.IntN(20)-10) * time.Minute)
			until := from.Add(time.Duration(rnd.IntN(60)) * time.Minute)
			var want []*events.Task
			for _, task := range h.tasks {
				if task.State == events.StateProcessing && task.Parent == nil && !task.CompleteBy.Before(from) && task.CompleteBy.Before(until) {
					want = append(want, task)
				}
			}
			slices.SortFunc(want, func(a, b *events.Task) int {
				return cmp.Or(a.CompleteBy.Compare(b.CompleteBy), cmp.Compare(a.ID, b.ID))
			})
			limit := 1000
			if rnd.IntN(3) == 0 {
				limit = 1 + rnd.IntN(5)
			}
			got, err := f.s.Ending(context.Background(), []int32{testPartition, 0}, from, until, limit)
			if err != nil || len(got.AsOf) != 2 || len(got.Tasks) > limit || !got.Left && len(got.Tasks) != len(want) {
				t.Fatalf("%s: %d tasks, limit %d, want %d: %v", f, len(got.Tasks), limit, len(want), err)
			}
			for i := range got.Tasks {
				if got.Tasks[i].ID != want[i].ID {
					t.Fatalf("%s: task %d is %s, want %s", f, i, got.Tasks[i].ID, want[i].ID)
				}
			}
			most = max(most, len(got.Tasks))
			if got.Left {
				left++
			}
		})
		f.end()
	}
	if most < 5 || left == 0 {
		t.Errorf("at most %d tasks, %d lists were cut: it proves little", most, left)
	}
}

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestNewest: a list with a limit has the newest of all elements, in whatever order they arrive. It holds at most twice
// the limit meanwhile.
func TestNewest(t *testing.T) {
	type thing struct {
		at *string
		n  int
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, most := range []int{0, 1, 3, 50, 999, 1000, 1001} {
		found := newestBuffer[thing]{limit: &limit{most}, instant: func(v *thing) *string { return v.at }}
		random := rand.New(rand.NewPCG(1, uint64(most)))
		var all []thing
		for n := range 1000 {
			v := thing{events.InstantText(start.Add(time.Duration(random.IntN(300)) * time.Second)), n}
			all = append(all, v)
			if found.add(v); most > 0 && len(found.list) >= 2*most {
				t.Fatalf("--limit %d: %d are kept", most, len(found.list))
			}
		}
		slices.SortStableFunc(all, func(a, b thing) int { return compareInstants(b.at, a.at) })
		if most > 0 {
			all = all[:min(most, len(all))]
		}
		var note strings.Builder
		if got := found.newestRows(&note, "things"); !slices.Equal(got, all) || (note.Len() > 0) != (len(all) < 1000) {
			t.Errorf("--limit %d: %d of %d, said %q", most, len(got), len(all), note.String())
		}
	}
}

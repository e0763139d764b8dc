package projections

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Quantiles of a histogram are those of the durations, and at most 1/32 longer, however the durations were spread over
// histograms that were stored and merged.
func TestHistogram(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var parts [3]Histogram
		var all []int64
		for range 1 + rnd.IntN(500) {
			ms := rnd.Int64N(1 << (1 + rnd.IntN(40)))
			all = append(all, ms)
			parts[rnd.IntN(3)].Add(ms)
		}
		var sum Histogram
		for i := range parts {
			data := append(parts[i].appendTo(nil), 7)
			h, rest, err := readHistogram(data)
			if err != nil || !slices.Equal(rest, []byte{7}) || h.max != parts[i].max || len(h.cells) > 0 && !reflect.DeepEqual(h, parts[i]) {
				t.Fatalf("%+v, %v, %v; want %+v", h, rest, err, parts[i])
			}
			sum.Merge(&h)
		}
		slices.Sort(all)
		if sum.Count() != int64(len(all)) || sum.Max() != all[len(all)-1] {
			t.Fatalf("%d durations up to %d, want %d up to %d", sum.Count(), sum.Max(), len(all), all[len(all)-1])
		}
		for _, q := range []float64{0.01, 0.5, 0.95, 0.99, 1} {
			want := all[max(0, int(float64(len(all))*q+0.999999)-1)]
			if got := sum.Quantile(q); got < want || got > want+want/32 {
				t.Errorf("quantile %g is %d, want %d", q, got, want)
			}
		}
	}
	for ms := range int64(100_000) {
		if c := cellOf(ms); cellMax(c) < ms || ms > 0 && cellOf(ms-1) > c {
			t.Fatalf("%d ms is in cell %d up to %d", ms, c, cellMax(c))
		}
	}
	for _, bad := range []string{"", "\x01", "\x01\x05\x01", "\x80"} {
		if _, _, err := readHistogram([]byte(bad)); err == nil {
			t.Errorf("%q is read as a histogram", bad)
		}
	}
}

// TestQuantileAbove checks that a quantile of the longer durations never falls if the bound rises, and isn't below it.
func TestQuantileAbove(t *testing.T) {
	var h, none Histogram
	for ms := range int64(1000) {
		h.Add(ms * ms)
	}
	if got, want := h.QuantileAbove(0.95, -1), h.Quantile(0.95); got != want || none.QuantileAbove(0.95, 7) != 7 || h.QuantileAbove(0.95, 1e9) != 1e9 {
		t.Errorf("%d, want %d", got, want)
	}
	last := int64(0)
	for above := int64(0); above < 1e6; above += 997 {
		got := h.QuantileAbove(0.95, above)
		if got < last || got < above || got > h.Max() && got != above {
			t.Fatalf("above %d: %d, before %d", above, got, last)
		}
		last = got
	}
}

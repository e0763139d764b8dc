package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuantiles: quantiles are at most 0.1 % above the recorded values.
func TestQuantiles(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 || h.Max() != 0 {
		t.Error("an empty histogram isn't empty")
	}
	rng := rand.New(rand.NewPCG(2, 2))
	all := make([]time.Duration, 10_001)
	for i := range all {
		all[i] = time.Duration(rng.ExpFloat64() * float64(5*time.Millisecond))
		h.Record(all[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if got := h.Quantile(q); got < want || got > want+want/1000+1 {
			t.Errorf("quantile %v is %v, want %v or little more", q, got, want)
		}
	}
	if h.Max() != all[len(all)-1] || h.Quantile(1) != h.Max() || h.Count() != uint64(len(all)) {
		t.Errorf("%d durations, the longest %v: want %d and %v", h.Count(), h.Max(), len(all), all[len(all)-1])
	}
	h.Record(-time.Second)
	if h.Quantile(0) != 0 {
		t.Error("a negative duration doesn't count as none")
	}
}

// TestNoCoordinatedOmission: if the system stalls for 1 s, all tasks due in that second are late. If times counted from
// the actual send, only one task would be.
func TestNoCoordinatedOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, stuckAt = 1000, 100
		l := &Load{Tasks: 2 * rate, Rate: rate}
		tally := newTally(l)
		g := &generator{tally: tally, dueAfter: l.dueAtRate(), flush: func(context.Context) error { return nil }}
		g.write = func(_ context.Context, n int) {
			if n == stuckAt {
				time.Sleep(time.Second) // on the fake clock of synctest
			}
			g.recordWritten(n, nil)
		}
		if err := g.send(t.Context(), 0, l.Tasks); err != nil {
			t.Fatal(err)
		}
		// Lateness falls from 1 s to 0 over the 1000 tasks that were due during the stall.
		if got := tally.ack.Quantile(0.75); got < 450*time.Millisecond || got > 550*time.Millisecond {
			t.Errorf("a quarter of the tasks was late by %v or more, want half a second", got)
		}
		if got := tally.ack.Quantile(0.45); got > time.Millisecond {
			t.Errorf("tasks that nothing held up were late by %v", got)
		}
	})
}

// TestClosedLoopWaitsForRoom: without a rate, a task is due when a slot is free.
func TestClosedLoopWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Load{Tasks: 10, Inflight: 1}
		tally := newTally(l)
		g := &generator{tally: tally, slots: make(chan struct{}, 1), flush: func(context.Context) error { return nil }}
		atOnce, most := 0, 0
		g.write = func(_ context.Context, n int) {
			atOnce++
			most = max(most, atOnce)
			g.recordWritten(n, nil)
			time.AfterFunc(time.Second, func() {
				atOnce--
				<-g.slots
			})
		}
		began := time.Now()
		if err := g.send(t.Context(), 0, l.Tasks); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 9*time.Second || most != 1 || tally.ack.Max() != 0 {
			t.Errorf("%d at once in %v, acknowledged within %v; want 1, 9s and at once", most, took, tally.ack.Max())
		}
	})
}

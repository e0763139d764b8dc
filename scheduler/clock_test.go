package scheduler

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestAtNeverFalls sets the clock back, both during a worker's life and at a takeover by a process whose clock is
// behind. The times of a partition's decisions must not decrease: they stay at the last one until the clock has passed
// it.
func TestAtNeverFalls(t *testing.T) {
	s := newSite(t, 1)
	first := s.worker(s.cluster.join(0))
	s.process(first, "t-1")
	s.clock.pass(-time.Hour)
	s.process(first, "t-2")
	first.close(func() {})
	s.clock.pass(-time.Hour)
	second := s.worker(s.cluster.join(0))
	s.process(second, "t-3")
	s.clock.pass(3 * time.Hour)
	s.process(second, "t-4")

	last, same := time.Time{}, 0
	for _, r := range s.cluster.all(ns.Events()) {
		e, err := events.DecodeEvent(&r)
		if err != nil {
			t.Fatal(err)
		}
		if e.At.Before(last) {
			t.Errorf("%s is at %s, after one at %s", e.ID(0), e.At, last)
		}
		if e.At.Equal(last) {
			same++
		}
		last = e.At
	}
	if want := s.clock.Now(); !last.Equal(want) || same == 0 {
		t.Errorf("the last event is at %s, with the clock ahead again at %s; %d were at the instant of the one before", last, want, same)
	}
}

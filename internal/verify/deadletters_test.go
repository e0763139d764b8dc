package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestDeadlettersAfterRetention: retention deletes the oldest dead letters. An input that was consumed and led to nothing is
// a fault only if its dead letter would still be kept. The others are counted.
func TestDeadlettersAfterRetention(t *testing.T) {
	lost := events.Record{Topic: ns.Inbox(events.Replies), Value: []byte("{")}
	for name, c := range map[string]struct {
		start      map[int32]int64
		kept       bool
		later      time.Duration
		faults     int
		unchecked  int
		noneIsKept bool
	}{
		"nothing was deleted":                   {map[int32]int64{0: 0, 1: 0}, true, 0, 1, 0, false},
		"newer than the oldest kept one":        {map[int32]int64{0: 7, 1: 0}, true, time.Hour, 1, 0, false},
		"as old as the oldest kept one":         {map[int32]int64{0: 7, 1: 0}, true, time.Minute, 0, 1, false},
		"all of a partition were deleted":       {map[int32]int64{0: 7, 1: 3}, true, time.Hour, 0, 1, true},
		"all were deleted":                      {map[int32]int64{0: 7, 1: 0}, false, time.Hour, 0, 1, true},
		"the others of the topic weren't there": {nil, true, 0, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, Options{Deadletters: true, DeadlettersStart: c.start})
			h.submit().add(do("a", 1)).input(lost)
			if c.kept {
				r := h.fed[len(h.fed)-1]
				d := events.Deadletter(ns, "test", &r, &events.Unusable{Reason: events.ReasonBadJSON})
				d.Partition, d.Offset, d.Time = 0, c.start[0], h.at
				h.c.Deadletter(&d)
			}
			h.later(c.later).input(lost)
			h.completes("a", events.Do)
			if !c.kept {
				c.unchecked++ // the first one, too
			}
			r := h.c.Finish(h.at)
			faults := slices.DeleteFunc(r.Faults, func(f Fault) bool { return f.Promise == "P17" }) // the last reply is late
			if len(faults) != c.faults || r.Unchecked != c.unchecked || r.DeadlettersSince.IsZero() != (c.noneIsKept || c.start[0] == 0) {
				t.Errorf("%d unchecked since %s, faults %v", r.Unchecked, r.DeadlettersSince, faults)
			}
		})
	}
}

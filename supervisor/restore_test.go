package supervisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// claims is a partition of events. It has a claim at each offset, at the instant of that index.
type claims []time.Time

func (c claims) Read(_ context.Context, _ string, p int32, from int64, fn func([]events.Record) error) (int64, error) {
	end := int64(len(c))
	for i := from; i < end; i++ {
		e := &events.Event{Seq: uint64(i + 1), Epoch: uint64(i + 1), At: c[i], Fact: &events.PartitionClaimed{Owner: "o"}}
		r := e.Record(events.DefaultNamespace, "test", p, e.Value())
		r.Offset = i
		if err := fn([]events.Record{r}); err != nil {
			return 0, err
		}
	}
	return end, nil
}

func (claims) ReadLast(context.Context, string, int32, int64, func([]events.Record) error) (bool, error) {
	return true, nil
}

// TestSnapshotIsCheckedAgainstTheLog checks that a snapshot is used only if the log has the last event before its Next
// and the last one before its Until, at their instants.
func TestSnapshotIsCheckedAgainstTheLog(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 2, 3, 4, s, 0, time.UTC) }
	log := claims{at(0), at(1), at(2), at(3), at(4), at(5)}
	s := &Supervisor{cfg: Config{Namespace: events.DefaultNamespace, History: log}}
	for name, x := range map[string]struct {
		next, until  int64
		last, lastOf time.Time // State.At and UntilAt
		ok           bool
	}{
		"of one offset":                             {3, 3, at(2), time.Time{}, true},
		"of several":                                {3, 5, at(2), at(4), true},
		"of a build that didn't write UntilAt":      {3, 5, at(2), time.Time{}, true},
		"another event before Next":                 {3, 5, at(1), at(4), false},
		"another event before Until":                {3, 5, at(2), at(3), false},
		"the log ends before Until":                 {3, 8, at(2), at(7), false},
		"the log ends before Next":                  {8, 8, at(7), time.Time{}, false},
		"the log ends before Until, which is later": {6, 7, at(5), at(6), false},
	} {
		m := &events.Snapshot{Next: x.next, Until: x.until, State: events.PartitionState{At: x.last}, UntilAt: x.lastOf}
		if err := s.checkSnapshotInLog(t.Context(), 0, m); (err == nil) != x.ok || err != nil && !errors.Is(err, events.ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

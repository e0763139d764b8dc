package projections_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// deadlinesFromSnapshot returns the digest of the timers of a snapshot and the events after it. At random the store is
// closed, or loses unflushed data, and then continues or starts again.
func deadlinesFromSnapshot(t *testing.T, rnd *rand.Rand, c topic, rs []events.Record) string {
	t.Helper()
	fs := vfs.NewMem()
	taken := 0
	for {
		s := open(t, fs, projections.ViewDeadlines)
		v, err := s.Deadlines(testPartition)
		if err != nil {
			t.Fatal(err)
		}
		if v.Next() == 0 {
			if err := v.LoadSnapshot(c.reader()); err != nil {
				t.Fatal(err)
			}
			taken++
		}
		stop := len(rs)
		if rnd.IntN(2) == 0 && taken < 3 {
			stop = rnd.IntN(len(rs) + 1)
		}
		from := v.ExpectLastEvent()
		for i := range rs {
			if i >= stop {
				break
			}
			if rs[i].Offset < from {
				continue
			}
			if err := v.Apply(&rs[i]); err != nil {
				t.Fatal(err)
			}
			if rnd.IntN(20) == 0 {
				v.Save()
			}
		}
		if stop == len(rs) {
			sum := v.Digest()
			v.Discard()
			closeStore(t, s)
			return sum
		}
		if rnd.IntN(2) == 0 {
			v.Close()
		} else {
			v.Discard()
		}
		closeStore(t, s)
	}
}

// rebuiltDeadlines returns the digest of a rebuild from the log.
func rebuiltDeadlines(t *testing.T, rs []events.Record) string {
	t.Helper()
	s := open(t, vfs.NewMem(), projections.ViewDeadlines)
	defer closeStore(t, s)
	v, err := s.Deadlines(testPartition)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Discard()
	apply(t, v, rs)
	return v.Digest()
}

package index

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// standingLog stands at a position, and delivers nothing.
type standingLog struct {
	emptyLog
	position, began, tail int64
	answered              time.Time // zero: now
}

func (l *standingLog) Position(string, int32) (int64, bool)      { return l.position, true }
func (l *standingLog) HighWatermark(string, int32) (int64, bool) { return l.began, true }
func (l *standingLog) Answered(string, int32) time.Time {
	if l.answered.IsZero() {
		return time.Now()
	}
	return l.answered
}
func (l *standingLog) Tail(string, int32) (int64, bool) { return l.tail, true }

// newIndex returns an index that has begun to read one partition.
func newIndex(t *testing.T) *Index {
	t.Helper()
	id := projections.Identity{ClusterID: "c", Namespace: events.DefaultNamespace, Partitions: 1, View: projections.ViewTimelines}
	store, err := projections.Open("d", id, projections.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	x := New(store, func(int32, int64) {})
	t.Cleanup(func() {
		x.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := x.StartOffset(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestTaskOfAPartitionThatIsNotReadMayExist: a partition without a leader is assigned, but nothing of it is known until a
// broker has reported its end.
func TestTaskOfAPartitionThatIsNotReadMayExist(t *testing.T) {
	x := newIndex(t)
	if _, begun := x.Find(0, "o-1"); begun {
		t.Error("a partition without progress counts as read")
	}
	if err := x.apply(&standingLog{}, "", nil); err != nil {
		t.Fatal(err)
	}
	if _, begun := x.Find(0, "o-1"); !begun {
		t.Error("a partition with progress doesn't count as read")
	}
}

// TestSilentLeader: a partition whose leader hasn't answered for some seconds may have more records than are known. While
// known ones aren't applied, it isn't asked for more, so its silence says nothing.
func TestSilentLeader(t *testing.T) {
	x := newIndex(t)
	long := time.Now().Add(-silentAfter - time.Second)
	for _, c := range []struct {
		log    standingLog
		silent bool
	}{
		{standingLog{position: 10, tail: 10}, false},
		{standingLog{position: 10, tail: 10, answered: long}, true},
		{standingLog{position: 10, tail: 20, answered: long}, false},
		{standingLog{position: 20, tail: 20}, false},
	} {
		if err := x.apply(&c.log, "", nil); err != nil {
			t.Fatal(err)
		}
		if at := x.Progress()[0]; at.Silent != c.silent {
			t.Errorf("%+v: %+v", c.log, at)
		}
	}
}

// TestBehindSince: a partition that had caught up and isn't read any more is behind since the first record that it lacks,
// although it isn't restoring. One that reaches where the log ended is behind since then at most.
func TestBehindSince(t *testing.T) {
	x := newIndex(t)
	log := &standingLog{began: 1000}
	read := func(position, tail int64) Progress {
		t.Helper()
		log.position, log.tail = position, tail
		if err := x.apply(log, "", nil); err != nil {
			t.Fatal(err)
		}
		return x.Progress()[0]
	}
	if at := read(1000, 1000); at.Behind || !at.BehindSince.IsZero() {
		t.Errorf("at the end: %+v", at)
	}
	began := time.Now()
	at := read(1000, 1500)
	since := at.BehindSince
	if !at.Behind || since.Before(began) || since.After(time.Now()) {
		t.Errorf("behind: %+v", at)
	}
	for _, position := range []int64{1000, 1000, 1400} {
		if at = read(position, 2_000_000); !at.BehindSince.Equal(since) || at.Restoring {
			t.Errorf("at %d, it lacks what it lacked before: %+v", position, at)
		}
	}
	if at = read(1500, 2_000_000); !at.BehindSince.After(since) {
		t.Errorf("it has what it lacked: %+v", at)
	}
	if at = read(2_000_000, 2_000_000); at.Behind || !at.BehindSince.IsZero() {
		t.Errorf("at the end again: %+v", at)
	}
}

package projections_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
)

// otherLog is a log that replaced another one: events was recreated (same 0), or lost its end and has the same events
// below an offset.
func otherLog(old []events.Record, same, n int) []events.Record {
	h := newHistory(1)
	rs := h.records(same)
	for i := range rs {
		if rs[i].Offset != old[i].Offset || string(rs[i].Value) != string(old[i].Value) {
			panic("the histories of one seed differ")
		}
	}
	h.at = h.at.Add(time.Hour)
	h.rnd = rand.New(rand.NewPCG(99, 99))
	return append(rs, h.records(n-same)...)
}

// TestSnapshotOfAnotherLogIsNoBase restarts an owner with its disk on a log that has replaced another one and has grown
// past the offset of that log's snapshot. The snapshot isn't continued, whether the disk is behind or ahead of it, and
// the next snapshots have the tasks of this log only.
func TestSnapshotOfAnotherLogIsNoBase(t *testing.T) {
	t.Parallel()
	old := newHistory(1).records(1500)
	c := ownersTopic(t, old)
	m := c.base(t)
	for _, x := range []struct {
		same  int
		ahead int64 // of the disk, from the snapshot
	}{{0, -1}, {0, 0}, {0, 1}, {400, -100}, {400, 500}} {
		t.Run(fmt.Sprintf("the first %d events are the same, the disk is ahead by %d", x.same, x.ahead), func(t *testing.T) {
			t.Parallel()
			rs := otherLog(old, x.same, 2500)
			refusedBase(t, diskAt(t, rs, m.Next+x.ahead), append(topic{}, c...), rs)
		})
	}
}

// diskAt returns the disk of an owner that has stopped at an offset.
func diskAt(t *testing.T, rs []events.Record, next int64) vfs.FS {
	t.Helper()
	disk := vfs.NewMem()
	s := openTiny(t, disk, 400)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	for i := range rs {
		if rs[i].Offset < next {
			apply(t, v, rs[i:i+1])
		}
	}
	v.Close()
	return disk
}

// refusedBase restarts an owner on a disk, expects that it refuses the topic's snapshot as the base of its own, and
// restores an empty disk from what it writes.
func refusedBase(t *testing.T, disk vfs.FS, c topic, rs []events.Record) {
	t.Helper()
	const restartAt = 1800
	m := c.base(t)
	s := openTiny(t, disk, 4000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	from := min(v.ExpectLastEvent(), v.SnapshotBase(m, true))
	for i := range rs[:restartAt] {
		if rs[i].Offset >= from {
			apply(t, v, rs[i:i+1])
		}
	}
	if why, foreign := v.SnapshotReached(rs[restartAt].Offset); why == "" || !foreign {
		t.Errorf("a snapshot of another log is the base of the next one (%q)", why)
	}
	if got, want := v.Digest(), rebuilt(t, rs[:restartAt]); got != want {
		t.Errorf("after the restart the digest is %s, want %s", got, want)
	}
	c.owner(t, rand.New(rand.NewPCG(1, 1)), v, rs[restartAt:])
	if is := c.base(t); is.Next <= m.Next {
		t.Fatal("no snapshot was written after it")
	}
	s2 := openTiny(t, vfs.NewMem(), 400)
	defer closeStore(t, s2)
	v2 := tasksOf(t, s2)
	fromSnapshot(t, v2, c, rs)
	if got, want := v2.Digest(), rebuilt(t, rs); got != want {
		t.Errorf("a takeover from the snapshot has the digest %s, of the log it is %s", got, want)
	}
}

// TestSnapshotWhoseLastEventsAreLost checks the second of the two events by which a snapshot is recognized. Its tasks
// reflect events from Next to Until. The log has the event before Next, and has lost and replaced the one before Until.
func TestSnapshotWhoseLastEventsAreLost(t *testing.T) {
	t.Parallel()
	old := newHistory(1).records(1500)
	var c topic
	for full := ownersTopic(t, old); ; full = full[:len(full)-1] { // the last snapshot that was written over several transactions
		if c = full; c.base(t) == nil {
			t.Fatal("no snapshot was written over several transactions")
		}
		if m := c.base(t); m.Until > m.Next+1 {
			break
		}
	}
	m := c.base(t)
	same := 0
	for old[same].Offset < m.Next {
		same++
	}
	rs := otherLog(old, same, 2500)
	hit := false
	for i := range rs {
		hit = hit || rs[i].Offset == m.Until-1
	}
	if !hit {
		t.Fatal("the log has no event in place of the lost one")
	}
	t.Run("as a base", func(t *testing.T) { refusedBase(t, diskAt(t, rs, m.Until+10), append(topic{}, c...), rs) })
	t.Run("as a restore", func(t *testing.T) {
		s := openTiny(t, vfs.NewMem(), 400)
		defer closeStore(t, s)
		v := tasksOf(t, s)
		if _, err := v.LoadSnapshot(c.reader()); err != nil {
			t.Fatal(err)
		}
		from := v.ExpectLastEvent()
		for i := range rs {
			if rs[i].Offset >= from {
				apply(t, v, rs[i:i+1])
			}
		}
		if why, foreign := v.SnapshotReached(rs[len(rs)-1].Offset + 1); why == "" || !foreign {
			t.Errorf("the snapshot is restored from (%q)", why)
		}
	})
}

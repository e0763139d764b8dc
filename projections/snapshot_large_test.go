package projections_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
)

// recordMost is the size of a record that Kafka accepts by default, with its key and headers.
const recordMost = 1_000_012

// large returns a history of tasks, some of which are too large for a record.
func large(seed uint64, records int) []events.Record {
	h := newHistory(seed)
	var rs []events.Record
	for i := range records {
		h.input = 40
		if i%40 == 5 {
			h.input = []int{989_000, 1_000_000, 1_400_000, 2_600_000}[h.rnd.IntN(4)]
			rs = append(rs, h.submit())
			continue
		}
		rs = append(rs, h.next())
	}
	return rs
}

// parts returns the number of chunks of a topic that are parts of a task.
func (c topic) parts(t *testing.T) (n int) {
	t.Helper()
	for i := range c {
		key := string(c[i].Key)
		if size := len(c[i].Key) + len(c[i].Value) + 500; size > recordMost {
			t.Errorf("the record of %s has about %d bytes, Kafka takes %d", key, size, recordMost)
		}
		if kind, _, ok := events.ParseChunkKey(key); ok && kind == events.ChunkOpen && c[i].Value != nil {
			k, err := events.DecodeChunk(c[i].Value)
			if err != nil {
				t.Fatal(err)
			}
			if k.Part != nil {
				n++
			}
		}
	}
	return n
}

// TestLargeTasksAreInTheSnapshot checks that a snapshot contains tasks whose stored form exceeds a record. The snapshot
// and the events after it equal a rebuild, with rollbacks, lost disks and compaction.
func TestLargeTasksAreInTheSnapshot(t *testing.T) {
	t.Parallel()
	parts := 0
	for seed := range seeds(t, 2) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		rs := large(seed, 300)
		var c topic
		fs := vfs.NewMem()
		for done := 0; done < len(rs); {
			upto := min(len(rs), done+1+rnd.IntN(120))
			s := openTiny(t, fs, 4000)
			v := tasksOf(t, s)
			fromDisk(t, v, c, rs[:done])
			c.owner(t, rnd, v, rs[done:upto])
			v.Close()
			closeStore(t, s)
			parts += c.parts(t)
			c.compact(rnd)
			done = upto
			if c.base(t) == nil {
				continue
			}
			s = openTiny(t, vfs.NewMem(), 4000)
			v = tasksOf(t, s)
			fromSnapshot(t, v, c, rs[:done])
			if got, want := v.Digest(), rebuilt(t, rs[:done]); got != want {
				t.Fatalf("seed %d at %d: the digest of snapshot and tail is %s, that of a rebuild %s", seed, done, got, want)
			}
			v.Close()
			closeStore(t, s)
		}
	}
	if parts < 10 {
		t.Errorf("%d parts of tasks prove little", parts)
	}
}

// TestOnlyLargeTasksAreInParts checks that a snapshot has parts only if a large task is open.
func TestOnlyLargeTasksAreInParts(t *testing.T) {
	h := newHistory(1)
	s := openTiny(t, vfs.NewMem(), 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	v.SnapshotBase(nil, true)
	var c topic
	rnd := rand.New(rand.NewPCG(1, 1))
	c.owner(t, rnd, v, h.records(300))
	if n := c.parts(t); n != 0 {
		t.Fatalf("without a large task there are %d parts", n)
	}
	h.input = 1_500_000
	big := h.submit()
	h.input = 40
	id := string(big.Key)
	h.ids = h.ids[:h.place[id]] // it is the last one; remove it, so that it gets no random events
	delete(h.place, id)
	c.owner(t, rnd, v, append([]events.Record{big}, h.records(40)...))
	for range 30 { // the pace makes the pass wait for events
		c.write(t, v, 100_000)
	}
	if c.parts(t) == 0 {
		t.Fatal("with a large task there are no parts")
	}
}

// TestPartsThatDontFit checks that a task isn't joined from parts if one is missing, of another task, or out of order.
func TestPartsThatDontFit(t *testing.T) {
	task := []byte(`{"id":"a","input":"` + strings.Repeat("x", 3000) + `"}`)
	good := events.SplitParts("a", task, 1000)
	if len(good) != 4 {
		t.Fatalf("%d parts", len(good))
	}
	put := func(ps []*events.Part) (whole []byte, err error) {
		var g events.PartsReader
		for _, p := range ps {
			if whole, err = g.Add(p); err != nil {
				return nil, err
			}
		}
		return whole, g.CheckComplete()
	}
	if whole, err := put(good); err != nil || string(whole) != string(task) {
		t.Fatalf("put together %q, %v", whole, err)
	}
	other := events.SplitParts("b", task, 1000)
	for what, ps := range map[string][]*events.Part{
		"the first is missing": good[1:], "the last is missing": good[:3], "one is missing": {good[0], good[2], good[3]},
		"one comes twice": {good[0], good[0], good[1]}, "one is another's": {good[0], other[1], good[2], good[3]},
		"of another number": {good[0], events.SplitParts("a", task, 1500)[1]},
	} {
		if whole, err := put(ps); err == nil {
			t.Errorf("%s: put together as %d bytes", what, len(whole))
		}
	}
}

// TestPartIsGone checks that loading a snapshot that lacks a part changes nothing.
func TestPartIsGone(t *testing.T) {
	rs := large(2, 200)
	s := openTiny(t, vfs.NewMem(), 2000)
	defer closeStore(t, s)
	v := tasksOf(t, s)
	v.SnapshotBase(nil, true)
	var c topic
	c.owner(t, rand.New(rand.NewPCG(1, 1)), v, rs)
	want, m, tried := v.Digest(), c.base(t), 0
	for n := m.Open.From; n < m.Open.To; n++ {
		for i := range c {
			if string(c[i].Key) != events.ChunkKey(events.ChunkOpen, n) || !strings.Contains(string(c[i].Value), `"part":`) {
				continue
			}
			tried++
			bad := append(append(topic{}, c[:i]...), c[i+1:]...)
			if _, err := v.LoadSnapshot(bad.reader()); !errors.Is(err, events.ErrSnapshot) {
				t.Errorf("%s is gone: %v", c[i].Key, err)
			}
		}
	}
	if got := v.Digest(); got != want {
		t.Error("a snapshot that was refused has changed the view")
	}
	if tried == 0 {
		t.Error(fmt.Sprint("no part was there: nothing was tried of ", m.Open))
	}
}

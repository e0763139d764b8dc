package projections

import (
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// check returns a difference between the counts and the tasks; empty: none.
func (o *openTasks) check(s *snapshots) string {
	ids, bytes, hot, listed := uint64(0), 0, 0, 0
	o.each(func(id string) { ids += events.IDSum(id) })
	for id, en := range o.hot {
		if en.task.ID != id || !en.open {
			return fmt.Sprintf("under %q is %q, open: %v", id, en.task.ID, en.open)
		}
		if en.stored && !en.changed && !en.inClock {
			return fmt.Sprintf("%q can go, and never gets a turn", id)
		}
		bytes, hot = bytes+en.bytes, hot+en.bytes
		if en.listed {
			listed += en.bytes
		}
	}
	for _, set := range []coldTasks{o.cold, o.coldListed} {
		live := 0
		for id, c := range set.tasks {
			if o.hot[id] != nil {
				return fmt.Sprintf("%q is hot and cold", id)
			}
			bytes, live = bytes+int(c.bytes), live+len(id)
		}
		if set.live != live {
			return fmt.Sprintf("ids of %d bytes are counted as %d", live, set.live)
		}
	}
	for id, c := range o.coldListed.tasks {
		if _, twice := o.cold.tasks[id]; twice {
			return fmt.Sprintf("%q is cold twice", id)
		}
		listed += int(c.bytes)
	}
	got := [...]int{int(o.ids), o.bytes, o.hotBytes, s.changedBytes}
	if want := [...]int{int(ids), bytes, hot, listed}; got != want {
		return fmt.Sprintf("counted (ids, bytes, hot, changed) %d, there are %d", got, want)
	}
	return ""
}

// opened makes an open task that Pebble has in its current state.
func opened(o *openTasks, id string, bytes int) *entry {
	en := &entry{task: &events.Task{ID: id, State: events.StateProcessing}, stored: true, open: true, bytes: bytes}
	o.hot[id] = en
	o.ids += events.IDSum(id)
	o.bytes, o.hotBytes = o.bytes+bytes, o.hotBytes+bytes
	o.addToClock(en)
	return en
}

func TestReferencedTasksStayInMemory(t *testing.T) {
	o := newOpenTasks()
	for i := range 10 {
		opened(&o, fmt.Sprint("t", i), 100)
	}
	o.hot["t0"].referenced = true
	o.hot["t1"].changed = true
	o.shrink(500)
	for i, hot := range []bool{true, true, false, false, false, false, false, true, true, true} {
		if id := fmt.Sprint("t", i); (o.hot[id] != nil) != hot || !o.has(id) {
			t.Errorf("%s is hot: %v, want %v; known: %v", id, !hot, hot, o.has(id))
		}
	}
	o.shrink(0)
	if o.hotBytes != 100 || o.hot["t1"] == nil {
		t.Errorf("%d bytes are hot; only what changed may be", o.hotBytes)
	}
	if en := o.promote("t5"); en == nil || en.bytes != 100 || o.promote("t5") != nil || o.promote("nobody") != nil {
		t.Error("a cold task is to be had once")
	}
}

// TestMemoryOfRemovedTasksIsFreed checks that removed tasks leave no memory behind, even if no bound is ever exceeded.
func TestMemoryOfRemovedTasksIsFreed(t *testing.T) {
	o := newOpenTasks()
	for i := range 100_000 {
		id := fmt.Sprintf("task-%08d", i)
		en := opened(&o, id, 100)
		o.shrink(1 << 40)
		o.evict(en)
		en.open = false // as if it had ended
		if i >= 10 {
			id := fmt.Sprintf("task-%08d", i-10)
			if o.promote(id) == nil {
				t.Fatalf("%s is gone", id)
			}
			delete(o.hot, id)
		}
	}
	if n := len(o.clock); n > 3*clockCompactMin {
		t.Errorf("%d turns are kept, of %d tasks", n, o.len())
	}
	if o.len() != 10 || o.cold.dead > 20*idBlockBytes {
		t.Errorf("%d tasks, and %d bytes of ids of others", o.len(), o.cold.dead)
	}
}

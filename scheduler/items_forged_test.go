package scheduler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// TestForgedItems changes what a scheduler wrote of items, and checks that package verify finds it. The events are sealed
// again, so only the checks of items can find it.
func TestForgedItems(t *testing.T) {
	for name, forge := range map[string]func(events.Fact){
		"another output": func(f events.Fact) { ended(f, 1, func(f *events.ItemEnded) { f.Output = json.RawMessage(`{"n":7}`) }) },
		"another item":   func(f events.Fact) { ended(f, 1, func(f *events.ItemEnded) { f.Item = 0 }) },
		"an error": func(f events.Fact) {
			ended(f, 0, func(f *events.ItemEnded) { f.Output, f.Error = nil, &events.Error{Code: "gone"} })
		},
		"the order of undo":   withdrawnFirst(0),
		"an undo that failed": withdrawnFirst(4),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t, pickEach)
			f.submit("o", "pick", `{"items":["a","b","c"]}`)
			f.command("o", events.UndoTask, func(x *events.Control) { x.Processed = true })
			f.verified()
			c := verify.New(verify.Options{Partitions: 1, Inputs: true, Keep: true, Whole: true})
			for i := range f.inbox {
				c.Input(&f.inbox[i])
			}
			prev := map[string]*events.Task{}
			for i := range f.log {
				r := f.log[i]
				e, err := events.DecodeEvent(&r)
				if err != nil {
					t.Fatal(err)
				}
				if e.Task == "o" {
					forge(e.Fact)
				}
				r = resealed(e, prev, &r)
				c.Event(&r)
			}
			found := false
			for _, fault := range c.Finish(f.env.Now).Faults {
				found = found || fault.Promise == "P26" || strings.Contains(fault.What, "can't be folded") || fault.Promise == "P2" || fault.Promise == "P10"
			}
			if !found {
				t.Error("nothing is found")
			}
		})
	}
}

func ended(f events.Fact, item int, change func(*events.ItemEnded)) {
	if x, ok := f.(*events.ItemEnded); ok && x.Item == item {
		change(x)
	}
}

func withdrawnFirst(item int) func(events.Fact) {
	first := true
	return func(f events.Fact) {
		if x, ok := f.(*events.ItemsWithdrawn); ok && first {
			x.Items[0], first = item, false
		}
	}
}

// resealed returns the record of a changed event, with the hashes that it needs.
func resealed(e *events.Event, prev map[string]*events.Task, r *events.Record) events.Record {
	t := prev[e.Task]
	if t != nil {
		e.Prev = t.Prev
	}
	value := e.Seal(t)
	if e.Task != "" {
		if next, err := events.Evolve(t, e, events.Hash(e.Fact.Type(), value)); err == nil {
			prev[e.Task] = next
		} else if t != nil {
			t.Prev = events.Hash(e.Fact.Type(), value)
		}
	}
	forged := e.Record(events.DefaultNamespace, "test", 0, value)
	forged.Offset, forged.Time = r.Offset, r.Time
	return forged
}

// TestOutlivingChildrenAreFound leaves out what happened to a child, or to the task of an item, after it came to a state. Its
// parent is undone. All other events are as they were written, so only a look at both tasks can find it (P25).
func TestOutlivingChildrenAreFound(t *testing.T) {
	const both = `
workflow: both
version: 1
complete_within: 1h
defaults: {complete_within: 10s}
steps:
  each: {for_each: "${ [1, 2] }", agent: stock, operation: pick, undo: {operation: put_back}}
  child: {needs: [each], workflow: booking}
  end: {needs: [child], agent: stock, operation: end}
`
	const booking = `
workflow: booking
version: 1
complete_within: 1h
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve, undo: {operation: release}}
`
	for _, x := range []struct {
		child string
		last  events.TaskState
	}{
		{"", ""}, {"o/each/0", events.StateProcessed}, {"o/each/0", events.StateProcessing}, {"o/child", events.StateProcessed}, {"o/child", events.StateProcessing},
	} {
		t.Run(x.child+" "+string(x.last), func(t *testing.T) {
			f := newFamily(t, both, booking)
			f.agent = refuse("end", "")
			if task := f.submit("o", "both", `{}`); task.State != events.StateUndone {
				t.Fatalf("%s with %v", task.State, task.Error)
			}
			f.env.Now = f.env.Now.Add(time.Hour)
			f.submit("later", "booking", `{}`)
			f.verified()
			c := verify.New(verify.Options{Partitions: 1, Keep: true, Whole: true})
			left := false
			for i := range f.log {
				of := string(f.log[i].Key)
				if left && of == x.child {
					continue
				}
				c.Event(&f.log[i])
				left = left || x.child != "" && of == x.child && c.Task(x.child).State == x.last
			}
			found := ""
			for _, fault := range c.Finish(f.env.Now).Faults {
				if fault.Promise == "P25" {
					found += fault.Task
				}
			}
			if found != x.child {
				t.Errorf("P25 is broken by %q", found)
			}
		})
	}
}

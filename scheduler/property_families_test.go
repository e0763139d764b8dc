package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
)

// familyDefinitions are a workflow with items, a child, and a child for each of some items, which have items themselves.
var familyDefinitions = []string{`
workflow: whole
version: 1
complete_within: 1h
on_error: ERROR
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  each:
    for_each: "${ input.items }"
    max_parallel: 2
    on_item_error: ITEMS
    agent: stock
    operation: pick
    input: {sku: "${ item }"}
    undo: {operation: put_back}
  child: {workflow: part, input: {items: "${ input.items }"}}
  children: {needs: [each], for_each: "${ input.items }", workflow: part, on_item_error: ITEMS, input: {items: ["${ item }"]}}
  last: {needs: [child, children], agent: stock, operation: ship, undo: {operation: recall}}
output: "${ steps.each.output }"
`, `
workflow: part
version: 1
complete_within: 1h
on_error: ERROR
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  each: {for_each: "${ input.items }", agent: stock, operation: pick, input: {sku: "${ item }"}, undo: {operation: put_back}}
  pay: {needs: [each], agent: stock, operation: pay, undo: {operation: refund}}
output: "${ steps.each.output }"
`}

// TestRandomFamilies runs trees of tasks whose agents fail and are silent, while operators cancel, undo and resubmit any task
// of the tree. Then all agents work, and each task must end. The log keeps all promises.
func TestRandomFamilies(t *testing.T) {
	first := uint64(firstSeed)
	if *seedFlag != 0 {
		first = *seedFlag
	}
	for n := range uint64(suite.Of(t, 40, 200)) {
		t.Run(fmt.Sprint("seed=", first+n), func(t *testing.T) { randomFamily(t, newDice(first+n)) })
		if t.Failed() {
			return
		}
	}
}

func randomFamily(t *testing.T, d dice) {
	var definitions []string
	for _, text := range familyDefinitions {
		text = strings.ReplaceAll(text, "ITEMS", pick(d, []string{"fail", "collect"}))
		definitions = append(definitions, strings.ReplaceAll(text, "ERROR", pick(d, []string{"undo", "hold"})))
	}
	f := newFamily(t, definitions...)
	faults := d.between(0, 3)
	f.agent = func(_, _ string, value json.RawMessage) (events.Outcome, string) {
		switch n := d.IntN(20); {
		case n < faults:
			return events.Rejected, `{"code":"gone"}`
		case n < 2*faults:
			return "", ""
		}
		return events.Completed, `{}`
	}
	f.input(&events.Submission{ID: "o", Workflow: "whole", Input: json.RawMessage(fmt.Sprintf(`{"items":%s}`, pick(d, []string{"[]", "[1]", "[1,2]", "[1,2,3,4,5]"})))})
	for range d.between(1, 6) {
		f.randomly(d)
		f.fire()
	}
	faults = 0
	for range 200 {
		f.run()
		open := slices.DeleteFunc(slices.Sorted(maps.Keys(f.tasks)), func(id string) bool { return !f.tasks[id].Open() })
		if len(open) == 0 {
			f.verified()
			return
		}
		for _, id := range open {
			if f.tasks[id].State == events.StateError {
				f.command(id, events.Resubmit)
			}
		}
		f.fire()
	}
	for id, task := range f.tasks {
		if task.Open() {
			t.Errorf("%s is %s", id, task.State)
		}
	}
}

// randomly handles what is queued. Operators send commands meanwhile, and replies are repeated.
func (f *family) randomly(d dice) {
	for len(f.queue) > 0 {
		if d.oneIn(25) {
			x := &events.Control{Task: pick(d, slices.Sorted(maps.Keys(f.tasks))), Command: pick(d, []events.Command{events.Cancel, events.UndoTask, events.Resubmit}), By: events.By{RequestID: fmt.Sprint(f.offset)}}
			x.Keep, x.Processed = x.Command == events.Cancel && d.coin(), x.Command == events.UndoTask && d.coin()
			if t := f.tasks[x.Task]; t != nil && (t.Open() || !x.Processed) { // the undo of a processed task needs its history
				f.input(x)
			}
		}
		r := f.queue[0]
		f.queue = f.queue[1:]
		switch {
		case r.Topic == f.env.Namespace.Inbox(events.Tasks), r.Topic == f.env.Namespace.Inbox(events.Replies):
			if f.decide(r); r.Topic == f.env.Namespace.Inbox(events.Replies) && d.oneIn(10) {
				f.decide(r)
			}
		case strings.HasPrefix(r.Topic, f.env.Namespace.Requests("")):
			f.answer(&r)
		}
	}
}

// fire lets a minute pass, and asks for what is due.
func (f *family) fire() {
	f.env.Now = f.env.Now.Add(time.Minute)
	for _, id := range slices.Sorted(maps.Keys(f.tasks)) {
		for _, a := range f.tasks[id].Timers().Armed {
			if a.Timer.Due.After(f.env.Now) {
				continue
			}
			f.input(a.Recovery(id, a.Policy.Next(id, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, f.env.Now)))
		}
	}
}

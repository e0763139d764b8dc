package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// relatives is a history of several tasks: t is the parent of the others.
type relatives struct {
	*history
	states map[string]*events.Task
}

// of goes on with another task.
func (x *relatives) of(id string) *history {
	x.states[x.id] = x.state
	x.id, x.state = id, x.states[id]
	return x.history
}

// child submits and starts a child of a step of t. It runs the steps a, b and c.
func (x *relatives) child(id, step string, item *int) { x.submitted(id, step, item, item) }

// submitted is child with an event that may name another item than the submission.
func (x *relatives) submitted(id, step string, item, received *int) {
	h := x.of(id)
	h.steps = nil
	s := &events.Submission{ID: id, Workflow: "w", Input: []byte("{}"), Parent: &events.Parent{Task: "t", Step: step, Attempt: 1, Token: token, Depth: 1, Item: item}}
	h.input(s.Record(ns, "test"))
	parent := *s.Parent
	parent.Item = received
	h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), Parent: &parent})
	h.add(&events.TaskStarted{}).add(do("a", 1)).add(do("b", 1)).add(do("c", 1)).later(time.Millisecond)
}

// withdrawn withdraws a child. All of its steps complete first, so they are undone.
func (x *relatives) withdrawn(id, step string, item *int) {
	h := x.of(id)
	started := events.RequestRef{Step: step, Kind: events.Do, Attempt: 1}
	w := &events.Withdrawal{Task: id, Parent: "t", Ref: events.RequestRef{Step: step, Kind: events.Undo, Attempt: 1}, Token: token,
		Started: events.TokenHash("t", started, token), Item: item}
	undoing := *withdrawnUndo
	h.later(time.Millisecond).input(w.Record(ns, "test")).add(&undoing).add(&events.TaskWithdrawn{UndoAttempt: 1, Token: token})
	for _, s := range []string{"a", "b", "c"} {
		h.completes(s, events.Do)
	}
	for i, s := range []string{"c", "b", "a"} {
		if h.add(undo(s, 1)).completes(s, events.Undo); i == 2 {
			h.add(&events.TaskCancelled{})
		}
	}
}

// processes completes a child.
func (x *relatives) processes(id string) {
	x.of(id).completes("a", events.Do).completes("b", events.Do).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("{}")})
}

// undoing decides to undo t, because its step c is rejected.
func (x *relatives) undoing() *history {
	h := x.of("t").later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
	return h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failureOf("c")})
}

// undone undoes t, whose children a and b have ended.
func (x *relatives) undone() {
	h := x.undoing().add(withdraws("a")).add(withdraws("b"))
	childEnds(childEnds(h, "a", events.Undo), "b", events.Undo).add(&events.TaskUndone{})
}

// itemsAreUndone undoes t, whose step a has two items that ran.
func (x *relatives) itemsAreUndone() {
	h := x.undoing()
	h.completes("b", events.Do)
	h.add(&events.ItemsUndoStarted{Step: "a", Attempt: 1, Token: token}).add(&events.ItemsWithdrawn{Step: "a", Items: []int{0, 1}})
	itemReplies(h, 0, events.Undo, events.Completed).add(&events.ItemUndone{Step: "a", Item: 0})
	itemReplies(h, 1, events.Undo, events.Completed).add(&events.ItemUndone{Step: "a", Item: 1}).add(&events.ItemsUndone{Step: "a", Attempt: 1})
	h.add(undo("b", 1)).completes("b", events.Undo).add(&events.TaskUndone{})
}

// after is an event of another task, so much later that all that was decided before must be in the log.
func (x *relatives) after() {
	h := x.of("z").later(2 * clockSkew)
	h.steps = nil
	h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1))
}

// TestFamilies checks what becomes of a child against what becomes of its parent, in the logs of both (P25, P26).
func TestFamilies(t *testing.T) {
	first, second := 0, 1
	withParent := func(play func(x *relatives)) func(*history) {
		return func(h *history) {
			play(&relatives{withChildren(h), map[string]*events.Task{}})
		}
	}
	withList := func(play func(x *relatives)) func(*history) {
		return func(h *history) {
			x := &relatives{withItems(h), map[string]*events.Task{}}
			x.child("t/a/0", "a", &first)
			play(x)
		}
	}
	holds(t, Options{Requests: true, Deadletters: true}, []played{
		{"a child is undone with its parent", "", withParent(func(x *relatives) {
			x.child("t/a", "a", nil)
			x.withdrawn("t/a", "a", nil)
			x.undone()
			x.after()
		})},
		{"a child works on, and its parent may be undone in what isn't read yet", "", withParent(func(x *relatives) {
			x.child("t/a", "a", nil)
			x.undone()
		})},
		{"P25: a child works on after the undo of its parent", "P25", withParent(func(x *relatives) {
			x.child("t/a", "a", nil)
			x.undone()
			x.after()
		})},
		{"P25: a child is processed, and its parent is undone", "P25", withParent(func(x *relatives) {
			x.child("t/a", "a", nil)
			x.processes("t/a")
			x.undone()
			x.after()
		})},
		{"P25: a child that its parent didn't start", "P25", withParent(func(x *relatives) { x.child("t/x", "a", nil) })},
		{"items are undone with their parent", "", withList(func(x *relatives) {
			x.withdrawn("t/a/0", "a", &first)
			x.itemsAreUndone()
			x.after()
		})},
		{"the parent of items is itself a child", "", func(h *history) {
			h.steps = itemSteps
			p := &events.Parent{Task: "p", Step: "s", Attempt: 1, Token: token, Depth: 1}
			s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}"), Parent: p}
			h.input(s.Record(ns, "test"))
			h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(), Parent: p}).add(&events.TaskStarted{})
			h.add(&events.ItemsBegan{Step: "a", Attempt: 1, Count: 1, Items: []byte("[1]"), Token: token}).add(&events.ItemsStarted{Step: "a", Attempt: 1, To: 1})
			x := &relatives{h.add(do("b", 1)).add(do("c", 1)), map[string]*events.Task{}}
			x.child("t/a/0", "a", &first)
		}},
		{"P25: an item works on after the undo of its parent", "P25", withList(func(x *relatives) {
			x.itemsAreUndone()
			x.after()
		})},
		{"P25: an item is processed, and its parent is undone", "P25", withList(func(x *relatives) {
			x.processes("t/a/0")
			x.itemsAreUndone()
			x.after()
		})},
		{"P10: a child of another item than its submission says", "P10", withList(func(x *relatives) {
			x.submitted("t/a/1", "a", &second, &first)
		})},
		{"P10: a child, and its submission is nobody's", "P10", withParent(func(x *relatives) {
			h := x.of("t/a")
			h.steps = nil
			s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test"))
			h.add(&events.TaskReceived{Workflow: "w", Version: 1, Input: s.Input, Plan: h.plan(), Digest: s.Digest(),
				Parent: &events.Parent{Task: "t", Step: "a", Attempt: 1, Token: token, Depth: 1}})
			h.add(&events.TaskStarted{}).add(do("a", 1)).add(do("b", 1)).add(do("c", 1))
		})},
		{"P26: an item with two tasks", "P26", withList(func(x *relatives) {
			x.child("t/a/1", "a", &second)
			x.child("t/a/9", "a", &first)
		})},
		{"P26: a child of the step, and of none of its items", "P26", withList(func(x *relatives) { x.child("t/a/x", "a", nil) })},
	})
}

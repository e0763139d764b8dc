package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// itemSteps makes the step a run for each item of a list. The others stay calls.
func itemSteps(steps []events.PlanStep) {
	steps[0] = events.PlanStep{ID: "a", StepKind: events.ItemsStep, Items: &events.PlanItems{Parallel: 2, Undoes: true}, Undo: &events.PlanUndo{}}
}

// withItems is a task whose step a runs two of three items.
func withItems(h *history) *history {
	h.steps = itemSteps
	h.submit().add(&events.ItemsBegan{Step: "a", Attempt: 1, Count: 3, Items: []byte("[1,2,3]"), Token: token})
	return h.add(&events.ItemsStarted{Step: "a", Attempt: 1, From: 0, To: 2}).add(do("b", 1)).add(do("c", 1))
}

// itemReplies writes a reply of an item's task. Its event follows.
func itemReplies(h *history, item int, k events.Kind, o events.Outcome) *history {
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: k, Attempt: 1}, Token: token, Outcome: o, Body: empty.Body, Item: &item}
	return h.later(time.Millisecond).input(p.Record(ns, "scheduler"))
}

func itemEnds(h *history, item int) *history {
	return itemReplies(h, item, events.Do, events.Completed).add(&events.ItemEnded{Step: "a", Item: item, Output: []byte("{}")})
}

// itemsEnd is a task whose items have ended: the second one, the first one, the third one.
func itemsEnd(h *history) *history {
	withItems(h)
	itemReplies(h, 0, events.Do, events.Held).add(&events.ItemHeld{Kind: events.Do, Step: "a", Error: empty.Failure()})
	itemReplies(h, 0, events.Do, events.Resumed).add(&events.ItemResumed{Kind: events.Do, Step: "a"})
	itemEnds(h, 1).add(&events.ItemsStarted{Step: "a", Attempt: 1, From: 2, To: 3})
	itemEnds(h, 0)
	return itemEnds(h, 2).add(&events.ItemsCompleted{Step: "a", Attempt: 1})
}

// itemsUndone is a task whose items are undone after they completed.
func itemsUndone(h *history, first ...int) *history {
	itemsEnd(h).completes("b", events.Do).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
	h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: failureOf("c")}).add(undo("b", 1)).completes("b", events.Undo)
	h.add(&events.ItemsUndoStarted{Step: "a", Attempt: 1, Token: token}).add(&events.ItemsWithdrawn{Step: "a", Items: first})
	itemReplies(h, 2, events.Undo, events.Held).add(&events.ItemHeld{Kind: events.Undo, Step: "a", Item: 2, Error: empty.Failure()})
	itemReplies(h, 2, events.Undo, events.Resumed).add(&events.ItemResumed{Kind: events.Undo, Step: "a", Item: 2})
	itemReplies(h, 2, events.Undo, events.Completed).add(&events.ItemUndone{Step: "a", Item: 2})
	return h.add(&events.ItemsWithdrawn{Step: "a", Items: []int{1}})
}

// itemHistories are unbroken histories with all facts of items.
var itemHistories = map[string]func(*history){
	"items": func(h *history) {
		itemsEnd(h).completes("b", events.Do).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
	},
	"items that are undone": func(h *history) {
		itemsUndone(h, 2, 0)
		itemReplies(h, 0, events.Undo, events.Completed).add(&events.ItemUndone{Step: "a", Item: 0})
		itemReplies(h, 1, events.Undo, events.Completed).add(&events.ItemUndone{Step: "a", Item: 1}).add(&events.ItemsUndone{Step: "a", Attempt: 1})
		h.add(&events.TaskUndone{})
	},
	"an item that fails": func(h *history) {
		withItems(h.holding())
		itemReplies(h, 0, events.Do, events.Rejected).add(&events.ItemEnded{Step: "a", Error: empty.Failure()}).
			add(&events.RunErrored{Kind: events.Do, Step: "a", Error: empty.Failure()}).add(&events.TaskHeld{Error: failureOf("a")})
		itemEnds(h, 1)
	},
}

// repeatExhausted is the error of an item whose calls didn't end its repeat.
var repeatExhausted = &events.Error{Code: events.CodeRepeatExhausted, Message: "no more"}

// TestItems checks P26 and the other promises as they apply to items.
func TestItems(t *testing.T) {
	var all []played
	for name, play := range itemHistories {
		all = append(all, played{name, "", play})
	}
	holds(t, Options{Requests: true, Deadletters: true}, append(all, []played{
		{"the repeat of an item is exhausted", "", func(h *history) {
			withItems(h.holding())
			p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Rejected, Body: repeatExhausted.JSON(), Item: new(int)}
			failed := *repeatExhausted
			failed.Step = "a"
			h.later(time.Millisecond).input(p.Record(ns, "scheduler")).add(&events.ItemEnded{Step: "a", Error: repeatExhausted}).
				add(&events.RunErrored{Kind: events.Do, Step: "a", Error: repeatExhausted}).add(&events.TaskHeld{Error: &failed})
		}},
		{"P26: a result that no reply led to", "P26", func(h *history) {
			itemEnds(withItems(h), 0).add(&events.ItemEnded{Step: "a", Item: 1, Output: []byte("{}")})
		}},
		{"P26: the result of another item", "P26", func(h *history) {
			itemReplies(withItems(h), 0, events.Do, events.Completed).add(&events.ItemEnded{Step: "a", Item: 1, Output: []byte("{}")})
		}},
		{"P26: another output", "P26", func(h *history) {
			itemReplies(withItems(h), 0, events.Do, events.Completed).add(&events.ItemEnded{Step: "a", Item: 0, Output: []byte("1")})
		}},
		{"P26: a result that counts twice", "P26", func(h *history) {
			itemEnds(withItems(h), 0)
			itemReplies(h, 0, events.Do, events.Completed)
			h.raw(h.event(&events.ItemEnded{Step: "a", Item: 0, Output: []byte("{}")}))
		}},
		{"P26: an item that starts twice", "P26", func(h *history) {
			itemEnds(withItems(h), 0)
			h.raw(h.event(&events.ItemsStarted{Step: "a", Attempt: 1, From: 0, To: 1}))
		}},
		{"P26: too many items run", "P26", func(h *history) {
			withItems(h).add(&events.ItemsStarted{Step: "a", Attempt: 1, From: 2, To: 3})
		}},
		{"P26: completed before all items have ended", "P26", func(h *history) {
			itemEnds(withItems(h), 0)
			h.raw(h.event(&events.ItemsCompleted{Step: "a", Attempt: 1}))
		}},
		{"P26: undone in the order of completion", "P26", func(h *history) { itemsUndone(h, 1, 2) }},
		{"P26: undone before its items", "P26", func(h *history) {
			h.raw(itemsUndone(h, 2, 0).event(&events.ItemsUndone{Step: "a", Attempt: 1}))
		}},
		{"P18: a result without the token", "P18", func(h *history) {
			h.steps = itemSteps
			h.submit().add(&events.ItemsBegan{Step: "a", Attempt: 1, Count: 1, Items: []byte("[1]"), Token: "another"}).add(&events.ItemsStarted{Step: "a", Attempt: 1, To: 1})
			itemEnds(h.add(do("b", 1)).add(do("c", 1)), 0)
		}},
	}...))
}

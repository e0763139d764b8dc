package verify

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// refunded is a processed task whose undo an operator asked for. change changes the state in the event; nil: nothing.
func refunded(h *history, change func(*events.Task)) *history {
	h.processed().control(&events.Control{Command: events.UndoTask, Processed: true})
	return h.reopened(change)
}

// reopened adds the event that undoes the processed task.
func (h *history) reopened(change func(*events.Task)) *history {
	whole := h.state.Clone()
	if change != nil {
		change(whole)
	}
	e := h.event(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone, Processed: whole.Encode()})
	r := h.raw(e)
	h.state, _ = events.Evolve(h.state, e, events.Hash(e.Fact.Type(), r.Value))
	return h
}

// takenBack undoes the steps in the reverse order of their completion.
func (h *history) takenBack() *history {
	for _, id := range []string{"c", "b", "a"} {
		h.add(undo(id, 1)).completes(id, events.Undo)
	}
	return h.add(&events.TaskUndone{})
}

// TestProcessedTasksAreUndone checks the undo of a processed task: an operator asked for it, the event has the task as
// its events came to, and everything is undone (P2, P6, P10).
func TestProcessedTasksAreUndone(t *testing.T) {
	refund := &events.Control{Command: events.UndoTask, Processed: true}
	step := func(i int, change func(*events.Step)) func(*events.Task) {
		return func(t *events.Task) { change(t.OwnStep(i)) }
	}
	for _, keep := range []bool{false, true} {
		o := Options{Requests: true, Ledger: true, Whole: true, Keep: keep}
		holds(t, o, []played{
			{"a processed task is undone", "", func(h *history) { refunded(h, nil).takenBack() }},
			{"a task that is still undone", "", func(h *history) { refunded(h, nil).add(undo("c", 1)) }},
			{"two tasks, one after another", "", func(h *history) {
				refunded(h, nil).takenBack()
				h.id, h.state = "t2", nil
				h.submit().add(do("a", 1))
			}},

			{"P10: with a command that doesn't say so", "P10", func(h *history) {
				h.processed().control(&events.Control{Command: events.UndoTask}).reopened(nil)
			}},
			{"P2: without a command", "P2", func(h *history) {
				h.processed().control(refund)
				h.raw(h.event(&events.TaskUndoing{Ending: events.StateUndone, Processed: h.state.Encode()}))
			}},
			{"P2: without the state", "P2", func(h *history) {
				h.processed().control(refund)
				h.raw(h.event(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone}))
			}},
			{"P2: a step without which it would have kept its effect", "P2", func(h *history) {
				refunded(h, step(1, func(s *events.Step) { s.State, s.CompletedSeq = events.StepSkipped, 0 }))
			}},
			{"P2: another order", "P2", func(h *history) { refunded(h, step(0, func(s *events.Step) { s.CompletedSeq = 99 })) }},
			{"P2: another key", "P2", func(h *history) { refunded(h, step(0, func(s *events.Step) { s.Key += "x" })) }},
			{"P2: another attempt", "P2", func(h *history) { refunded(h, step(0, func(s *events.Step) { s.Attempt++ })) }},
			{"P2: another output", "P2", func(h *history) { refunded(h, step(2, func(s *events.Step) { s.Output = []byte(`{"n":1}`) })) }},
			{"P2: another input", "P2", func(h *history) { refunded(h, step(2, func(s *events.Step) { s.Input = []byte(`{"n":1}`) })) }},
			{"P2: another input of the task", "P2", func(h *history) { refunded(h, func(t *events.Task) { t.Input = []byte(`{"n":1}`) }) }},
			{"P2: another task", "P2", func(h *history) { refunded(h, func(t *events.Task) { t.ID = "t2" }) }},
			{"P2: another event before", "P2", func(h *history) { refunded(h, func(t *events.Task) { t.Prev = "AAAAAAAAAAAAAAAAAAAAAA" }) }},
			{"P2: undone twice", "P2", func(h *history) {
				refunded(h, nil).takenBack().control(refund)
				h.raw(h.event(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone, Processed: h.state.Encode()}))
			}},
			{"P2: processed again", "P2", func(h *history) { h.processed(); h.raw(h.event(&events.TaskProcessed{})) }},
			{"P6: undone without the undo of a step", "P6", func(h *history) {
				refunded(h, nil).add(undo("c", 1)).completes("c", events.Undo).add(undo("b", 1)).completes("b", events.Undo)
				h.raw(h.event(&events.TaskUndone{}))
			}},
			{"P6: in another order", "P6", func(h *history) { refunded(h, nil).add(undo("a", 1)) }},
			{"P7: an undo with the key of another", "P7", func(h *history) {
				f := undo("c", 1)
				f.Key = key("b", events.Undo)
				refunded(h, nil).add(f)
			}},
		})
	}
}

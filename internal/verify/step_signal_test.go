package verify

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// signalSteps makes steps a and b wait for the signal "yes", for 10 s.
func signalSteps(steps []events.PlanStep) {
	for i := range 2 {
		steps[i] = events.PlanStep{ID: steps[i].ID, StepKind: events.SignalStep, Signal: "yes", Attempts: events.Attempts{CompleteWithin: 10 * time.Second}}
	}
}

// startedSignals is a task whose steps a and b wait for the signal "yes". Step c is a call. a has waited longer.
func startedSignals(h *history) *history {
	h.steps = signalSteps
	return h.submit().add(awaits("a")).later(time.Millisecond).add(awaits("b")).add(do("c", 1))
}

func awaits(step string) *events.SignalStarted {
	return &events.SignalStarted{Step: step, Attempt: 1, Signal: "yes"}
}

// sent writes a signal to the inbox.
func sent(h *history, id string) *history {
	h.later(10 * time.Millisecond)
	return h.input((&events.Signal{Task: h.id, Name: "yes", ID: id, Data: []byte(`{"n":1}`), By: "ada"}).Record(ns, "test"))
}

// signalled writes a signal and its event.
func signalled(h *history, id string) *history { return sent(h, id).add(received(id)) }

func received(id string) *events.TaskSignalled {
	return &events.TaskSignalled{Name: "yes", ID: id, By: "ada", Data: []byte(`{"n":1}`)}
}

func takes(h *history, step string, seq uint64) *history {
	return h.add(&events.SignalCompleted{Step: step, Attempt: 1, Received: seq})
}

// taken is a task whose steps have taken the signals of the ids 1 and 2.
func taken(h *history) *history {
	startedSignals(h)
	takes(signalled(h, "1"), "a", 6)
	return takes(signalled(h, "2"), "b", 8)
}

// early is a task that received two signals before its step a starts, after a resubmit.
func early(h *history) *history {
	h.steps = signalSteps
	h.holding().submit().add(awaits("a")).add(awaits("b")).add(do("c", 1))
	h.later(10*time.Second).recovery("a", events.Do, events.ActionFire).add(unsignalled("a")).add(&events.TaskHeld{Error: lateFor("a")})
	h.recovery("b", events.Do, events.ActionFire).add(unsignalled("b"))
	signalled(signalled(h, "1"), "2").control(&events.Control{Command: events.Resubmit})
	return h.add(&events.TaskResumed{By: events.By{RequestID: "request"}})
}

func unsignalled(step string) *events.RunErrored {
	return &events.RunErrored{Kind: events.Do, Step: step, Error: &events.Error{Code: events.CodeExpired}}
}

func lateFor(step string) *events.Error { return &events.Error{Code: events.CodeExpired, Step: step} }

func awaitsAgain(step string) *events.SignalStarted {
	return &events.SignalStarted{Step: step, Attempt: 2, Signal: "yes"}
}

func takesAgain(step string, seq uint64) *events.SignalCompleted {
	return &events.SignalCompleted{Step: step, Attempt: 2, Received: seq}
}

// TestSignals checks P20, a signal counts once, and the other promises as they apply to signals.
func TestSignals(t *testing.T) {
	holds(t, Options{Requests: true, Deadletters: true, LatestBy: 50 * time.Millisecond}, []played{
		{"each step takes a signal", "", func(h *history) {
			taken(h).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"a repeated signal leads to nothing", "", func(h *history) {
			startedSignals(h)
			takes(signalled(h, "1"), "a", 6)
			sent(h, "1")
			takes(signalled(h, "2"), "b", 8)
			sent(h, "1")
			h.completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"a signal that no step takes is a dead letter", "", func(h *history) {
			sent(taken(h), "3").deadletter(events.ReasonNotAwaited)
			h.completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"signals that came before the steps", "", func(h *history) {
			early(h).add(awaitsAgain("a")).add(takesAgain("a", 9)).add(awaitsAgain("b")).add(takesAgain("b", 10))
		}},

		{"P20: a signal counts twice", "P20", func(h *history) {
			startedSignals(h)
			takes(signalled(h, "1"), "a", 6)
			h.raw(sent(h, "1").event(received("1")))
		}},
		{"P20: a signal of nobody", "P20", func(h *history) {
			startedSignals(h).later(time.Millisecond).reply("c", events.Do, 1, events.Completed)
			h.raw(h.event(received("1")))
		}},
		{"P20: a step takes a signal that another took", "P20", func(h *history) {
			startedSignals(h)
			takes(signalled(h, "1"), "a", 6)
			sent(h, "2").add(received("2"))
			h.raw(h.event(&events.SignalCompleted{Step: "b", Attempt: 1, Received: 6}))
		}},
		{"P20: a step takes a signal that isn't there", "P20", func(h *history) {
			startedSignals(h)
			signalled(h, "1")
			h.raw(h.event(&events.SignalCompleted{Step: "a", Attempt: 1, Received: 5}))
		}},
		{"P20: a step completes, and no signal came", "P20", func(h *history) {
			startedSignals(h).later(time.Millisecond).reply("c", events.Do, 1, events.Completed)
			h.raw(h.event(&events.SignalCompleted{Step: "a", Attempt: 1, Received: 2}))
		}},
		{"P20: a step takes another's turn", "P20", func(h *history) {
			startedSignals(h)
			signalled(h, "1")
			h.raw(h.event(&events.SignalCompleted{Step: "b", Attempt: 1, Received: 6}))
		}},
		{"P20: a step takes a later signal", "P20", func(h *history) {
			early(h).add(awaitsAgain("a"))
			h.raw(h.event(takesAgain("a", 10)))
		}},
		{"P20: another signal than the one that was sent", "P20", func(h *history) {
			startedSignals(h)
			sent(h, "1").add(&events.TaskSignalled{Name: "yes", ID: "1", By: "eve", Data: []byte(`{"n":1}`)})
		}},
		{"P20: other data than what was sent", "P20", func(h *history) {
			startedSignals(h)
			sent(h, "1").add(&events.TaskSignalled{Name: "yes", ID: "1", By: "ada", Data: []byte(`{"n":2}`)})
		}},
		{"P20: a signal is lost", "P20", func(h *history) {
			startedSignals(h)
			sent(h, "1")
			takes(signalled(h, "2"), "a", 6)
			takes(signalled(h, "3"), "b", 8).completes("c", events.Do).add(&events.TaskProcessed{Output: []byte("null")})
		}},
		{"P10: a step waits on, and its signal is there", "P10", func(h *history) {
			startedSignals(h)
			signalled(h, "1").completes("c", events.Do)
		}},
		{"P10: a step starts to wait, and its signal is there", "P10", func(h *history) {
			early(h).add(awaitsAgain("a")).add(takesAgain("a", 9)).add(awaitsAgain("b"))
			signalled(h, "3")
		}},
		{"P5: a timer that isn't the end of the step's time", "P5", func(h *history) {
			h.steps = signalSteps
			e := h.submit().event(awaits("a"))
			e.Due = e.Due.Add(time.Second)
			h.raw(e)
		}},
		{"P16: a step gives up early", "P16", func(h *history) {
			startedSignals(h.holding()).later(9*time.Second).recovery("a", events.Do, events.ActionFire).add(unsignalled("a"))
		}},
		{"P5: a step that calls waits for a signal", "P5", func(h *history) {
			h.submit()
			h.raw(h.event(awaits("a")))
		}},
		{"P2: a signal after the decision to undo", "P2", func(h *history) {
			startedSignals(h).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected).add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1})
			err := *empty.Failure()
			err.Step = "c"
			h.add(&events.TaskUndoing{Ending: events.StateUndone, Error: &err}).add(&events.TaskUndone{})
			h.raw(sent(h, "1").event(received("1")))
		}},
	})
}

package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// heldOrder is an order that holds after a failure, with an approval at its end.
const heldOrder = `
workflow: order
version: 1
on_error: hold
complete_within: 10m
defaults: {complete_within: 1m}
steps:
  reserve: {agent: stock, operation: reserve, undo: {operation: free, retry: {max_attempts: 1}}}
  charge: {agent: bank, operation: charge, needs: [reserve]}
  approve: {needs: [charge], signal: approved, complete_within: 5m}
`

func heldAtCharge(t *testing.T) *history {
	h := recordOf(t, program(t, heldOrder))
	h.reply(1, "reserve", 1, events.Completed, `{"shelf":7}`)
	h.reply(2, "charge", 1, events.Rejected, `{"code":"declined"}`)
	return h
}

// undoReply answers the undo of a step.
func (h *history) undoReply(seconds float64, step string, o events.Outcome) {
	h.input(seconds, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: step, Kind: events.Undo, Attempt: 1}, Token: token, Outcome: o, Body: []byte(`{"code":"no"}`)})
}

// The commands say of each state what the scheduler then does.
func TestCommands(t *testing.T) {
	operator := events.By{Who: "olga", Why: "a test", RequestID: "r-1"}
	for _, tt := range []struct {
		name    string
		play    func(t *testing.T) *history
		allowed string // the allowed ones
	}{
		{"processing", func(t *testing.T) *history { return recordOf(t, program(t, heldOrder)) }, "cancel, cancel keep, undo, signal approved"},
		{"held", heldAtCharge, "cancel, cancel keep, resubmit, resubmit charge, undo, release charge as completed, release approve as completed, signal approved"},
		{"its undo is held", func(t *testing.T) *history {
			h := heldAtCharge(t)
			h.input(3, &events.Control{Task: "o-1", Command: events.UndoTask, By: operator})
			h.undoReply(5, "reserve", events.Rejected)
			return h
		}, "cancel keep, resubmit, resubmit reserve, resubmit charge, release reserve as undone"},
		{"being undone", func(t *testing.T) *history {
			h := heldAtCharge(t)
			h.input(3, &events.Control{Task: "o-1", Command: events.UndoTask, By: operator})
			return h
		}, ""},
		{"undone", failed, ""},
		{"processed", func(t *testing.T) *history {
			h := heldAtCharge(t)
			h.input(3, &events.Control{Task: "o-1", Command: events.Release, Step: "charge", As: events.StepCompleted, Output: []byte("1"), By: operator})
			h.input(4, &events.Signal{Task: "o-1", Name: "approved", ID: "s-1"})
			return h
		}, "undo processed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.play(t)
			var allowed []string
			verbs := map[events.Command]bool{}
			for _, c := range replay.Commands(h.task, nil, h.env.Now) {
				name := describeCheck(&c)
				if c.Why == "" {
					allowed = append(allowed, name)
				}
				if c.Control != nil {
					verbs[c.Control.Command] = true
				}
				if decided := h.accepts(&c); decided != (c.Why == "") {
					t.Errorf("%s: the scheduler accepts it: %v, but the commands say %q", name, decided, c.Why)
				}
			}
			if got := strings.Join(allowed, ", "); got != tt.allowed {
				t.Errorf("%s: allowed are %q, want %q", h.task.State, got, tt.allowed)
			}
			for _, c := range events.Commands {
				if !verbs[c] {
					t.Errorf("%s isn't listed", c)
				}
			}
		})
	}
}

// A task whose id is forgotten isn't known to schedulers: they refuse every command.
func TestCommandsOfAForgottenTask(t *testing.T) {
	h := recordOf(t, program(t, heldOrder))
	h.input(1, &events.Control{Task: "o-1", Command: events.Cancel, By: events.By{Who: "olga", Why: "a test", RequestID: "r-1"}})
	h.task.ForgetAt = h.env.Now
	for _, c := range replay.Commands(h.task, nil, h.env.Now) {
		if !strings.Contains(c.Why, "forgotten") {
			t.Errorf("%s: %q", describeCheck(&c), c.Why)
		}
	}
}

func describeCheck(c *replay.CommandCheck) string {
	x := c.Control
	if x == nil {
		return "signal " + c.Signal
	}
	name := string(x.Command)
	if x.Keep {
		name += " keep"
	}
	if x.Processed {
		name += " processed"
	}
	if x.Step != "" {
		name += " " + x.Step
	}
	if x.As != "" {
		name += fmt.Sprintf(" as %s", x.As)
	}
	return name
}

// accepts reports whether the scheduler accepts a command or a signal in the task's present state.
func (h *history) accepts(c *replay.CommandCheck) bool {
	var in events.Input
	if x := c.Control; x != nil {
		given := *x
		given.By, given.ID = events.By{Who: "olga", Why: "a test", RequestID: "r-2"}, "r-2"
		if given.As == events.StepCompleted {
			given.Output = []byte("null")
		}
		in = &given
	} else {
		in = &events.Signal{Task: h.task.ID, Name: c.Signal, ID: "another"}
	}
	d := scheduler.Decide(h.task.Clone(), in, events.Cause{Inbox: inboxOf(in), Offset: h.offset}, &h.env)
	if len(d.Events) == 0 && d.Unusable == nil && d.Ignored != scheduler.IgnoredRefusedControl {
		h.t.Errorf("%+v: neither accepted nor refused: %+v", in, d)
	}
	return len(d.Events) > 0
}

package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The log is compared with the inboxes, the dead letters and the requests.
func TestInputsAndWhatTheyLedTo(t *testing.T) {
	holds(t, whole, []played{
		{"inputs that came before the log's start aren't known", "", func(h *history) {
			h.mute = true
			h.submit()
			h.add(do("a", 1)).completes("a", events.Do)
		}},
		{"a late recovery and a second reply led to nothing", "", func(h *history) {
			h.submit().add(do("a", 1)).completes("a", events.Do).reply("a", events.Do, 1, events.Failed)
			h.recovery("b", events.Do, events.ActionRetry)
		}},
		{"a cancel that keeps what completed", "", func(h *history) {
			h.twoDone().control(&events.Control{Command: events.Cancel, Keep: true})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateCancelled, Keep: true}).add(&events.TaskCancelled{})
		}},
		{"a cancel that leaves an undo that can't be done", "", func(h *history) { undoLeft(h, true) }},
		{"P6: undone, and one effect stays", "P6", func(h *history) { undoLeft(h, false) }},
		{"released by hand", "", releasedByHand},
		{"released as completed, what no attempt was sent for, and done by hand under its key", "", func(h *history) {
			releasedBeforeItBegan(h).c.Effect(Effect{Happened, key("c", events.Do)})
		}},
		{"P7: released as completed, and its key had two effects", "P7", func(h *history) {
			releasedBeforeItBegan(h).c.Effect(Effect{Happened, key("c", events.Do)})
			h.c.Effect(Effect{Happened, key("c", events.Do)})
		}},
		{"P7: released as completed, and its undo had an effect", "P7", func(h *history) {
			releasedBeforeItBegan(h).c.Effect(Effect{Happened, key("c", events.Undo)})
		}},
		{"P6: released as completed, done by hand, and left when the task was undone", "P6", func(h *history) {
			releasedThenUndone(h).add(&events.TaskUndone{})
		}},
		{"an undo released as undone, and nothing in the ledger", "", func(h *history) {
			undoReleased(h).add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
		}},
		{"an undo released as undone, and the operator had it done", "", func(h *history) {
			undoReleased(h).c.Effect(Effect{Undone, key("b", events.Do)})
			h.add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
		}},
		{"an undo that could not be sent, released as undone by who did it", "", func(h *history) {
			h.twoDone().undoing().later(time.Millisecond).add(&events.RunErrored{Kind: events.Undo, Step: "b"}).add(&events.TaskHeld{})
			h.released("b", events.StepUndone).c.Effect(Effect{Undone, key("b", events.Do)})
			h.add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
		}},
		{"P6: an undo released as undone, and that of another step didn't happen", "P6", func(h *history) {
			undoReleased(h).add(undo("a", 1)).later(time.Millisecond).reply("a", events.Undo, 1, events.Completed)
			h.add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}).add(&events.TaskUndone{})
		}},
		{"P6: an undo released as undone, and an effect after it was taken back", "P6", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1).control(&events.Control{Command: events.UndoTask})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
			h.add(undo("a", 1)).later(time.Millisecond).reply("a", events.Undo, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Undo, Step: "a", Attempt: 1}).add(&events.TaskHeld{})
			h.released("a", events.StepUndone).add(&events.TaskUndone{}).c.Effect(Effect{Undone, key("a", events.Do)})
			h.c.Effect(Effect{Happened, key("a", events.Do)})
		}},

		{"P3: another attempt than the reply's", "P3", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).reply("b", events.Do, 1, events.Completed)
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P3: another outcome than the reply's", "P3", func(h *history) {
			h.submit().add(do("a", 1)).reply("a", events.Do, 1, events.Failed)
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P4: the recovery is for another timer", "P4", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Second).recovery("b", events.Do, events.ActionWait)
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P4: the recovery is for the timer before", "P4", func(h *history) {
			h.submit().add(do("a", 1)).fails("a", events.Do, 1)
			stale := h.timer("a", events.Do).Seq
			h.waits("a", 1).add(do("a", 2)).later(time.Second)
			h.input((&events.Recovery{Task: "t", Timer: stale, Action: events.ActionHold, Step: "a", Kind: events.Do}).Record(ns, "s", 0))
			h.add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 2})
		}},
		{"P10: a cause is used twice", "P10", func(h *history) {
			h.submit().add(do("a", 1)).completes("a", events.Do)
			h.cause = events.Cause{Inbox: events.Tasks}
			h.add(do("b", 1))
		}},
		{"P10: a cause comes after a later one", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond)
			h.reply("a", events.Do, 1, events.Completed).reply("b", events.Do, 1, events.Failed)
			h.add(&events.AttemptFailed{Kind: events.Do, Step: "b", Attempt: 1})
			h.cause.Offset--
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P10: a cause in another partition", "P10", func(h *history) {
			h.submit()
			h.cause.Partition = 1
			h.write(h.event(do("a", 1)))
		}},
		{"P10: an input that isn't there", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1))
			h.mute = true
			h.reply("a", events.Do, 1, events.Failed).add(&events.AttemptFailed{Kind: events.Do, Step: "a", Attempt: 1})
			h.c.InputsRead(events.Replies, 0, 0, 1)
		}},
		{"P10: another submission under the id", "P10", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test"))
			s.Priority = 9
			h.receive(s)
		}},
		{"P10: an input of another task", "P10", func(h *history) {
			h.input((&events.Submission{ID: "u", Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
			h.receive(&events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")})
		}},
		{"P10: another command than was given", "P10", func(h *history) {
			h.twoDone().control(&events.Control{Command: events.Resubmit})
			h.add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
			h.add(undo("b", 1)).completes("b", events.Undo).add(undo("a", 1)).completes("a", events.Undo).add(&events.TaskUndone{})
		}},
		{"P10: a request is accepted twice", "P10", func(h *history) {
			h.holding().twoDone().add(do("c", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected)
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).add(&events.TaskHeld{})
			h.control(&events.Control{Command: events.Release, Step: "c", As: events.StepCompleted})
			h.add(&events.RunReleased{By: events.By{RequestID: "request"}, Step: "c", As: events.StepCompleted})
			h.control(&events.Control{Command: events.Resubmit}).add(&events.TaskResumed{By: events.By{RequestID: "request"}})
		}},
		{"inputs that are fed twice", "", func(h *history) {
			h.submit().add(do("a", 1)).completes("a", events.Do)
			for i := range h.fed {
				h.c.Input(&h.fed[i])
			}
		}},
		{"P10: a reply was passed over", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Completed)
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.completes("b", events.Do)
		}},
		{"P10: a reply was passed over, and its attempt expired", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Completed)
			h.completes("b", events.Do)
			h.at = h.timer("a", events.Do).Due
			h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"a reply that was decided after its attempt expired", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).completes("b", events.Do)
			h.at = h.timer("a", events.Do).Due
			h.reply("a", events.Do, 1, events.Completed)
			h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			h.c.Consumed(events.Replies, 0, h.inputs[events.Replies])
		}},
		{"P10: a submission was passed over", "P10", func(h *history) {
			h.input((&events.Submission{ID: "u", Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
			h.submit()
		}},
		{"an error that is cut in the middle of a character", "", func(h *history) {
			p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "c", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Rejected,
				Body: []byte(`"` + strings.Repeat("é", events.MaxErrorBytes) + `"`)}
			h.holding().twoDone().add(do("c", 1)).later(time.Millisecond).input(p.Record(ns, "agent"))
			h.add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1, Error: p.Failure()})
			held := *p.Failure()
			held.Step = "c"
			h.add(&events.TaskHeld{Error: &held})
		}},
		{"P10: a request without its attempt", "P10", func(h *history) {
			h.submit()
			h.request(do("a", 1), h.at.Add(time.Second))
		}},
		{"P10: a request twice", "P10", func(h *history) {
			h.submit().add(do("a", 1))
			h.request(do("a", 1), h.at.Add(time.Second))
		}},
		{"P10: a request with more time than its attempt", "P10", func(h *history) {
			h.o.Requests = false
			h.submit().add(do("a", 1))
			h.request(do("a", 1), h.at.Add(time.Minute))
		}},
		{"P10: an attempt without its request", "P10", func(h *history) {
			h.o.Requests = false
			h.submit().add(do("a", 1))
		}},
		{"P15: unreadable led to an event", "P15", func(h *history) {
			s := &events.Submission{ID: "t", Workflow: "w", Input: []byte("{}")}
			r := s.Record(ns, "test")
			r.Key = []byte("another")
			h.input(r)
			h.receive(s)
		}},
		{"P15: unreadable without a dead letter", "P15", func(h *history) {
			h.submit().add(do("a", 1)).input(events.Record{Topic: ns.Inbox(events.Replies), Value: []byte("{")})
			h.completes("a", events.Do)
		}},
		{"unreadable with a dead letter", "", func(h *history) {
			h.submit().add(do("a", 1)).input(events.Record{Topic: ns.Inbox(events.Replies), Value: []byte("{")})
			h.deadletter(events.ReasonBadJSON)
			h.completes("a", events.Do)
		}},
		{"P15: a reply to nobody's request, unseen", "P15", func(h *history) {
			h.input((&events.Reply{Task: "u", Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Failed}).Record(ns, "agent"))
			h.submit().add(do("a", 1)).completes("a", events.Do)
		}},
		{"P15: a dead letter that led to an event", "P15", func(h *history) {
			h.submit()
			h.deadletter(events.ReasonUnknownWorkflow)
		}},
		{"a dead letter of a workflow that was applied since, consumed again after the group's offsets expired", "", func(h *history) { consumedAgain(h, events.ReasonUnknownWorkflow, time.Hour, true) }},
		{"a dead letter of a task that an older build couldn't read", "", func(h *history) { consumedAgain(h, events.ReasonTaskStopped, time.Hour, true) }},
		{"P15: a dead letter that led to an event later, and nobody had restored the partition since", "P15 P15", func(h *history) { consumedAgain(h, events.ReasonUnknownWorkflow, time.Hour, false) }},
		{"P15: a dead letter that led to an event in the transaction that began with the claim", "P15 P15", func(h *history) { consumedAgain(h, events.ReasonUnknownWorkflow, 0, true) }},
		{"P15: a dead letter of what never becomes usable, that led to an event", "P15 P15", func(h *history) { consumedAgain(h, events.ReasonIDConflict, time.Hour, true) }},
		{"P15: a dead letter that was written again after its event", "P15", func(h *history) {
			consumedAgain(h, events.ReasonUnknownWorkflow, time.Hour, true)
			h.cause = events.Cause{Inbox: events.Tasks, Offset: 1}
			h.later(time.Minute).deadletter(events.ReasonUnknownWorkflow)
		}},
		{"P15: a dead letter that was written after its event", "P15", func(h *history) {
			h.submit().later(time.Hour).deadletter(events.ReasonUnknownWorkflow)
			h.claim(2)
		}},
		{"P15: a dead letter of the input that the claim came of, which is never taken again", "P15 P15", func(h *history) {
			s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}")}
			h.input(s.Record(ns, "test")).deadletter(events.ReasonUnknownWorkflow)
			h.inputs[events.Tasks] = 0
			h.later(time.Hour).claim(2)
			h.receive(s)
		}},
		{"P18: a reply without its attempt's token", "P18", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Millisecond).forged("someone else's")
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P15: a reply without any token, which led to something", "P15", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Millisecond).forged("")
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P15: a reply without its attempt's token, which nobody was told of", "P15", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond).forged("someone else's")
			h.completes("b", events.Do)
		}},
		{"a reply without its attempt's token, which was refused", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond).forged("someone else's").deadletter(events.ReasonBadToken)
			h.completes("b", events.Do)
		}},
		{"P18: a reply with its attempt's token, which was refused for it", "P18", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).later(time.Millisecond).reply("a", events.Do, 1, events.Completed).deadletter(events.ReasonBadToken)
			h.completes("b", events.Do)
		}},
		{"P18: an attempt without a token", "P18", func(h *history) {
			e := h.submit().event(do("a", 1))
			e.Fact.(*events.AttemptStarted).TokenHash = ""
			h.write(e)
		}},
		{"P10: a request with another token than its attempt", "P10", func(h *history) {
			h.o.Requests = false
			h.submit().add(do("a", 1))
			q := events.Request{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: "another", Operation: "a",
				CompleteBy: h.at.Add(time.Second), IdempotencyKey: key("a", events.Do), Value: []byte("{}")}
			r := q.Record(ns, "test", "x", 0)
			h.c.Request(&r)
		}},
		{"P17: a reply after complete-by", "P17", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Second+time.Millisecond).reply("a", events.Do, 1, events.Completed)
			h.c.Effect(Effect{Happened, key("a", events.Do)})
			h.add(&events.AttemptCompleted{Kind: events.Do, Step: "a", Attempt: 1})
		}},
		{"P17: a reply after complete-by, which nobody took", "P17", func(h *history) {
			h.submit().add(do("a", 1)).later(time.Second)
			h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptExpired{Kind: events.Do, Step: "a", Attempt: 1})
			h.add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1}).later(100*time.Millisecond).reply("a", events.Do, 1, events.Completed)
		}},
	})
}

// forged writes a reply to the first attempt at step a with a given token.
func (h *history) forged(token string) *history {
	p := &events.Reply{Task: h.id, Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: token, Outcome: events.Completed, Body: empty.Body}
	return h.input(p.Record(ns, "mallory"))
}

// consumedAgain writes a submission that is refused and later accepted: after a new claim of the partition, or by the
// same owner.
func consumedAgain(h *history, why events.Reason, after time.Duration, claims bool) {
	h.input(events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("{")}).deadletter(events.ReasonBadJSON) // the cause of the first claim
	s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}")}
	h.input(s.Record(ns, "test")).deadletter(why)
	h.later(after)
	if claims {
		again := h.inputs[events.Tasks]
		h.inputs[events.Tasks] = h.cause.Offset
		h.claim(2)
		h.inputs[events.Tasks] = again
	}
	h.receive(s)
}

// deadletter writes the dead letter of the last input.
func (h *history) deadletter(why events.Reason) {
	r := events.Record{Topic: ns.Inbox(h.cause.Inbox), Partition: h.cause.Partition, Offset: h.cause.Offset}
	for _, fed := range h.fed {
		if fed.Topic == r.Topic && fed.Offset == r.Offset {
			r = fed
		}
	}
	d := events.Deadletter(ns, "test", &r, &events.Unusable{Reason: why})
	d.Time = h.at
	h.c.Deadletter(&d)
}

// undoLeft writes an undo of steps b and a. If left is set, the undo of b is rejected, and an operator cancels the held
// task and keeps what was done. Otherwise the undo of a is reported completed without having happened.
func undoLeft(h *history, left bool) {
	h.twoDone().undoing()
	if !left {
		h.c.Effect(Effect{Undone, key("b", events.Do)})
		h.add(undo("b", 1)).later(time.Millisecond).reply("b", events.Undo, 1, events.Completed)
		h.add(&events.AttemptCompleted{Kind: events.Undo, Step: "b", Attempt: 1}).add(undo("a", 1)).later(time.Millisecond)
		h.reply("a", events.Undo, 1, events.Completed).add(&events.AttemptCompleted{Kind: events.Undo, Step: "a", Attempt: 1}).add(&events.TaskUndone{})
		return
	}
	h.add(undo("b", 1)).later(time.Millisecond).reply("b", events.Undo, 1, events.Rejected)
	h.add(&events.AttemptRejected{Kind: events.Undo, Step: "b", Attempt: 1}).add(&events.TaskHeld{})
	h.control(&events.Control{Command: events.Cancel, Keep: true})
	h.add(&events.TaskCancelled{By: events.By{RequestID: "request"}})
}

// released writes an operator's release of a step. The task continues.
func (h *history) released(step string, as events.StepState) *history {
	h.t.Helper()
	x := &events.Control{Command: events.Release, Step: step, As: as, Task: h.id}
	x.RequestID = "release"
	h.input(x.Record(ns, "operator"))
	return h.add(&events.RunReleased{By: events.By{RequestID: x.RequestID}, Step: step, As: as}).add(&events.TaskResumed{})
}

// releasedByHand is a task whose step c is held and released by an operator.
func releasedByHand(h *history) {
	h.holding().twoDone().add(do("c", 1)).later(time.Millisecond).reply("c", events.Do, 1, events.Rejected)
	h.add(&events.AttemptRejected{Kind: events.Do, Step: "c", Attempt: 1}).add(&events.TaskHeld{})
	h.released("c", events.StepCompleted).add(&events.TaskProcessed{})
}

// releasedBeforeItBegan is a task whose step c failed before it was requested, and is released by an operator.
func releasedBeforeItBegan(h *history) *history {
	h.holding().twoDone().add(&events.RunErrored{Kind: events.Do, Step: "c"}).add(&events.TaskHeld{})
	return h.released("c", events.StepCompleted).add(&events.TaskProcessed{})
}

// releasedThenUndone is a task whose step b was released by an operator, after manual work, and that is then undone.
// The agent undoes b, without effect, and then a.
func releasedThenUndone(h *history) *history {
	h.holding().submit().add(do("a", 1)).completes("a", events.Do).add(&events.RunErrored{Kind: events.Do, Step: "b"}).add(&events.TaskHeld{})
	h.released("b", events.StepCompleted).c.Effect(Effect{Happened, key("b", events.Do)})
	h.control(&events.Control{Command: events.UndoTask}).add(&events.TaskUndoing{By: events.By{RequestID: "request"}, Ending: events.StateUndone})
	h.add(undo("b", 1)).later(time.Millisecond).reply("b", events.Undo, 1, events.Completed)
	h.add(&events.AttemptCompleted{Kind: events.Undo, Step: "b", Attempt: 1})
	return h.add(undo("a", 1)).completes("a", events.Undo)
}

// undoReleased is a task whose undo of step b was rejected and then released by an operator. The undo of step a
// remains.
func undoReleased(h *history) *history {
	h.twoDone().undoing().add(undo("b", 1)).later(time.Millisecond).reply("b", events.Undo, 1, events.Rejected)
	h.add(&events.AttemptRejected{Kind: events.Undo, Step: "b", Attempt: 1}).add(&events.TaskHeld{})
	return h.released("b", events.StepUndone)
}

// A record in the wrong partition is forwarded once. If it is misplaced again, it is a dead letter.
func TestForwards(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		forward    bool
	}{{"forwarded", "", true}, {"lost", "P10", false}} {
		o := whole
		o.Partitions, o.Inputs = 2, true
		c := New(o)
		home := events.Partition([]byte("t"), 2)
		write := func(p int32, offset int64, h ...events.Header) {
			r := (&events.Submission{ID: "t", Workflow: "w"}).Record(ns, "test")
			r.Partition, r.Offset, r.Headers = p, offset, append(r.Headers, h...)
			c.Input(&r)
		}
		other := (&events.Submission{ID: "u", Workflow: "w"}).Record(ns, "test")
		other.Partition = home
		c.Input(&other)
		write(1-home, 7)
		if tt.forward {
			hop := events.Header{Key: events.HeaderHop, Value: []byte{byte('1' - home), '/', '7'}}
			write(home, 1, hop)
		}
		c.Consumed(events.Tasks, 1-home, 8)
		got := ""
		for _, f := range c.Finish(start0).Faults {
			got += f.Promise
		}
		if got != tt.want {
			t.Errorf("%s: %v", tt.name, c.Finish(start0).Faults)
		}
	}
}

// Replies of an agent that the test makes misbehave are exempt. Late replies within the tolerance are only counted.
func TestLateRepliesThatAreNoFault(t *testing.T) {
	for _, tt := range []struct {
		name   string
		o      Options
		counts int
		faults int
	}{
		{"late", Options{}, 1, 1},
		{"exempt", Options{Exempt: func(r *events.Record) bool { s, _ := r.Header(events.HeaderSource); return s == "agent" }}, 0, 0},
		{"tolerated", Options{ReplyTolerance: time.Minute}, 1, 0},
	} {
		h := newHistory(t, tt.o)
		h.submit().add(do("a", 1)).later(2*time.Second).reply("a", events.Do, 1, events.Completed)
		if r := h.c.Finish(h.at); r.LateReplies != tt.counts || r.Broken != tt.faults {
			t.Errorf("%s: %s", tt.name, r)
		}
	}
}

// The checker doesn't wait for inputs that were trimmed.
func TestTrimmedInputsAreNotKept(t *testing.T) {
	h := newHistory(t, Options{})
	h.c.InputsRead(events.Tasks, 0, 1, 1)
	h.mute = true
	h.submit().add(do("a", 1))
	h.mute = true
	h.completes("a", events.Do)
	tasks, replies := h.c.inboxOf(events.Tasks, 0), h.c.inboxOf(events.Replies, 0)
	if tasks.leads.len() != 0 || replies.leads.len() != 1 {
		t.Errorf("%d and %d events wait for their inputs, want 0 and 1", tasks.leads.len(), replies.leads.len())
	}
	if h.c.InputsRead(events.Replies, 0, 1, 1); replies.leads.len() != 0 {
		t.Errorf("%d events wait for what was trimmed", replies.leads.len())
	}
}

// The checker doesn't wait for inputs that arrived after the inbox was read.
func TestInputsOfLaterAreNotKept(t *testing.T) {
	h := newHistory(t, Options{})
	h.c.InputsRead(events.Tasks, 0, 0, 0)
	h.mute = true
	h.submit().add(do("a", 1))
	if n := h.c.inboxOf(events.Tasks, 0).leads.len(); n != 0 {
		t.Errorf("%d events wait for inputs that came later, want 0", n)
	}
	if r := h.c.Finish(h.at); r.Broken != 0 {
		t.Error(r.Faults)
	}
}

// In a running system a record may be forwarded after its target was read. Records that were consumed earlier must be
// forwarded.
func TestForwardsOfASystemThatRuns(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		said       bool
		there      int64
	}{
		{"consumed before the inboxes were read", "P10", true, 4},
		{"consumed since", "", true, 3},
		{"nothing was there", "", true, 0},
		{"of a system that has stopped", "P10", false, 0},
	} {
		home := events.Partition([]byte("elsewhere"), 2)
		o := whole
		o.Partitions = 2
		h := newHistory(t, o)
		h.part, h.c, h.offset, h.inputs = 1-home, New(o), 0, [events.Inboxes]int64{}
		if tt.said {
			h.c.EventsThere(h.part, tt.there)
		}
		h.claim(1)
		for i := 0; h.offset < 5; i++ { // a task, the stray record, and another task
			if h.id, h.state = fmt.Sprint("t", i), nil; events.Partition([]byte(h.id), 2) != h.part {
				continue
			}
			if h.submit(); h.inputs[events.Tasks] == 1 {
				h.input((&events.Submission{ID: "elsewhere", Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
			}
		}
		other := (&events.Submission{ID: "elsewhere 2", Workflow: "w"}).Record(ns, "test")
		other.Partition = home
		h.c.Input(&other)
		got := ""
		for _, f := range h.c.Finish(h.at).Faults {
			if f.Task == "elsewhere" {
				got += f.Promise
			}
		}
		if got != tt.want {
			t.Errorf("%s: %v", tt.name, h.c.Finish(h.at).Faults)
		}
	}
}

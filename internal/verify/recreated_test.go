package verify

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// An inbox was deleted and created again, so causes of older events have offsets of the first topic. Those events
// aren't checked against the second topic. Later events are.
func TestInboxThatWasRecreated(t *testing.T) {
	o := whole
	o.TopicIDs = events.TopicIDs{events.Tasks: "t1", events.Replies: "r2"}
	begin := func(h *history) *history {
		h.topics = events.TopicIDs{events.Tasks: "t1", events.Replies: "r1"}
		h.claim(h.epoch + 1)
		h.submit().add(do("a", 1)).add(do("b", 1)).add(do("c", 1))
		h.mute = true // deleted with its topic
		return h.reply("a", events.Do, 1, events.Completed).completedBy("a")
	}
	holds(t, o, []played{
		{"a reply at an offset of before", "", func(h *history) {
			begin(h).recreated(events.Replies, "r2").reply("b", events.Do, 1, events.Completed).completedBy("b")
		}},
		{"P3: another attempt than that of the reply in the new topic", "P3", func(h *history) {
			begin(h).recreated(events.Replies, "r2").reply("b", events.Do, 1, events.Completed).completedBy("c")
		}},
		{"P10: the same offset without another topic", "P10", func(h *history) {
			begin(h).claim(h.epoch + 1)
			h.inputs[events.Replies] = 0
			h.reply("b", events.Do, 1, events.Completed).completedBy("b")
		}},
		{"a dead letter of the topic before", "", func(h *history) {
			begin(h)
			h.c.Deadletter(deadletterAt(events.Replies, 1))
			h.recreated(events.Replies, "r2").input(events.Record{Topic: ns.Inbox(events.Replies), Value: []byte("no JSON")})
			h.c.Deadletter(deadletterAt(events.Replies, 0))
			h.reply("b", events.Do, 1, events.Completed).completedBy("b")
		}},
	})
}

// completedBy writes the completion of an attempt by the last reply.
func (h *history) completedBy(step string) *history {
	h.c.Effect(Effect{Happened, key(step, events.Do)})
	return h.add(&events.AttemptCompleted{Kind: events.Do, Step: step, Attempt: 1})
}

func deadletterAt(inbox events.Inbox, offset int64) *events.Record {
	r := events.Deadletter(ns, "test", &events.Record{Topic: ns.Inbox(inbox), Offset: offset, Value: []byte("no JSON")}, &events.Unusable{Reason: events.ReasonBadJSON})
	return &r
}

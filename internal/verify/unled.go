package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// used is the offset of an inbox below which everything was consumed, as far as
// the log or the group's position show it.
func (f *finish) used(key inboxPart) int64 {
	next := int64(0)
	if p := f.c.parts[key.partition]; p != nil && p.isSameTopic(key.inbox, f.c.o.TopicIDs[key.inbox]) {
		next = p.next[key.inbox]
	}
	if in := f.c.inboxes[key]; in != nil {
		next = max(next, in.consumed)
	}
	return next
}

// inboxes looks at the inputs that led to nothing, and at the events whose input
// isn't there.
func (f *finish) inboxes() {
	keys := slices.SortedFunc(maps.Keys(f.c.inboxes), func(a, b inboxPart) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.inbox, b.inbox))
	})
	refused := f.refused()
	for _, key := range keys {
		in := f.c.inboxes[key]
		used := f.used(key)
		for offset, x := range in.inputs.all() {
			at := place{key, offset}
			if key.inbox == events.Replies {
				f.c.checkLateReply(x, at, &f.late, f.faults)
			}
			if offset >= used {
				// What one led to that is older than what was fed isn't known.
				if since := f.c.o.Since; offset >= refused[key] && (used > 0 || since.IsZero() || x.at >= millis(since)) {
					f.report.Pending++
				}
				continue
			}
			if promise, what := f.unled(at, x); what != "" {
				f.faults.add(Fault{promise, x.task, key.inbox.String(), key.partition, offset, what})
			}
		}
		f.causeless(in)
	}
	f.deadAndLed()
}

// recreated reports whether an inbox of a partition was deleted and created again, by its claims and by
// what is fed.
func (c *Checker) recreated(at inboxPart) bool {
	p := c.parts[at.partition]
	return p != nil && (p.recreated[at.inbox] || !p.isSameTopic(at.inbox, c.o.TopicIDs[at.inbox]))
}

// refused is the offset of each inbox below which everything was consumed, as its dead letters tell.
// It is for counting: anybody may write a dead letter.
func (f *finish) refused() map[inboxPart]int64 {
	next := map[inboxPart]int64{}
	for at := range f.c.dead {
		next[at.inboxPart] = max(next[at.inboxPart], at.offset+1)
	}
	return next
}

// unled: a consumed input that led to nothing had to, or is seen elsewhere (P10,
// P15).
func (f *finish) unled(at place, x *input) (promise, what string) {
	t, dead := f.c.tasks[x.task], f.c.dead[at].why != ""
	visible := dead || !f.c.o.Deadletters
	switch {
	case x.poison != "" && !visible:
		return "P15", fmt.Sprintf("can't be used (%s), and there is no dead letter of it", x.poison)
	case x.poison == "" && f.c.dead[at].why == events.ReasonBadToken && f.hasToken(t, x):
		return "P18", fmt.Sprintf("a reply of %s has its token, and was refused as if it hadn't", events.RequestID(t.id, x.ref))
	case x.poison != "" || dead:
		return "", ""
	case x.where != at.partition:
		return f.forwarded(at, x)
	case t != nil && t.broken, t == nil && f.c.hasTimeRange():
		return "", ""
	}
	if at.inbox == events.Recoveries {
		f.report.Recoveries.Rejected++
	}
	switch {
	case t == nil && at.inbox == events.Controls: // it is answered
	case t == nil && !visible && at.inbox == events.Tasks:
		return "P10", "a submission was consumed; its task isn't in the log, and there is no dead letter of it"
	case t == nil && !visible:
		return "P15", "is of a task that isn't in the log, and there is no dead letter of it"
	case t != nil && f.c.recreated(at.inboxPart): // what its events say of offsets may be of the topic before
	case t != nil && at.inbox == events.Replies:
		return f.unheard(t, at, x)
	case t != nil && at.inbox == events.Tasks && !visible && t.plan != nil:
		return t.again(at, x)
	}
	return "", ""
}

// again: a submission of a task that is there led to nothing, for it was the same, and came later. Another one under
// its id is a dead letter (P15).
func (t *task) again(at place, x *input) (promise, what string) {
	switch {
	case sumOfText(x.says) != t.digest:
		return "P15", "is another submission under the id of a task, and there is no dead letter of it"
	case at.offset < t.taken:
		return "P10", fmt.Sprintf("a submission was consumed, and led to nothing: the task is there by that at offset %d", t.taken)
	}
	return "", ""
}

// forwarded: a record in the wrong partition comes again in the right one (P10).
func (f *finish) forwarded(at place, x *input) (promise, what string) {
	to := f.c.inboxes[inboxPart{at.inbox, x.where}]
	if to == nil || !to.fed || !to.whole(0) || f.c.hops[at] || !f.c.parts[at.partition].consumedBefore(at.inbox, at.offset) {
		return "", "" // what was trimmed, or came later, isn't known
	}
	return "P10", fmt.Sprintf("belongs in partition %d, and was not forwarded", x.where)
}

// unheard: a reply that was decided while its attempt ran had to be accepted
// (P10). It was, if it was written after the attempt began, and lies below a
// reply that led to something before the attempt ended.
func (f *finish) unheard(t *task, at place, x *input) (promise, what string) {
	i, ok := t.findAttempt(x.ref)
	if !ok || x.at <= t.attempts[i].started {
		return "", ""
	}
	a := &t.attempts[i]
	below := a.below
	if !a.ended {
		below = f.used(at.inboxPart)
	}
	if at.offset >= below {
		return "", ""
	}
	if !f.hasToken(t, x) {
		if !f.c.o.Deadletters {
			return "", ""
		}
		return "P15", fmt.Sprintf("a reply of %s hasn't its token, and there is no dead letter of it", events.RequestID(t.id, x.ref))
	}
	return "P10", fmt.Sprintf("a reply of %s was consumed while the attempt ran, and led to nothing", events.RequestID(t.id, x.ref))
}

// hasToken reports whether a reply has the token of the attempt that it names.
func (f *finish) hasToken(t *task, x *input) bool {
	if t == nil {
		return false
	}
	i, ok := t.findAttempt(x.ref)
	return ok && t.attempts[i].token == x.token
}

// causeless: an event names an input that isn't there (P10).
func (f *finish) causeless(in *inbox) {
	for offset, l := range in.leads.all() {
		if t := f.c.tasks[l.task]; in.whole(offset) && (t == nil || !t.broken) {
			f.faults.add(Fault{"P10", l.task, topicEvents, l.partition, l.offset,
				fmt.Sprintf("%s comes of %s, and there is no such record", l.fact, events.Cause{Inbox: l.inbox, Partition: l.partition, Offset: offset})})
		}
	}
}

// letter is the last dead letter of an input: why, and its timestamp in ms.
type letter struct {
	why events.Reason
	at  int64
}

// takeover is a claim of a partition: its timestamp in ms, and one more than the highest cause of each inbox before it.
type takeover struct {
	at   int64
	next [events.Inboxes]int64
}

// passing are the reasons for which a record can't be used at one time, and can at another: by the definitions that there
// are, by a scheduler's settings, and by what its build can read.
var passing = []events.Reason{events.ReasonUnknownWorkflow, events.ReasonTooLarge, events.ReasonBadReplyTo, events.ReasonTaskStopped}

// takenAgain reports whether an input that is a dead letter may have led to an event all the same: it was consumed again, for its
// dead letter left no cause, and the group's offsets had expired. Who does so has restored the partition, and so claimed it, after the
// dead letter was written. His claim is the last before which no later cause of the inbox was seen.
func (c *Checker) takenAgain(at place) bool {
	l, p := c.dead[at], c.parts[at.partition]
	if p == nil || l.at == 0 || !slices.Contains(passing, l.why) {
		return false
	}
	for i := len(p.claims) - 1; i >= 0; i-- {
		if p.claims[i].next[at.inbox] <= at.offset {
			return p.claims[i].at > l.at
		}
	}
	return c.hasTimeRange() // his claim may be older than what is looked at
}

// deadAndLed: what is a dead letter led to nothing (P15). An input that was fed
// and is no longer kept has met its event.
func (f *finish) deadAndLed() {
	places := slices.SortedFunc(maps.Keys(f.c.dead), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.inbox, b.inbox), cmp.Compare(a.offset, b.offset))
	})
	for _, at := range places {
		in := f.c.inboxes[at.inboxPart]
		if c := f.c; in == nil || c.recreated(at.inboxPart) || !in.whole(at.offset) || in.inputs.get(at.offset) != nil || f.c.takenAgain(at) {
			continue
		}
		f.faults.add(Fault{"P15", "", at.inbox.String(), at.partition, at.offset,
			fmt.Sprintf("is a dead letter (%s), and led to an event", f.c.dead[at].why)})
	}
}

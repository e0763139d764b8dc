package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// used returns the offset of an inbox below which everything was consumed, according to the log or the group's
// position.
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

// checkInboxes checks the inputs that led to no event, and the events whose input is missing.
func (f *finish) checkInboxes() {
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
				// An input older than the events that were fed may have led to an unknown event.
				if since := f.c.o.Since; offset >= refused[key] && (used > 0 || since.IsZero() || x.at >= millis(since)) {
					f.report.Pending++
				}
				continue
			}
			if fault := f.checkUnled(at, x); fault != nil {
				f.faults.add(Fault{fault.Promise, x.task, key.inbox.String(), key.partition, offset, fault.What})
			}
		}
		f.checkCauseless(in)
	}
	f.checkDeadletters()
}

// recreated reports whether an inbox of a partition was deleted and created again, according to claims and
// Options.TopicIDs.
func (c *Checker) recreated(at inboxPart) bool {
	p := c.parts[at.partition]
	return p != nil && (p.recreated[at.inbox] || !p.isSameTopic(at.inbox, c.o.TopicIDs[at.inbox]))
}

// refused returns the offset of each inbox below which everything was consumed, according to its dead letters. It is
// only for counting, since dead letters can be forged.
func (f *finish) refused() map[inboxPart]int64 {
	next := map[inboxPart]int64{}
	for at := range f.c.dead {
		next[at.inboxPart] = max(next[at.inboxPart], at.offset+1)
	}
	return next
}

// checkUnled checks a consumed input that led to no event. It may be a dead letter, forwarded, or without effect; else it is
// a fault (P10, P15).
func (f *finish) checkUnled(at place, x *input) *Fault {
	t, dead := f.c.tasks[x.task], f.c.dead[at].why != ""
	if t != nil && at.inbox == events.Replies {
		t = t.lifeWith(x.ref, x.token)
	}
	switch {
	case x.unreadable != "" && !dead:
		return f.unlessDead(x, faultf("P15", "can't be used (%s), and there is no dead letter of it", x.unreadable))
	case x.unreadable == "" && f.c.dead[at].why == events.ReasonBadToken && f.hasToken(t, x):
		return faultf("P18", "a reply of %s has its token, and was refused as if it hadn't", events.RequestID(t.id, x.ref))
	case x.unreadable != "" || dead:
		return nil
	case x.where != at.partition:
		return f.checkForwarded(at, x)
	case t != nil && t.anyBroken(), t == nil && f.c.hasTimeRange(), x.action == events.ActionForget:
		return nil
	}
	if at.inbox == events.Recoveries {
		f.report.Recoveries.Rejected++
	}
	switch {
	case x.withdraws: // finish.checkChildren checks what became of it
	case t == nil && at.inbox == events.Controls: // it is refused in an answer
	case t == nil && at.inbox == events.Tasks:
		return f.unlessDead(x, faultf("P10", "a submission was consumed; its task isn't in the log, and there is no dead letter of it"))
	case t == nil:
		return f.unlessDead(x, faultf("P15", "is of a task that isn't in the log, and there is no dead letter of it"))
	case f.c.recreated(at.inboxPart): // offsets in its events may be of the earlier topic
	case at.inbox == events.Replies:
		return f.checkUnheardReply(t, at, x)
	case at.inbox == events.Signals && t.plan != nil && t.earlier == nil:
		return f.unlessDead(x, t.checkUnheardSignal(x))
	case at.inbox == events.Tasks && t.plan != nil:
		return f.unlessDead(x, t.checkRepeatedSubmission(at, x))
	}
	return nil
}

// deadlettersMargin bounds the difference between the timestamps that brokers give to an input and to its dead letter.
const deadlettersMargin = 10 * time.Minute

// deadlettersSince returns since when all dead letters were fed, as a timestamp of inputs in ms; math.MaxInt64: never. A
// dead letter may be in any partition of its topic, and is written after its input.
func (c *Checker) deadlettersSince() int64 {
	since := int64(math.MinInt64)
	if !c.o.Deadletters {
		return math.MaxInt64
	}
	for p, start := range c.o.DeadlettersStart {
		first, kept := c.oldestDead[p]
		switch {
		case start <= 0:
		case !kept: // the times of the deleted ones are unknown
			return math.MaxInt64
		default:
			since = max(since, first+deadlettersMargin.Milliseconds())
		}
	}
	return since
}

// unlessDead returns a fault of an input without a dead letter. If its dead letter may have been deleted, there is no fault,
// and the input counts as not checked.
func (f *finish) unlessDead(x *input, fault *Fault) *Fault {
	if fault == nil || x.at >= f.deadlettersSince {
		return fault
	}
	f.report.Unchecked++
	return nil
}

// checkRepeatedSubmission checks a submission of an existing task that led to no event. It must be equal and later (P10). A different
// submission under the id must be a dead letter (P15).
func (t *task) checkRepeatedSubmission(at place, x *input) *Fault {
	for x := sumOfText(x.says); t.earlier != nil && x != t.digest; {
		t = t.earlier // it may have been a repeated submission of that one
	}
	switch {
	case sumOfText(x.says) != t.digest:
		return faultf("P15", "is another submission under the id of a task, and there is no dead letter of it")
	case at.offset < t.taken:
		return faultf("P10", "a submission was consumed, and led to nothing: the task is there by that at offset %d", t.taken)
	}
	return nil
}

// checkForwarded checks that a record in the wrong partition was forwarded to the right one (P10).
func (f *finish) checkForwarded(at place, x *input) *Fault {
	to := f.c.inboxes[inboxPart{at.inbox, x.where}]
	if to == nil || !to.fed || !to.whole(0) || f.c.hops[at] || !f.c.parts[at.partition].consumedBefore(at.inbox, at.offset) {
		return nil // trimmed or later records are unknown
	}
	return faultf("P10", "belongs in partition %d, and was not forwarded", x.where)
}

// checkUnheardReply checks that a reply which was consumed while its attempt ran was accepted (P10). That is so if it was written
// after the attempt began, and its offset is below that of a reply which led to an event before the attempt ended.
func (f *finish) checkUnheardReply(t *task, at place, x *input) *Fault {
	i, ok := t.findAttempt(x.ref)
	if !ok || x.at <= t.attempts[i].started || x.item != nil { // an item may have been withdrawn meanwhile
		return nil
	}
	a := &t.attempts[i]
	below := a.below
	if !a.ended {
		below = f.used(at.inboxPart)
	}
	if at.offset >= below {
		return nil
	}
	if !f.hasToken(t, x) {
		return f.unlessDead(x, faultf("P15", "a reply of %s hasn't its token, and there is no dead letter of it", events.RequestID(t.id, x.ref)))
	}
	if x.outcome == events.Progress || x.outcome == events.Resumed {
		return nil // it may have come too soon after another, or not after a hold
	}
	return faultf("P10", "a reply of %s was consumed while the attempt ran, and led to nothing", events.RequestID(t.id, x.ref))
}

// hasToken reports whether a reply has the token of the attempt that it names.
func (f *finish) hasToken(t *task, x *input) bool {
	if t == nil {
		return false
	}
	i, ok := t.findAttempt(x.ref)
	return ok && t.attempts[i].token == x.token
}

// checkCauseless reports events whose input is missing (P10).
func (f *finish) checkCauseless(in *inbox) {
	for offset, l := range in.leads.all() {
		if t := f.c.tasks[l.task]; in.whole(offset) && (t == nil || !t.anyBroken()) {
			f.faults.add(Fault{"P10", l.task, topicEvents, l.partition, l.offset,
				fmt.Sprintf("%s comes of %s, and there is no such record", l.fact, events.Cause{Inbox: l.inbox, Partition: l.partition, Offset: offset})})
		}
	}
}

// letter is the last dead letter of an input: the reason, and its timestamp in ms.
type letter struct {
	why events.Reason
	at  int64
}

// takeover is a claim of a partition: its timestamp in ms, and one more than the highest cause of each inbox before it.
type takeover struct {
	at   int64
	next [events.Inboxes]int64
}

// passing are the temporary reasons of dead letters. They depend on the definitions, on a scheduler's settings, on its
// build, or on other inputs.
var passing = []events.Reason{events.ReasonUnknownWorkflow, events.ReasonTooLarge, events.ReasonBadReplyTo, events.ReasonTaskStopped,
	events.ReasonUnknownTask, events.ReasonTooManySignals}

// consumedTwice reports whether an input with a dead letter may also have led to an event, since it was consumed twice.
// That happens if the group's offsets expired, since a dead letter leaves no cause in the log. The second consumer has
// claimed the partition after the dead letter was written. Its claim is the last one before which no later cause of the
// inbox came.
func (c *Checker) consumedTwice(at place) bool {
	l, p := c.dead[at], c.parts[at.partition]
	if p == nil || l.at == 0 || !slices.Contains(passing, l.why) {
		return false
	}
	for i := len(p.claims) - 1; i >= 0; i-- {
		if p.claims[i].next[at.inbox] <= at.offset {
			return p.claims[i].at > l.at
		}
	}
	return c.hasTimeRange() // the claim may be older than the time range
}

// checkDeadletters checks that inputs with a dead letter led to no event (P15). An input that was fed and is no longer kept
// has led to an event.
func (f *finish) checkDeadletters() {
	places := slices.SortedFunc(maps.Keys(f.c.dead), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.inbox, b.inbox), cmp.Compare(a.offset, b.offset))
	})
	for _, at := range places {
		in := f.c.inboxes[at.inboxPart]
		if c := f.c; in == nil || c.recreated(at.inboxPart) || !in.whole(at.offset) || in.inputs.get(at.offset) != nil || f.c.consumedTwice(at) {
			continue
		}
		f.faults.add(Fault{"P15", "", at.inbox.String(), at.partition, at.offset,
			fmt.Sprintf("is a dead letter (%s), and led to an event", f.c.dead[at].why)})
	}
}

package verify

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// inboxPart names a partition of an inbox, place a record of one.
type inboxPart struct {
	inbox     events.Inbox
	partition int32
}

type place struct {
	inboxPart
	offset int64
}

// inbox is what the checkers keep of a partition of an inbox. What was fed is
// forgotten as soon as it has met the event that it led to.
type inbox struct {
	fed         bool
	first, last int64 // offsets fed
	read        bool  // InputsRead said that those from from to before to are all
	from, to    int64
	consumed    int64 // the group's position
	inputs      byOffset[input]
	leads       byOffset[lead] // whose input hasn't come
}

// input is a record of an inbox, in short.
type input struct {
	task   string
	poison events.Reason // why it can't be used; empty: it can
	hop    bool          // it was forwarded
	where  int32         // the partition in which it belongs
	at     int64         // its timestamp, in ms
	exempt bool
	// What it says: of a submission the digest, of a reply the attempt, of a
	// recovery the timer.
	digest  string
	ref     events.RequestRef
	outcome events.Outcome
	timer   uint64
	command events.Command
	request string
}

// lead is the first event that an input led to, in short.
type lead struct {
	place
	task    string
	offset  int64 // of the event
	fact    string
	slot    events.Slot
	attempt int
	timer   uint64 // the one that it ended
	digest  string
	request string
}

func (c *Checker) inboxOf(i events.Inbox, partition int32) *inbox {
	key := inboxPart{i, partition}
	in := c.inboxes[key]
	if in == nil {
		in = &inbox{inputs: newByOffset[input](), leads: newByOffset[lead]()}
		c.inboxes[key] = in
	}
	return in
}

// InputsRead says that all records of a partition of an inbox with offsets from
// from to before to are fed already, and none that lie elsewhere will be: those below
// were trimmed, those above hadn't been written when it was read.
func (c *Checker) InputsRead(inbox events.Inbox, partition int32, from, to int64) {
	in := c.inboxOf(inbox, partition)
	in.read, in.from, in.to = true, from, to
	for offset := range in.leads.all() {
		if !in.expects(offset) {
			in.leads.take(offset)
		}
	}
}

// expects reports whether the record at an offset may still be fed, or should have been.
func (in *inbox) expects(offset int64) bool {
	return !in.read || offset >= in.from && offset < in.to
}

// Consumed says up to where a partition of an inbox has been consumed: the
// group's position.
func (c *Checker) Consumed(inbox events.Inbox, partition int32, next int64) {
	in := c.inboxOf(inbox, partition)
	in.consumed = max(in.consumed, next)
}

// Input takes the next record of a partition of an inbox; which one, its topic
// says. A record of another topic is passed over, and one that comes again.
func (c *Checker) Input(r *events.Record) {
	kind, ok := events.ParseInbox(strings.TrimPrefix(r.Topic, string(c.o.Namespace)))
	if !ok {
		return
	}
	in := c.inboxOf(kind, r.Partition)
	if in.fed && r.Offset <= in.last {
		return
	}
	c.inputs++
	if !in.fed {
		in.fed, in.first = true, r.Offset
	}
	in.last = r.Offset
	x := c.inputOf(kind, r)
	if x.poison != "" {
		c.poison++
	}
	if l := in.leads.take(r.Offset); l != nil {
		c.meet(kind, x, l)
		return
	}
	in.inputs.put(r.Offset, x)
}

// inputsAtOnce is for how many inputs room is made at a time.
const inputsAtOnce = 64

func (c *Checker) newInput() *input {
	if len(c.blank) == 0 {
		c.blank = make([]input, inputsAtOnce)
	}
	x := &c.blank[0]
	c.blank = c.blank[1:]
	return x
}

// inputOf reads a record as a scheduler would.
func (c *Checker) inputOf(kind events.Inbox, r *events.Record) *input {
	x := c.newInput()
	x.at, x.where = millis(r.Time), r.Partition
	hop, hopped := r.Header(events.HeaderHop)
	if x.hop = hopped; hopped {
		c.hopped(kind, hop)
	}
	task, in, err := events.DecodeInput(kind, r)
	var unusable *events.Unusable
	switch {
	case errors.As(err, &unusable):
		x.poison = unusable.Reason
		return x
	case err != nil:
		x.poison = events.ReasonBadJSON
		return x
	}
	x.task = task
	if len(r.Key) > 0 && string(r.Key) != task {
		x.poison = events.ReasonWrongKey
		return x
	}
	if c.o.Partitions > 0 {
		x.where = events.Partition([]byte(task), c.o.Partitions)
	}
	if x.where != r.Partition && x.hop {
		x.poison = events.ReasonMisplaced
		return x
	}
	switch in := in.(type) {
	case *events.Submission:
		x.digest = in.Digest()
	case *events.Reply:
		x.ref, x.outcome = in.Ref, in.Outcome
		x.exempt = c.o.Exempt != nil && c.o.Exempt(r)
	case *events.Recovery:
		x.ref, x.timer = events.RequestRef{Step: in.Step, Kind: in.Kind}, in.Timer
	case *events.Control:
		x.command, x.request, x.ref.Step = in.Command, in.RequestID, in.Step
	}
	return x
}

// hopped notes where a forwarded record came from: "partition/offset".
func (c *Checker) hopped(kind events.Inbox, from string) {
	p, o, _ := strings.Cut(from, "/")
	partition, err := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	if err == nil && err2 == nil { // else a stranger wrote it
		c.hops[place{inboxPart{kind, int32(partition)}, offset}] = true
	}
}

// lead says what an input led to, as far as the input can be held against it.
func (s *turn) lead(l *lead) {
	*l = lead{place: place{inboxPart{s.e.Cause.Inbox, s.e.Cause.Partition}, s.e.Cause.Offset}, task: s.t.id, offset: s.r.Offset,
		fact: s.e.Fact.Type(), slot: s.slot, attempt: ended(s.e.Fact), timer: s.timer.Seq}
	l.request = requestOf(s.e.Fact)
	switch f := s.e.Fact.(type) {
	case *events.TaskReceived:
		l.digest = f.Digest
	case *events.RunReleased:
		l.slot.Step = f.Step
	}
}

// requestOf is the request id of the control that led to an event.
func requestOf(f events.Fact) string {
	switch f := f.(type) {
	case *events.TaskUndoing:
		return f.RequestID
	case *events.TaskCancelled:
		return f.RequestID
	case *events.TaskResumed:
		return f.RequestID
	case *events.RunReleased:
		return f.RequestID
	}
	return ""
}

// led holds the first event of a cause against its input, now or when that
// comes.
func (c *Checker) led(p *partition, s *turn) {
	if s.e.Cause.Inbox == events.Recoveries {
		c.timing.accepted++
	}
	if !c.o.Inputs {
		return
	}
	cause := s.e.Cause
	in := p.inputs[cause.Inbox]
	if in == nil || cause.Partition != s.r.Partition {
		in = c.inboxOf(cause.Inbox, cause.Partition)
		if cause.Partition == s.r.Partition {
			p.inputs[cause.Inbox] = in
		}
	}
	x := in.inputs.take(cause.Offset)
	switch {
	case x != nil:
		s.lead(&c.met)
		c.meet(cause.Inbox, x, &c.met)
	case in.expects(cause.Offset):
		l := &lead{}
		s.lead(l)
		in.leads.put(cause.Offset, l)
	}
}

// meet holds an input and the first event that it led to against each other.
func (c *Checker) meet(kind events.Inbox, x *input, l *lead) {
	promise, what := c.meeting(kind, x, l)
	if what != "" {
		c.tell(Fault{promise, l.task, topicEvents, l.partition, l.offset, what})
	}
	if kind == events.Replies {
		c.lateReply(x, l.place, &c.late, &c.faults)
	}
}

// tell keeps a fault of a task's history that showed after its event.
func (c *Checker) tell(f Fault) {
	if t := c.tasks[f.Task]; t != nil {
		if t.broken {
			return
		}
		t.broken = true
	}
	c.faults.add(f)
}

func (c *Checker) meeting(kind events.Inbox, x *input, l *lead) (promise, what string) {
	cause := events.Cause{Inbox: l.inbox, Partition: l.partition, Offset: l.place.offset}
	switch {
	case x.poison != "":
		return "P15", fmt.Sprintf("%s led to %s and can't be used: %s", cause, l.fact, x.poison)
	case c.dead[l.place] != "":
		return "P15", fmt.Sprintf("%s led to %s and is a dead letter: %s", cause, l.fact, c.dead[l.place])
	case x.task != l.task:
		return "P10", fmt.Sprintf("%s is about task %q", cause, x.task)
	case x.where != l.partition:
		return "P10", fmt.Sprintf("%s led to %s and belongs in partition %d", cause, l.fact, x.where)
	}
	switch kind {
	case events.Tasks:
		if x.digest != l.digest {
			return "P10", fmt.Sprintf("%s is another submission: its digest is %s, that of the event %s", cause, x.digest, l.digest)
		}
	case events.Replies:
		return x.replied(cause, l)
	case events.Recoveries:
		if x.timer != l.timer || x.ref.Step != l.slot.Step || x.ref.Step != "" && x.ref.Kind != l.slot.Kind {
			return "P4", fmt.Sprintf("%s is for the timer of event %d (%s %s); %s ended that of event %d (%s %s)",
				cause, x.timer, x.ref.Kind, x.ref.Step, l.fact, l.timer, l.slot.Kind, l.slot.Step)
		}
	case events.Controls:
		return x.commanded(cause, l)
	}
	return "", ""
}

// replied: the event ends the attempt that the reply names, as it says (P3).
func (x *input) replied(cause events.Cause, l *lead) (promise, what string) {
	if x.ref != (events.RequestRef{Step: l.slot.Step, Kind: l.slot.Kind, Attempt: l.attempt}) {
		return "P3", fmt.Sprintf("%s is of %s; it led to %s of %s", cause, events.RequestID(x.task, x.ref), l.fact,
			events.RequestID(l.task, events.RequestRef{Step: l.slot.Step, Kind: l.slot.Kind, Attempt: l.attempt}))
	}
	tooLarge := x.outcome == events.Completed && strings.Contains(l.fact, ".failed.")
	if !tooLarge && !strings.Contains(l.fact, verbOf(x.outcome)) {
		return "P3", fmt.Sprintf("%s says %s; it led to %s", cause, x.outcome, l.fact)
	}
	return "", ""
}

// verbOf is what the type of an event holds that a reply with an outcome leads to.
func verbOf(o events.Outcome) string {
	switch o {
	case events.Completed:
		return ".completed."
	case events.Failed:
		return ".failed."
	}
	return ".rejected."
}

// commanded: the event is what the control asks for (P10).
func (x *input) commanded(cause events.Cause, l *lead) (promise, what string) {
	facts := map[events.Command][]string{
		events.Cancel:   {(*events.TaskUndoing)(nil).Type(), (*events.TaskCancelled)(nil).Type()},
		events.UndoTask: {(*events.TaskUndoing)(nil).Type()},
		events.Resubmit: {(*events.TaskResumed)(nil).Type()},
		events.Release:  {(*events.RunReleased)(nil).Type()},
	}
	for _, f := range facts[x.command] {
		if f == l.fact && x.request == l.request && (x.command != events.Release || x.ref.Step == l.slot.Step) {
			return "", ""
		}
	}
	return "P10", fmt.Sprintf("%s asks for %s (request %q); it led to %s (request %q)", cause, x.command, x.request, l.fact, l.request)
}

// lateReplies are those that were written after the complete-by of their
// attempt.
type lateReplies struct {
	count int
	most  time.Duration
}

// lateReply: no reply is written after the complete-by of its attempt (P17).
func (c *Checker) lateReply(x *input, at place, all *lateReplies, fs *faults) {
	t := c.tasks[x.task]
	if t == nil || x.exempt || x.at == 0 {
		return
	}
	i, ok := t.findAttempt(x.ref)
	if !ok {
		return
	}
	late := time.Duration(x.at-t.attempts[i].due) * time.Millisecond
	if late <= 0 {
		return
	}
	all.count++
	all.most = max(all.most, late)
	if late > c.o.ReplyTolerance {
		fs.add(Fault{"P17", t.id, at.inbox.String(), at.partition, at.offset,
			fmt.Sprintf("a reply of %s was written %s after its complete-by", events.RequestID(t.id, x.ref), late)})
	}
}

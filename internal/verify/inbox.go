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

// inbox is the state of a partition of an inbox. Inputs are dropped once they were compared with their event.
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
	says    string // a submission's digest, or who wrote a reply
	version int
	due     int64 // the complete_by that a submission asks for, in ms; 0: none
	ref     events.RequestRef
	token   uint64 // the sum of the hash of a reply's token
	outcome events.Outcome
	effect  events.Effect
	later   time.Duration // of a reply: the wait that it asks for
	body    uint64        // the sum of a reply's output or error, of a release's output, or of what can't be used
	timer   uint64
	action  events.Action
	command events.Command
	request string
	by      uint64 // the sum of who asks, and why; of a submission's traceparent
	keep    bool
	as      events.StepState
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
	made    [2]string // the digests of a submission that the event can be of
	due     int64     // its complete_by, in ms; 0: none
	request string
	by      uint64
	agent   string        // of a reply's attempt
	token   uint64        // of that attempt, as attempt.token
	from    string        // the instance that replied; empty: it isn't said
	body    uint64        // the sum of an output or an error, where one is written
	written bool          // one is
	effect  events.Effect // of a failure
	later   time.Duration // of a failure: the wait that its agent asked for
	large   bool          // what the agent said was too large
	asks    []events.Action
	ending  events.TaskState
	keep    bool
	as      events.StepState
	erred   []string // steps in error that a resubmit may name
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

// InputsRead reports that all records of a partition of an inbox with offsets in [from, to) were fed. Lower ones
// were trimmed, higher ones weren't written yet.
func (c *Checker) InputsRead(inbox events.Inbox, partition int32, from, to int64) {
	in := c.inboxOf(inbox, partition)
	in.read, in.from, in.to = true, from, to
	for offset := range in.leads.all() {
		if !in.expects(offset) {
			in.leads.remove(offset)
		}
	}
}

// expects reports whether the record at an offset may still be fed, or should have been.
func (in *inbox) expects(offset int64) bool {
	return !in.read || offset >= in.from && offset < in.to
}

// whole reports whether a record at an offset was fed, if there was one: between, some may have been trimmed
// while the inbox was read.
func (in *inbox) whole(offset int64) bool {
	if in.read {
		return offset >= in.from && offset < in.to
	}
	return in.fed && offset >= in.first && offset <= in.last
}

// Consumed sets the group's position in a partition of an inbox.
func (c *Checker) Consumed(inbox events.Inbox, partition int32, next int64) {
	in := c.inboxOf(inbox, partition)
	in.consumed = max(in.consumed, next)
}

// Input takes the next record of a partition of an inbox. It ignores records of other topics, and repeated
// records.
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
		x.body = sumOf(r.Value)
	}
	if l := in.leads.remove(r.Offset); l != nil {
		c.checkInput(kind, x, l)
		return
	}
	in.inputs.put(r.Offset, x)
}

// inputChunk is how many inputs are allocated at a time.
const inputChunk = 64

func (c *Checker) newInput() *input {
	if len(c.blank) == 0 {
		c.blank = make([]input, inputChunk)
	}
	x := &c.blank[0]
	c.blank = c.blank[1:]
	return x
}

// inputOf decodes a record as a scheduler does.
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
		x.says, x.version, x.by, x.due = in.Digest(), in.Version, sumOfText(in.Traceparent), millis(in.CompleteBy)
	case *events.Reply:
		if in.Token == "" {
			x.poison = events.ReasonBadToken
			return x
		}
		x.ref, x.outcome, x.effect, x.later, x.says = in.Ref, in.Outcome, in.Effect, events.AskedWait(in.Ref.Kind, in.RetryAfter), in.Source
		x.token = sumOfText(events.TokenHash(task, in.Ref, in.Token))
		if x.body = sumOf(in.Body); x.outcome != events.Completed {
			x.body = sumOfError(in.Failure())
		}
		// Its agent didn't write it when it came here; where it did, it may have been in time.
		x.exempt = x.hop || events.Redriven(r) || c.o.Exempt != nil && c.o.Exempt(r)
	case *events.Recovery:
		x.ref, x.timer, x.action = events.RequestRef{Step: in.Step, Kind: in.Kind}, in.Timer, in.Action
	case *events.Control:
		x.command, x.request, x.ref.Step, x.by = in.Command, in.RequestID, in.Step, sumOfBy(&in.By)
		x.keep, x.as, x.body = in.Keep, in.As, sumOf(in.Output)
	}
	return x
}

// hopped records where a forwarded record came from: "partition/offset".
func (c *Checker) hopped(kind events.Inbox, from string) {
	p, o, _ := strings.Cut(from, "/")
	partition, err := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	if err == nil && err2 == nil { // else a stranger wrote it
		c.hops[place{inboxPart{kind, int32(partition)}, offset}] = true
	}
}

// checkCause compares the first event of a cause with its input, now or when the input is fed.
func (c *Checker) checkCause(p *partition, s *eventCheck) {
	if s.e.Cause.Inbox == events.Recoveries {
		c.timing.accepted++
	}
	if !c.o.Inputs {
		return
	}
	cause := s.e.Cause
	if !p.isSameTopic(cause.Inbox, c.o.TopicIDs[cause.Inbox]) {
		return // its input is gone, with the topic that it was in
	}
	in := p.inputs[cause.Inbox]
	if in == nil || cause.Partition != s.r.Partition {
		in = c.inboxOf(cause.Inbox, cause.Partition)
		if cause.Partition == s.r.Partition {
			p.inputs[cause.Inbox] = in
		}
	}
	x := in.inputs.remove(cause.Offset)
	switch {
	case x != nil:
		s.lead(&c.met, x)
		c.checkInput(cause.Inbox, x, &c.met)
	case in.expects(cause.Offset):
		l := &lead{}
		s.lead(l, nil)
		in.leads.put(cause.Offset, l)
	}
}

// checkInput compares an input with the first event that it led to.
func (c *Checker) checkInput(kind events.Inbox, x *input, l *lead) {
	promise, what := c.compareInput(kind, x, l)
	if what != "" {
		c.addHistoryFault(Fault{promise, l.task, topicEvents, l.partition, l.offset, what})
	}
	if kind == events.Replies {
		c.checkLateReply(x, l.place, &c.late, &c.faults)
	}
}

// addHistoryFault adds a fault of a task's history that was found after its event.
func (c *Checker) addHistoryFault(f Fault) {
	if t := c.tasks[f.Task]; t != nil {
		if t.broken {
			return
		}
		t.broken = true
	}
	c.faults.add(f)
}

// lateReplies are those that were written after the complete-by of their
// attempt.
type lateReplies struct {
	count int
	most  time.Duration
}

// checkLateReply checks that no reply is written after the complete-by of its attempt (P17).
func (c *Checker) checkLateReply(x *input, at place, all *lateReplies, fs *faults) {
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

package verify

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// inboxPart names a partition of an inbox. place names a record of it.
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
	first, last int64 // the lowest and the highest offset fed
	read        bool  // InputsRead was called: all records in [from, to) are fed
	from, to    int64
	consumed    int64 // the group's position
	inputs      byOffset[input]
	leads       byOffset[lead] // leads whose input wasn't fed yet
}

// input is a record of an inbox in a short form.
type input struct {
	task       string
	unreadable events.Reason // why it can't be used; empty: it is usable
	hop        bool          // it was forwarded
	where      int32         // the partition in which it belongs
	at         int64         // its timestamp, in ms
	exempt     bool
	// The content of the record: the digest of a submission, the attempt of a reply, the timer of a recovery.
	says    string // a submission's digest, or a reply's ce_source
	version int
	due     int64 // the complete_by that a submission asks for, in ms; 0: none
	ref     events.RequestRef
	token   uint64 // a hash of the token hash of a reply
	outcome events.Outcome
	effect  events.Effect
	later   time.Duration // the wait that a reply asks for
	body    uint64        // a hash of a reply's output or error, of a release's output, or of an unusable record's value
	timer   uint64
	action  events.Action
	command events.Command
	request string
	by      uint64 // a hash of the operator and the reason, or of a submission's origin
	keep    bool
	refund  bool // an undo may be of a processed task
	as      events.StepState
	// withdraws is true for the withdrawal of a child. Its ref and token are those of the parent's undo.
	withdraws bool
	item      *int // of the child that replies; nil: none
}

// lead is the first event that an input led to, in a short form.
type lead struct {
	place
	task    string
	offset  int64 // of the event
	fact    string
	slot    events.Slot
	attempt int
	timer   uint64 // the timer that it ended
	digest  string
	made    [2]string // the possible digests of the submission that led to the event
	due     int64     // the complete_by in the event, in ms; 0: none
	request string
	by      uint64
	agent   string        // the agent of a reply's attempt
	token   uint64        // the token of that attempt, as attempt.token
	from    string        // the instance that replied; empty: unknown
	body    uint64        // a hash of the output or the error in the event, if written
	written bool          // the event has an output or an error
	effect  events.Effect // of a failure
	later   time.Duration // the wait that the agent of a failure asked for
	large   bool          // the agent's error was too large to be stored
	asks    []events.Action
	ending  events.TaskState
	keep    bool
	refund  bool // a processed task is undone
	ofItem  bool // the event is about the item of a step
	item    int
	as      events.StepState
	erred   []string // steps in error that a resubmit may name
	version int      // that a task was migrated to
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

// whole reports whether a record at an offset was certainly fed if it exists. Records in between may have been trimmed
// while the inbox was read.
func (in *inbox) whole(offset int64) bool {
	if in.read {
		return offset >= in.from && offset < in.to
	}
	return in.fed && offset >= in.first && offset <= in.last
}

// Consumed sets the position of the consumer group in a partition of an inbox.
func (c *Checker) Consumed(inbox events.Inbox, partition int32, next int64) {
	in := c.inboxOf(inbox, partition)
	in.consumed = max(in.consumed, next)
}

// Input takes the next record of a partition of an inbox. It ignores records of other topics, and repeated records.
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
	if x.unreadable != "" {
		c.unreadable++
		x.body = sumOf(r.Value)
	}
	if l := in.leads.remove(r.Offset); l != nil {
		c.checkInput(kind, x, l)
		return
	}
	in.inputs.put(r.Offset, x)
}

// inputChunk is the number of inputs that are allocated at a time.
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
		x.unreadable = unusable.Reason
		return x
	case err != nil:
		x.unreadable = events.ReasonBadJSON
		return x
	}
	x.task = task
	if len(r.Key) > 0 && string(r.Key) != task {
		x.unreadable = events.ReasonWrongKey
		return x
	}
	if c.o.Partitions > 0 && task != "" {
		x.where = events.Partition([]byte(task), c.o.Partitions)
	}
	if x.where != r.Partition && x.hop {
		x.unreadable = events.ReasonMisplaced
		return x
	}
	switch in := in.(type) {
	case *events.Submission:
		x.says, x.version, x.by, x.due = in.Digest(), in.Version, sumOfOrigin(in.Traceparent, in.Intake, in.Parent), millis(in.CompleteBy)
	case *events.Reply:
		if in.Token == "" {
			x.unreadable = events.ReasonBadToken
			return x
		}
		x.ref, x.outcome, x.effect, x.later, x.says = in.Ref, in.Outcome, in.Effect, events.AskedWait(in.Ref.Kind, in.RetryAfter), in.Source
		x.token, x.item = sumOfText(events.TokenHash(task, in.Ref, in.Token)), in.Item
		if x.body = sumOf(in.Body); x.outcome != events.Completed && x.outcome != events.Progress {
			x.body = sumOfError(in.Failure())
		} else if in.Ref.Kind == events.Check {
			became, output, _ := in.Became()
			x.body = sumOfAnswer(became, output)
		}
		// A forwarded or redriven reply was written here later than its agent wrote it, which may have been in time.
		x.exempt = x.hop || events.Redriven(r) || c.o.Exempt != nil && c.o.Exempt(r)
	case *events.Recovery:
		x.ref, x.timer, x.action = events.RequestRef{Step: in.Step, Kind: in.Kind}, in.Timer, in.Action
	case *events.Control:
		x.command, x.request, x.ref.Step, x.by = in.Command, in.RequestID, in.Step, sumOfBy(&in.By)
		if x.version = in.Version; in.DryRun {
			x.version = dryRun
		}
		x.keep, x.refund, x.as, x.body = in.Keep, in.Processed, in.As, sumOf(in.Output)
	case *events.Withdrawal:
		x.withdraws, x.ref, x.keep = true, in.Ref, in.Keep
		x.token = sumOfText(events.TokenHash(in.Parent, in.Ref, in.Token))
	case *events.Signal:
		x.ref.Step, x.request, x.by, x.body = in.Name, in.ID, sumOfBy(&events.By{Who: in.By, Claimed: in.Claimed}), sumOf(in.Data)
	}
	return x
}

// hopped records where a forwarded record came from: "partition/offset".
func (c *Checker) hopped(kind events.Inbox, from string) {
	p, o, _ := strings.Cut(from, "/")
	partition, err := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	if err == nil && err2 == nil { // else the header is not Waybill's
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
		return // its input was deleted with its topic
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
	if fault := c.compareInput(kind, x, l); fault != nil {
		c.addHistoryFault(Fault{fault.Promise, l.task, topicEvents, l.partition, l.offset, fault.What})
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

// lateReplies counts replies that were written after the complete-by of their attempt.
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
	t = t.lifeWith(x.ref, x.token)
	i, ok := t.findAttempt(x.ref)
	if !ok || t.attempts[i].due == never {
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

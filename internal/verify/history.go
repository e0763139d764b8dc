package verify

import (
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
)

const topicEvents = "events"

// partition is the state of the checks of a partition of events.
type partition struct {
	state  events.PartitionState
	next   [events.Inboxes]int64 // one more than the highest cause of each inbox
	least  [events.Inboxes]int64 // offset that the next cause of each inbox may have
	cause  events.Cause          // of the previous event
	any    bool                  // there was a previous event
	task   string                // task of the cause's events so far; empty: none yet
	doing  decision
	owner  string // of the last claim; empty: none was fed
	source string // the ce_source of that owner
	queued bool   // the cause has freed slots, so no further event of its own task may come
	last   *task  // of the previous event, if it is checked
	inputs [events.Inboxes]*inbox
	// While running is true, events from offset there on are newer than the read of the inboxes (EventsThere). Once
	// such an event has come, since is true, and before is the value of next at that time.
	there int64
	// recreated is true if the inbox was deleted and created again. Offsets of dead letters and of earlier causes may
	// then be of another topic.
	recreated      [events.Inboxes]bool
	running, since bool
	before         [events.Inboxes]int64
	claims         []takeover
	forgettings    forgettings
}

// Event checks the next record of a partition of events. It returns the decoded event, which is valid until the
// next call, or nil if the record is unreadable, which is a fault. Nothing of the record is retained unless
// Options.Keep is set.
func (c *Checker) Event(r *events.Record) *events.Event {
	c.events++
	p := c.part(r.Partition)
	p.until(r.Offset)
	e, err := c.reader.Decode(r)
	if err != nil {
		c.recordUnreadable(p, r, err)
		return nil
	}
	t := c.taskOf(p, e)
	c.joinPartition(p, e)
	p.resetRecreated(e)
	if c.oneTask {
		p.skipClaims(e)
	}
	if err := p.state.Evolve(e); err != nil {
		c.faults.add(Fault{"P11", e.Task, topicEvents, r.Partition, r.Offset, err.Error()})
		p.state.At = e.At // so that the fault is reported once
	}
	before := p.next
	first, what := p.follow(e.Cause, e.Task, r.Partition, e.Queued)
	if !p.doing.contains(e) {
		p.doing.close()
		p.doing = decision{cause: e.Cause, queued: e.Queued}
	}
	if e.Task == "" {
		if f, forgot := e.Fact.(*events.PartitionForgot); forgot {
			c.checkForgot(p, e, f, r)
		} else {
			c.checkClaim(p, e, r)
			p.claims = append(p.claims, takeover{millis(r.Time), before})
		}
		if what != "" {
			c.faults.add(Fault{"P10", "", topicEvents, r.Partition, r.Offset, what})
		}
		return e
	}
	var earlier *task
	if c.beginsAgain(p, t, e) {
		earlier, t = t, nil
	}
	if t == nil && !c.inTimeRange(e.Seq, r) {
		c.others++
		return e
	}
	if t == nil {
		t = &task{id: e.Task, name: e.Task, earlier: earlier, partition: r.Partition, open: c.room()}
		c.tasks[e.Task] = t
		c.order = append(c.order, t)
		if n := c.o.Partitions; n > 0 && events.Partition(r.Key, n) != r.Partition {
			c.addFirstFault(t, r, faultf("P10", "the task belongs in partition %d", events.Partition(r.Key, n)))
		}
	}
	p.last = t
	if changed := c.checkHashes(p, t, e, r); changed != nil {
		c.addFirstFaultAt(t, *changed)
	}
	if what != "" {
		c.addFirstFault(t, r, &Fault{Promise: "P10", What: what})
	}
	if what := p.checkOwner(r); what != "" {
		c.addFirstFault(t, r, &Fault{Promise: "P11", What: what})
	}
	c.checkPreviousDecision(t, e, r)
	p.doing.task = t
	c.ofTask(p, t, e, r, first)
	return e
}

// resetRecreated resets the positions of inboxes that a claim names as recreated topics.
func (p *partition) resetRecreated(e *events.Event) {
	f, ok := e.Fact.(*events.PartitionClaimed)
	if !ok {
		return
	}
	for i, id := range f.TopicIDs {
		was := p.state.TopicIDs[i]
		if id == "" || was == "" || was == id {
			continue
		}
		p.recreated[i] = true
		p.next[i], p.least[i], p.before[i] = 0, 0, 0
		if p.cause.Inbox == events.Inbox(i) {
			p.any = false
		}
	}
}

// isSameTopic reports whether causes in an inbox belong to the topic with an id; empty: unknown.
func (p *partition) isSameTopic(inbox events.Inbox, id string) bool {
	is := p.state.TopicIDs[inbox]
	return is == "" || id == "" || is == id
}

// checkOwner checks that an event was written by the owner of its epoch (P11).
func (p *partition) checkOwner(r *events.Record) string {
	if p.owner == "" {
		return ""
	}
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key != events.HeaderSource {
			continue
		}
		source := r.Headers[i].Value
		if p.source != "" && string(source) == p.source {
			return ""
		}
		if s := string(source); s == p.owner || strings.HasSuffix(s, "/"+p.owner) {
			p.source = s
			return ""
		}
		return fmt.Sprintf("it was written by %q, and epoch %d is that of %q", source, p.state.Epoch, p.owner)
	}
	return fmt.Sprintf("it doesn't say who wrote it, and epoch %d is that of %q", p.state.Epoch, p.owner)
}

// taskOf returns the task of an event, or nil if it is unknown. Its id doesn't alias the record. Consecutive
// events often belong to the same task.
func (c *Checker) taskOf(p *partition, e *events.Event) *task {
	t := p.last
	if t == nil || t.id != e.Task {
		t = c.tasks[e.Task]
	}
	if t == nil {
		e.Task = strings.Clone(e.Task)
		return nil
	}
	e.Task = t.id
	return t
}

// hasTimeRange reports whether only tasks of a time range are checked.
func (c *Checker) hasTimeRange() bool { return !c.o.Since.IsZero() || !c.o.Until.IsZero() }

// inTimeRange reports whether an event starts a task that is checked.
func (c *Checker) inTimeRange(seq uint64, r *events.Record) bool {
	return !c.hasTimeRange() || seq == 1 && !r.Time.Before(c.o.Since) && (c.o.Until.IsZero() || !r.Time.After(c.o.Until))
}

// joinPartition takes the epoch of a partition from its first event if the log isn't fed from its start.
func (c *Checker) joinPartition(p *partition, e *events.Event) {
	if c.o.Since.IsZero() || p.state.Epoch > 0 {
		return
	}
	p.state.Epoch = e.Epoch
	if _, claimed := e.Fact.(*events.PartitionClaimed); claimed {
		p.state.Epoch--
	}
}

// recordUnreadable reports an unreadable event. Its task isn't checked any further.
func (c *Checker) recordUnreadable(p *partition, r *events.Record, why error) {
	id := string(r.Key)
	p.doing = decision{}
	if e, err := events.DecodeEnvelope(r); err == nil {
		p.follow(e.Cause, id, r.Partition, e.Queued)
	}
	t := c.tasks[id]
	_, seq, _ := events.EventName(r)
	switch {
	case t != nil:
		c.addFirstFault(t, r, &Fault{Promise: "P15", What: why.Error()})
		return
	case id != "" && !c.inTimeRange(seq, r):
		c.others++
		return
	}
	c.faults.add(Fault{"P15", id, topicEvents, r.Partition, r.Offset, why.Error()})
}

// follow checks P10 as far as the log alone shows it. The events of an input are consecutive and of one task. Inputs
// are consumed in the order of offsets, in their own partition. After these events, steps of any task may start in
// slots that the input freed (queued). first reports whether the event is the first of its cause and not queued.
func (p *partition) follow(cause events.Cause, task string, number int32, queued bool) (first bool, what string) {
	same := p.any && cause == p.cause
	switch {
	case cause.Partition != number:
		what = fmt.Sprintf("the cause %s is of another partition", cause)
	case same && !queued && p.queued:
		what = fmt.Sprintf("the cause %s had freed a slot before it led to this", cause)
	case same && !queued && task != "" && p.task != "" && p.task != task:
		what = fmt.Sprintf("the cause %s led to events of task %q too", cause, p.task)
	case !same && cause.Offset < p.least[cause.Inbox]:
		what = fmt.Sprintf("the cause %s comes after %s/%d/%d: an input was used twice, or its events don't stand together",
			cause, cause.Inbox, number, p.least[cause.Inbox]-1)
	}
	if !same {
		p.cause, p.any, p.task, p.queued = cause, true, "", false
	}
	p.queued = p.queued || queued
	first = !queued && task != "" && p.task != task
	if first {
		p.task = task
	}
	p.next[cause.Inbox] = max(p.next[cause.Inbox], cause.Offset+1)
	p.least[cause.Inbox] = cause.Offset + 1 // if it decreased, that is reported once
	return first, what
}

// ofTask checks an event against the state of its task, and applies it.
func (c *Checker) ofTask(p *partition, t *task, e *events.Event, r *events.Record, first bool) {
	if t.broken {
		return
	}
	if t.state.Terminal() {
		what := c.checkReopening(t, e)
		if c.isForgotten(p, t, e) {
			what = e.Fact.Type() + " of a task whose id was forgotten"
		}
		if what != "" {
			c.addFirstFault(t, r, &Fault{Promise: "P2", What: what})
			return
		}
	}
	s := &c.turn
	*s = eventCheck{c: c, t: t, e: e, r: r, first: first, replied: p.next[events.Replies], about: e.Fact.About()}
	s.rule = ruleOf(&s.about)
	if fault := s.checkBefore(); fault != nil {
		c.addFirstFault(t, r, fault)
		return
	}
	next, err := events.Evolve(t.open.state, e, c.reader.Hash(r))
	if err != nil {
		c.addFirstFault(t, r, &Fault{Promise: "P2", What: err.Error()})
		return
	}
	t.open.state, t.open.offset = next, r.Offset
	if f, received := e.Fact.(*events.TaskReceived); received && f.Plan.DedupeFor > 0 {
		t.name = next.KeyName()
	}
	if fault := s.countAndCheck(); fault != nil {
		c.addFirstFault(t, r, fault)
		return
	}
	if what := c.checkEnd(p, t, e); what != "" {
		c.addFirstFault(t, r, &Fault{Promise: "P2", What: what})
		return
	}
	s.extendDecision(&p.doing)
	if first {
		c.checkCause(p, s)
	}
	if in := e.Cause.Inbox; !e.Queued && (in == events.Tasks || in == events.Controls) {
		t.askedAt = millis(e.At)
	}
	if was := t.recordState(c.o.Keep); was != nil {
		c.spare = append(c.spare, was)
	}
}

// room returns an open for a new task. It reuses the memory of an ended task, if any.
func (c *Checker) room() *open {
	n := len(c.spare) - 1
	if n < 0 {
		return &open{}
	}
	o := c.spare[n]
	c.spare = c.spare[:n]
	clear(o.runs)
	*o = open{timers: events.Timers{Armed: o.timers.Armed[:0]}, runs: o.runs[:0]}
	return o
}

// EventsThere sets the offset up to which events of a partition existed before the inboxes were read. Inputs that
// only later events show as consumed may have been forwarded beyond what was read. It is called before the
// partition's events are fed. Without it, all events count as earlier.
func (c *Checker) EventsThere(partition int32, next int64) {
	p := c.part(partition)
	p.there, p.running = next, true
}

// part returns the state of a partition of events.
func (c *Checker) part(number int32) *partition {
	p := c.parts[number]
	if p == nil {
		p = &partition{}
		c.parts[number] = p
	}
	return p
}

// until records what was consumed before the inboxes were read, at the first event since then.
func (p *partition) until(offset int64) {
	if p.running && offset >= p.there {
		p.running, p.since = false, true
		p.before = p.next
	}
}

// consumedBefore reports whether an input was consumed before the inboxes were read.
func (p *partition) consumedBefore(inbox events.Inbox, offset int64) bool {
	return p == nil || !p.since || offset < p.before[inbox]
}

package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// By is the operator of a command, and the reason given.
type By struct {
	Who       string // by a console's token; at most MaxNameBytes
	Claimed   string // an unverified claim: Kafka doesn't tell which principal wrote a record; at most MaxNameBytes
	Why       string // at most MaxWhyBytes
	RequestID string // a repeated request has the same answer and no second effect; empty: none
}

func (b *By) fields(c *codec) {
	c.str("by", &b.Who)
	c.str("by_claimed", &b.Claimed)
	c.str("why", &b.Why)
	c.str("request_id", &b.RequestID)
}

// PartitionClaimed begins an owner's first transaction in a partition.
type PartitionClaimed struct {
	Owner string // "<scheduler>/<worker>"
	// TopicIDs are those of the inboxes that the owner reads. Offsets of causes, from this
	// event on, are positions in the topics with these ids.
	TopicIDs TopicIDs
}

// Type is the ce_type.
func (*PartitionClaimed) Type() string { return "waybill.partition.claimed.v1" }

// About is what it says of itself.
func (*PartitionClaimed) About() About {
	return About{Verb: VerbClaimed}
}

func (f *PartitionClaimed) apply(*Task, *Event) error {
	return fmt.Errorf("no rule for %s", f.Type())
}

func (f *PartitionClaimed) fields(c *codec) {
	c.str("owner", &f.Owner)
	f.TopicIDs.fields(c)
}

// TopicIDs are the ids of the inboxes' topics, as Kafka's tools print them: 16 bytes in base64url.
// A topic that was deleted and created again has another id. Empty: not known.
type TopicIDs [Inboxes]string

func (ids *TopicIDs) fields(c *codec) {
	v := ids
	if !c.decoding && *ids == (TopicIDs{}) {
		v = nil
	}
	optional(c, "topic_ids", &v, func(c *codec, ids *TopicIDs) {
		for i := range ids {
			c.str(Inbox(i).String(), &ids[i])
		}
	})
	if c.decoding && v != nil {
		*ids = *v
	}
}

// TaskReceived is a task's first event: the accepted submission, and the plan.
type TaskReceived struct {
	Workflow    string
	Version     int
	Input       json.RawMessage
	ReplyTo     string
	Priority    int
	Labels      map[string]string
	CompleteBy  time.Time // asked for by the submitter; zero: by the plan
	Digest      string
	Traceparent string
	Plan        *Plan
}

// Type is the ce_type.
func (*TaskReceived) Type() string { return "waybill.task.received.v1" }

// About is what it says of itself.
func (f *TaskReceived) About() About {
	return About{Verb: VerbReceived, Raw: &f.Input}
}

func (*TaskReceived) apply(*Task, *Event) error { return errors.New("received again") }

func (f *TaskReceived) fields(c *codec) {
	c.interned("workflow", &f.Workflow)
	c.int("version", &f.Version)
	c.raw("input", &f.Input)
	c.str("reply_to", &f.ReplyTo)
	c.int("priority", &f.Priority)
	c.labels("labels", &f.Labels)
	c.time("complete_by", &f.CompleteBy)
	c.str("digest", &f.Digest)
	c.str("traceparent", &f.Traceparent)
	c.plan("plan", &f.Plan)
}

func (c *codec) plan(name string, v **Plan) {
	if c.planIfAny(name, v); c.decoding && *v == nil {
		c.fail(name, "missing")
	}
}

func (c *codec) planIfAny(name string, v **Plan) {
	if !c.decoding {
		if *v != nil {
			c.raw(name, &(*v).raw)
		}
		return
	}
	if c.inOrder.active {
		if *v = c.reuseLastPlan(name); *v != nil {
			return
		}
	}
	val, ok := c.find(name)
	if !ok {
		return
	}
	p, err := decodePlan(val)
	if err != nil {
		c.fail(name, err.Error())
		return
	}
	*v = p
}

// TaskStarted begins the processing of a task. Its due is the task's
// complete-by.
type TaskStarted struct{}

// Type is the ce_type.
func (*TaskStarted) Type() string { return "waybill.task.started.v1" }

// About is what it says of itself.
func (*TaskStarted) About() About {
	return About{Verb: VerbStarted, Arms: TimerTask, Disarms: DisarmsOwn}
}

func (f *TaskStarted) apply(t *Task, e *Event) error {
	if err := t.enterState(e, f.About()); err != nil {
		return err
	}
	t.CompleteBy = e.Due
	return nil
}

func (*TaskStarted) fields(c *codec) {}

// TaskProcessed ends a task as it should end.
type TaskProcessed struct {
	Output json.RawMessage
}

// Type is the ce_type.
func (*TaskProcessed) Type() string { return "waybill.task.processed.v1" }

// About is what it says of itself.
func (f *TaskProcessed) About() About {
	return About{Verb: VerbProcessed, Disarms: DisarmsAll, Raw: &f.Output}
}

func (f *TaskProcessed) apply(t *Task, e *Event) error {
	if err := t.enterState(e, f.About()); err != nil {
		return err
	}
	t.Output = f.Output
	return nil
}

func (f *TaskProcessed) fields(c *codec) { c.raw("output", &f.Output) }

// TaskUndoing is the decision to undo: nothing new starts, what waits ends.
type TaskUndoing struct {
	By
	Ending TaskState // undone or cancelled
	Keep   bool      // what completed stays
	Error  *Error
}

// Type is the ce_type.
func (*TaskUndoing) Type() string { return "waybill.task.undoing.v1" }

// About is what it says of itself.
func (f *TaskUndoing) About() About {
	return About{Verb: VerbUndoing, Disarms: DisarmsWaiting, Ending: f.Ending, Failure: &f.Error, By: &f.By}
}

func (f *TaskUndoing) apply(t *Task, e *Event) error {
	if err := t.enterState(e, f.About()); err != nil {
		return err
	}
	t.Ending, t.Keep = f.Ending, f.Keep
	if f.Error != nil {
		t.Error = f.Error
	}
	return nil
}

func (f *TaskUndoing) fields(c *codec) {
	knownText(c, "ending", &f.Ending)
	c.bool("keep", &f.Keep)
	c.errorField("error", &f.Error)
	f.By.fields(c)
}

// TaskUndone ends a task of which nothing remains.
type TaskUndone struct{}

// Type is the ce_type.
func (*TaskUndone) Type() string { return "waybill.task.undone.v1" }

// About is what it says of itself.
func (*TaskUndone) About() About {
	return About{Verb: VerbUndone, Disarms: DisarmsAll}
}

func (f *TaskUndone) apply(t *Task, e *Event) error { return t.enterState(e, f.About()) }

func (*TaskUndone) fields(c *codec) {}

// TaskCancelled ends a task that an operator cancelled.
type TaskCancelled struct{ By }

// Type is the ce_type.
func (*TaskCancelled) Type() string { return "waybill.task.cancelled.v1" }

// About is what it says of itself.
func (f *TaskCancelled) About() About {
	return About{Verb: VerbCancelled, Disarms: DisarmsAll, By: &f.By}
}

func (f *TaskCancelled) apply(t *Task, e *Event) error { return t.enterState(e, f.About()) }

func (f *TaskCancelled) fields(c *codec) { f.By.fields(c) }

// TaskHeld is the decision to wait for an operator.
type TaskHeld struct {
	Error *Error
}

// Type is the ce_type.
func (*TaskHeld) Type() string { return "waybill.task.held.v1" }

// About is what it says of itself.
func (f *TaskHeld) About() About {
	return About{Verb: VerbHeld, Disarms: DisarmsWaiting, Failure: &f.Error}
}

func (f *TaskHeld) apply(t *Task, e *Event) error {
	if err := t.enterState(e, f.About()); err != nil {
		return err
	}
	t.Error = f.Error
	return nil
}

func (f *TaskHeld) fields(c *codec) { c.errorField("error", &f.Error) }

// TaskResumed ends a hold: by resubmit, or because the last step in error was
// released. Processing goes on, or undoing if that was held. Its due, while
// processing, is the task's new complete-by.
type TaskResumed struct {
	By
}

// Type is the ce_type.
func (*TaskResumed) Type() string { return "waybill.task.resumed.v1" }

// About is what it says of itself.
func (f *TaskResumed) About() About {
	return About{Verb: VerbResumed, Arms: TimerTask, Disarms: DisarmsWaiting, By: &f.By}
}

// What a hold ended may start again, with a fresh failure count; an undo in error likewise.
func (f *TaskResumed) apply(t *Task, e *Event) error {
	if err := t.enterState(e, f.About()); err != nil {
		return err
	}
	t.Error = nil
	if t.State == StateProcessing {
		t.CompleteBy = e.Due
	}
	return nil
}

func (f *TaskResumed) fields(c *codec) { f.By.fields(c) }

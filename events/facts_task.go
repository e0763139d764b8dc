package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
)

// By is the operator of a command, and the reason given.
type By struct {
	Who       string // by a console's token; at most MaxNameBytes
	Claimed   string // unverified, since Kafka doesn't say which principal wrote a record; at most MaxNameBytes
	Why       string // at most MaxWhyBytes
	RequestID string // a repeated request gets the same answer and has no second effect; empty: none
}

func (b *By) fields(c *codec) {
	c.str("by", &b.Who)
	c.str("by_claimed", &b.Claimed)
	c.str("why", &b.Why)
	c.str("request_id", &b.RequestID)
}

// PartitionClaimed is the first event in an owner's first transaction in a partition.
type PartitionClaimed struct {
	Owner string // "<scheduler>/<worker>"
	// TopicIDs are the ids of the inboxes that the owner reads. From this event on, offsets of causes are positions in
	// the topics with these ids.
	TopicIDs TopicIDs
}

func (*PartitionClaimed) Type() string { return "waybill.partition.claimed.v1" }

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

// TaskReceived is a task's first fact: the accepted submission and the plan.
type TaskReceived struct {
	Workflow    string
	Version     int
	Input       json.RawMessage
	ReplyTo     string
	Priority    int
	Labels      map[string]string // of the submission
	Computed    map[string]string // labels that the definition computed and the submission doesn't have
	CompleteBy  time.Time         // as the submitter asked; zero: the plan decides
	Digest      string
	Traceparent string
	Intake      *IntakeRef // nil: no intake made the submission
	Plan        *Plan
	Parent      *Parent // nil: the task is no child
}

func (*TaskReceived) Type() string { return "waybill.task.received.v1" }

// AllLabels returns the labels of the task. They must not be changed.
func (f *TaskReceived) AllLabels() map[string]string {
	if len(f.Computed) == 0 {
		return f.Labels
	}
	all := maps.Clone(f.Computed)
	maps.Copy(all, f.Labels)
	return all
}

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
	c.labels("computed_labels", &f.Computed)
	c.time("complete_by", &f.CompleteBy)
	c.str("digest", &f.Digest)
	c.str("traceparent", &f.Traceparent)
	optional(c, "intake", &f.Intake, func(c *codec, r *IntakeRef) { r.fields(c) })
	c.plan("plan", &f.Plan)
	c.parent("parent", &f.Parent)
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

// TaskStarted begins the processing of a task. The event's due is the task's complete-by.
type TaskStarted struct{}

func (*TaskStarted) Type() string { return "waybill.task.started.v1" }

func (*TaskStarted) About() About {
	return About{Verb: VerbStarted, Arms: TimerTask, Disarms: DisarmsOwn}
}

func (f *TaskStarted) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() { t.CompleteBy = e.Due })
}

func (*TaskStarted) fields(c *codec) {}

// TaskProcessed ends a task successfully.
type TaskProcessed struct {
	Output   json.RawMessage
	ForgetAt time.Time // from when on the task's id may be forgotten; zero: never
}

func (*TaskProcessed) Type() string { return "waybill.task.processed.v1" }

func (f *TaskProcessed) About() About {
	return About{Verb: VerbProcessed, Disarms: DisarmsAll, Raw: &f.Output}
}

func (f *TaskProcessed) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() { t.Output, t.ForgetAt = f.Output, f.ForgetAt })
}

func (f *TaskProcessed) fields(c *codec) {
	c.raw("output", &f.Output)
	c.time("forget_at", &f.ForgetAt)
}

// TaskUndoing is the decision to undo. No further operation starts, and waiting attempts end.
type TaskUndoing struct {
	By
	Ending TaskState // undone or cancelled
	Keep   bool      // completed steps aren't undone
	Error  *Error
	// Processed is the whole state of a processed task that is undone: Task.Encode as of the event before. Readers keep
	// less of an ended task (Task.Finished), and continue with this. Empty: the task had not ended.
	Processed json.RawMessage
}

func (*TaskUndoing) Type() string { return "waybill.task.undoing.v1" }

func (f *TaskUndoing) About() About {
	return About{Verb: VerbUndoing, Disarms: DisarmsWaiting, Ending: f.Ending, Raw: &f.Processed, Failure: &f.Error, By: &f.By}
}

func (f *TaskUndoing) apply(t *Task, e *Event) error {
	if err := t.reopen(f); err != nil {
		return err
	}
	return t.enterState(e, f.About(), func() {
		t.Ending, t.Keep, t.ForgetAt = f.Ending, f.Keep, time.Time{}
		if f.Error != nil {
			t.Error = f.Error
		}
	})
}

func (f *TaskUndoing) fields(c *codec) {
	knownText(c, "ending", &f.Ending)
	c.bool("keep", &f.Keep)
	c.errorField("error", &f.Error)
	f.By.fields(c)
	c.raw("processed", &f.Processed)
}

// TaskUndone ends a task whose undo is complete.
type TaskUndone struct {
	ForgetAt time.Time // as in TaskProcessed
}

func (*TaskUndone) Type() string { return "waybill.task.undone.v1" }

func (*TaskUndone) About() About {
	return About{Verb: VerbUndone, Disarms: DisarmsAll}
}

func (f *TaskUndone) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() { t.ForgetAt = f.ForgetAt })
}

func (f *TaskUndone) fields(c *codec) { c.time("forget_at", &f.ForgetAt) }

// TaskCancelled ends a task that an operator cancelled.
type TaskCancelled struct {
	By
	ForgetAt time.Time // as in TaskProcessed
}

func (*TaskCancelled) Type() string { return "waybill.task.cancelled.v1" }

func (f *TaskCancelled) About() About {
	return About{Verb: VerbCancelled, Disarms: DisarmsAll, By: &f.By}
}

func (f *TaskCancelled) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() { t.ForgetAt = f.ForgetAt })
}

func (f *TaskCancelled) fields(c *codec) {
	f.By.fields(c)
	c.time("forget_at", &f.ForgetAt)
}

// TaskHeld is the decision to hold the task for an operator.
type TaskHeld struct {
	Error *Error
}

func (*TaskHeld) Type() string { return "waybill.task.held.v1" }

func (f *TaskHeld) About() About {
	return About{Verb: VerbHeld, Disarms: DisarmsWaiting, Failure: &f.Error}
}

func (f *TaskHeld) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() { t.Error = f.Error })
}

func (f *TaskHeld) fields(c *codec) { c.errorField("error", &f.Error) }

// TaskResumed ends a hold, after a resubmit or because the last step in error was released. The task continues
// processing, or undoing if an undo was held. While processing, the event's due is the task's new complete-by.
type TaskResumed struct {
	By
}

func (*TaskResumed) Type() string { return "waybill.task.resumed.v1" }

func (f *TaskResumed) About() About {
	return About{Verb: VerbResumed, Arms: TimerTask, Disarms: DisarmsWaiting, By: &f.By}
}

// apply folds the end of a hold. Steps that the hold ended may start again, with a failure count of 0. So may steps and
// undos in error.
func (f *TaskResumed) apply(t *Task, e *Event) error {
	return t.enterState(e, f.About(), func() {
		t.Error = nil
		if t.State == StateProcessing {
			t.CompleteBy, t.Asked = e.Due, time.Time{}
		}
	})
}

func (f *TaskResumed) fields(c *codec) { f.By.fields(c) }

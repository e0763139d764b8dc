package scheduler

import (
	"fmt"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// notifyStatus writes the notification of a new status, and the alert if the task is held.
func (d *decider) notifyStatus(e *events.Event) {
	t := d.Task
	if t.StatusSeq != e.Seq {
		return
	}
	if h, ok := e.Fact.(*events.TaskHeld); ok {
		a := events.AlertOfHold(e, h, t.Ending, t.CatchFailed(h.Error))
		d.Records = append(d.Records, a.Record(d.env.Namespace, d.env.Source, e.ID(d.env.Partition)))
	}
	if t.ReplyTo == "" {
		return
	}
	if _, ok := e.Fact.(*events.TaskReceived); !ok && t.State == events.StateProcessing {
		return // the status hasn't changed
	}
	d.notifyPresent(t.ReplyTo)
}

// notifyPresent writes the task's present status. Its ce_id is that of the event with the status, so readers can
// recognize a repetition. The status received always has the ce_id of the first event, even if other events followed.
func (d *decider) notifyPresent(replyTo string) {
	t := d.Task
	seq := t.StatusSeq
	n := &events.Notification{Task: t.ID, Workflow: t.Workflow, Status: string(t.State), Output: t.Output, Error: t.Error, At: t.UpdatedAt}
	if t.State == events.StatePending || t.State == events.StateProcessing {
		n.Status, n.Error, n.At, seq = events.StatusReceived, nil, t.SubmittedAt, receivedSeq
	}
	if n.At.IsZero() {
		n.At = d.now
	}
	d.Records = append(d.Records, n.Record(d.env.Namespace, d.env.Source, replyTo, events.TaskEventID(t.ID, seq)))
}

// receivedSeq is the sequence number of a task's first event.
const receivedSeq = 1

func (d *decider) answerControl(x *events.Control, seq uint64, refusal string) {
	a := &events.Answer{Task: x.Task, Control: x.ID, Accepted: refusal == "", Seq: seq, Reason: refusal}
	if d.Task != nil {
		a.State = d.Task.State
	}
	if refusal != "" {
		d.Ignored = IgnoredRefusedControl
	}
	d.Records = append(d.Records, a.Record(d.env.Namespace, d.env.Source))
}

// maxMessageBytes bounds a message that quotes user data.
const maxMessageBytes = 8 << 10

// shortened cuts a long text at a character boundary.
func shortened(s string) string {
	n := maxMessageBytes
	if len(s) <= n {
		return s
	}
	for n > maxMessageBytes-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s ... (%d bytes)", s[:n], len(s))
}

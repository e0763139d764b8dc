package scheduler

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// MaxReopenedBytes is the limit of the event that undoes a processed task, since it contains the whole task. It is below
// the largest record that Kafka takes by default.
const MaxReopenedBytes = 960 << 10

// Histories are processed tasks that were read again from the log, by id.
type Histories map[string]ReadTask

// ReadTask is a task as its events in the log come to.
type ReadTask struct {
	Task *events.Task
	Why  string // it can't be read; empty: Task is valid
}

// undoTask undoes a task that an operator named.
func (d *decider) undoTask(x *events.Control) (why string) {
	f := &events.TaskUndoing{By: x.By, Ending: events.StateUndone, Error: &events.Error{Code: events.CodeUndoRequested, Message: x.Why}}
	if d.Task.State == events.StateProcessed {
		if f.Processed, why = d.wholeTask(); why != "" || d.needHistory {
			return why
		}
	}
	d.emit(f, time.Time{}, nil)
	d.advance()
	return ""
}

// wholeTask returns the stored form of the processed task with its steps. If the store has dropped them, they must have
// been read from the log, otherwise it sets needHistory.
func (d *decider) wholeTask() (stored []byte, why string) {
	t := d.Task
	if t.Plan == nil {
		h, ok := d.env.Histories[t.ID]
		switch {
		case !ok || h.Why == "" && (h.Task.Seq != t.Seq || h.Task.Prev != t.Prev):
			d.needHistory = true
			return nil, ""
		case h.Why != "":
			return nil, fmt.Sprintf("undo: task %q is processed, and %s", t.ID, h.Why)
		}
		t = h.Task
	}
	return reopenedForm(t)
}

// reopenedForm returns the stored form of a processed task, for the event that undoes it, or why it doesn't fit in.
func reopenedForm(t *events.Task) (stored []byte, why string) {
	stored = t.Encode()
	if n := len(stored); n > MaxReopenedBytes {
		return nil, fmt.Sprintf("undo: task %q is processed, and with its history the event would have %d bytes; at most %d", t.ID, n, MaxReopenedBytes)
	}
	return stored, ""
}

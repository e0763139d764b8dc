package waybill

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// story is a task as far as its events were read.
type story struct {
	task *events.Task
	// late: the first event that was read isn't the task's first.
	late  bool
	err   error // what can't be understood; nothing is folded after it
	bytes int   // of the events that were folded: about what the task takes
}

// add folds one of the task's records. One that was folded before changes
// nothing.
func (s *story) add(r *events.Record) {
	if s.err != nil {
		return
	}
	own := *r
	own.Value = bytes.Clone(r.Value) // or the task would keep whole batches in memory
	e, err := events.ReadEvent(&own)
	switch {
	case err != nil:
		s.err = fmt.Errorf("its history can't be read at %w; is this build older than the scheduler?", err)
	case s.task != nil && e.Seq <= s.task.Seq:
	case s.task == nil && e.Seq != 1:
		s.late = true
	default:
		if s.task, err = events.FoldEvent(s.task, e, &own); err != nil {
			s.err = fmt.Errorf("its history can't be followed at %w", err)
			return
		}
		s.bytes += len(own.Value)
	}
}

// whole says that everything the log has was added.
func (s *story) whole() {
	if s.task == nil && s.late && s.err == nil {
		s.err = fmt.Errorf("the log no longer holds its first events: was retention set on the events topic?")
	}
}

// ownerOf is the owner of a partition as of one of its records: whoever wrote
// it, or the one before.
func ownerOf(ns events.Namespace, r *events.Record, before string) string {
	source, _ := r.Header(events.HeaderSource)
	if owner, ok := strings.CutPrefix(source, string(ns)+"scheduler/"); ok {
		return owner
	}
	return before
}

package logclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// taskFold is a task as of the events that were read.
type taskFold struct {
	task *events.Task
	// startMissing: an event was read whose predecessors were not.
	startMissing bool
	// endMissed: such an event may have ended the task.
	endMissed bool
	next      int64 // the offset after the last event that was folded
	err       error // what can't be understood; nothing is folded after it
	bytes     int   // of the events that were folded: about what the task takes
}

// apply folds one of the task's records. A record that was folded before changes
// nothing. The first event of another task with the same id begins again: the id was forgotten.
func (s *taskFold) apply(r *events.Record) {
	if s.err != nil {
		return
	}
	e, err := events.ReadEvent(r)
	switch {
	case err != nil:
		s.err = &UnreadableError{fmt.Errorf("its events can't be decoded: %w; this build may be older than the scheduler, upgrade it", err)}
	case s.task != nil && r.Offset < s.next:
	case s.task == nil && e.Seq != 1:
		s.startMissing = true
		s.endMissed = s.endMissed || mayEnd(e.Fact)
	default:
		f := events.Fold{Task: s.task}
		if err := f.Apply(e, r); err != nil {
			s.err = &UnreadableError{fmt.Errorf("its events can't be applied: %w; run `waybill verify`", err)}
			return
		}
		if s.task, s.next = f.Task, f.Next; e.Seq == 1 {
			s.bytes = 0
		}
		s.bytes += len(r.Value)
	}
}

// mayEnd reports whether an event ends a task or holds it.
func mayEnd(f events.Fact) bool {
	switch f.Type() {
	case (*events.TaskProcessed)(nil).Type(), (*events.TaskUndone)(nil).Type(), (*events.TaskCancelled)(nil).Type(), (*events.TaskHeld)(nil).Type():
		return true
	}
	return false
}

// checkComplete is called once the log was read from its start: a missing first event is an error then.
func (s *taskFold) checkComplete() {
	if s.task == nil && s.startMissing && s.err == nil {
		s.err = &UnreadableError{errors.New("the log no longer has its first events; check that the events topic has no retention")}
	}
}

// ownerOf returns the owner of a partition as of one of its records: the scheduler that wrote it,
// or before if the record names none.
func ownerOf(ns events.Namespace, r *events.Record, before string) string {
	source, _ := r.Header(events.HeaderSource)
	if owner, ok := strings.CutPrefix(source, string(ns)+"scheduler/"); ok {
		return owner
	}
	return before
}

// ReadTask folds a task from its partition, which it reads from its start.
func ReadTask(ctx context.Context, log Log, ns events.Namespace, partitions int32, id string) (t events.TaskView, found bool, err error) {
	p := events.Partition([]byte(id), partitions)
	s, owner := taskFold{}, ""
	next, err := log.Read(ctx, ns.Events(), p, 0, time.Time{}, func(rs []events.Record) error {
		for i := range rs {
			if string(rs[i].Key) == id {
				s.apply(&rs[i])
			}
			owner = ownerOf(ns, &rs[i], owner)
		}
		return nil
	})
	switch {
	case err != nil:
		return t, false, err
	case s.err != nil:
		return t, false, s.err
	case s.task == nil:
		return t, false, nil
	}
	return s.task.View(owner, p, next), true, nil
}

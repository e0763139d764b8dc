package workflowtest

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// A step with for_each runs a task for each item. They run beside the case's task, in the same virtual time. A script may
// be for one item: STEP[INDEX], STEP[INDEX]/undo.

// itemTask is the task of an item.
type itemTask struct {
	task   *events.Task
	timers events.Timers
}

// armedBy names the event that armed a timer.
type armedBy struct {
	task string
	seq  uint64
}

// taskOf returns the state of a task; nil: it doesn't exist.
func (s *simulation) taskOf(id string) *events.Task {
	if id == s.c.submission.ID {
		return s.task
	}
	if x := s.items[id]; x != nil {
		return x.task
	}
	return nil
}

// keep sets the state of a task after a decision.
func (s *simulation) keep(t *events.Task) {
	switch {
	case t == nil:
	case t.ID == s.c.submission.ID:
		s.task = t
	default:
		s.item(t.ID).task = t
		if !t.Open() {
			s.order = slices.DeleteFunc(s.order, func(id string) bool { return id == t.ID })
		}
	}
}

func (s *simulation) item(id string) *itemTask {
	if s.items[id] == nil {
		s.items[id] = &itemTask{}
	}
	if !slices.Contains(s.order, id) {
		s.order = append(s.order, id)
	}
	return s.items[id]
}

// evolve folds an event into the timers of its task. The timeline shows the events of the case's task.
func (s *simulation) evolve(e *events.Event, r *events.Record) {
	if e.Task == s.c.submission.ID {
		s.timers.Evolve(e)
		s.timeline.event(e, r)
		return
	}
	s.item(e.Task).timers.Evolve(e)
}

// runOf is the name of a request's run in replies and inputs: that of an item has its index.
func (s *simulation) runOf(q *events.Request) string {
	t := s.taskOf(q.Task)
	if t == nil || t.ItemOf() == "" {
		return runName(q.Ref)
	}
	ref := q.Ref
	ref.Step = fmt.Sprintf("%s[%d]", ref.Step, *t.Parent.Item)
	return runName(ref)
}

var itemIndex = regexp.MustCompile(`\[[0-9]+\]`)

// withoutItem is the name of a run without the index of an item.
func withoutItem(run string) string { return itemIndex.ReplaceAllString(run, "") }

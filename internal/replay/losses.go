package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Loss is an unreadable part of a partition of events.
type Loss struct {
	Partition int32
	Offset    int64 // of the first event that is lost
	// Tasks are the tasks that certainly lost an event. All is true if no other task did.
	Tasks []string
	All   bool
	Err   error // why
}

// lossIndex finds the tasks that may have lost an event. Losses may be added in any order.
type lossIndex struct {
	named map[string]Loss // by task: the last loss that names it
	any   map[int32]Loss  // by partition: the last loss that may concern any task
}

func (l *lossIndex) add(at Loss) {
	if l.named == nil {
		l.named, l.any = map[string]Loss{}, map[int32]Loss{}
	}
	for _, id := range at.Tasks {
		if last, is := l.named[id]; !is || at.Offset > last.Offset {
			l.named[id] = at
		}
	}
	if last, is := l.any[at.Partition]; !at.All && (!is || at.Offset > last.Offset) {
		l.any[at.Partition] = at
	}
}

// affecting returns a loss that may contain an event of a task; nil: none. next is the offset in its partition up
// to which the task was folded. A task lost nothing if an event after the loss continues its history, or if it had
// ended and no loss names it.
func (l *lossIndex) affecting(id string, t *events.Task, partition int32, next int64) *Loss {
	if at, is := l.named[id]; is && next <= at.Offset {
		return &at
	}
	if at, is := l.any[partition]; is && next <= at.Offset && (t == nil || t.Open()) {
		return &at
	}
	return nil
}

// LeftOut is a task that isn't shown because an event may be lost, so that its state is uncertain.
type LeftOut struct {
	Task   string `json:"task"`
	Reason string `json:"reason"`
	Loss   Loss   `json:"-"`
}

func leftOut(id string, at *Loss) LeftOut {
	why := "an event of it can't be read"
	if !slices.Contains(at.Tasks, id) {
		why = "an event of it may be among what can't be read"
	}
	return LeftOut{id, fmt.Sprintf("%s: %v", why, at.Err), *at}
}

// Survey finds the tasks that may have lost an event. It is fed all readable records of a log. One goroutine uses it.
type Survey struct {
	lost  lossIndex
	tasks map[string]*instantTask
}

// NewSurvey takes the losses that a first pass over the log has found.
func NewSurvey(losses []Loss) *Survey {
	s := &Survey{tasks: map[string]*instantTask{}}
	for i := range losses {
		s.lost.add(losses[i])
	}
	return s
}

// Add takes a record of the events topic. Those of a partition come in order.
func (s *Survey) Add(r *events.Record) {
	id := string(r.Key)
	_, named := s.lost.named[id]
	if _, any := s.lost.any[r.Partition]; id == "" || !named && !any {
		return
	}
	t := s.tasks[id]
	if t == nil {
		t = &instantTask{partition: r.Partition}
		s.tasks[id] = t
	}
	if _, err := t.Add(r); err == nil {
		t.shorten()
	}
}

// LeftOut returns the tasks that may have lost an event, by id, if concerns selects them. concerns receives the task as
// of the last event before the loss; nil: there was none.
func (s *Survey) LeftOut(concerns func(id string, t *events.Task) bool) (list []LeftOut) {
	for id := range s.lost.named {
		if s.tasks[id] == nil {
			s.tasks[id] = &instantTask{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		t := s.tasks[id]
		if at := s.lost.affecting(id, t.Task, t.partition, t.Next); at != nil && concerns(id, t.Task) {
			list = append(list, leftOut(id, at))
		}
	}
	return list
}

// Unnamed returns the partitions in which other, possibly unknown, tasks may have lost events.
func (s *Survey) Unnamed() []int32 { return slices.Sorted(maps.Keys(s.lost.any)) }

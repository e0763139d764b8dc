package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Loss is a part of a partition of events that can't be read, because it isn't as it was written.
type Loss struct {
	Partition int32
	Offset    int64 // of the first event that is lost
	// Tasks are those that it names. All: of no other an event is lost.
	Tasks []string
	All   bool
	Err   error // why
}

// lost keeps what of a log can't be read, to tell of which tasks an event may be missing. The order in which losses
// come is of no matter.
type lossIndex struct {
	named map[string]Loss // the last of each task that one names
	any   map[int32]Loss  // the last of each partition that may be of any task of it
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

// of is a loss that an event of a task may be among, what was folded of which ends below next in its partition; nil: there is
// none. A task has lost nothing if an event that follows on what was there comes after the loss; one that no loss names, if
// it had ended, too.
func (l *lossIndex) affecting(id string, t *events.Task, partition int32, next int64) *Loss {
	if at, is := l.named[id]; is && next <= at.Offset {
		return &at
	}
	if at, is := l.any[partition]; is && next <= at.Offset && (t == nil || t.Open()) {
		return &at
	}
	return nil
}

// LeftOut is a task that isn't shown, because an event of it may be lost: no state that it can be told to be in is
// certain.
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

// Survey finds the tasks of which an event may be lost. It is fed all that a log has, as far as it can be read. One
// goroutine uses it.
type Survey struct {
	lost  lossIndex
	tasks map[string]*instantTask
}

// NewSurvey is of the losses that were met when the log was read first.
func NewSurvey(losses []Loss) *Survey {
	s := &Survey{tasks: map[string]*instantTask{}}
	for i := range losses {
		s.lost.add(losses[i])
	}
	return s
}

// Add takes in a record of the events topic; those of a partition come in order.
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
	if t.fault {
		return
	}
	own := copyRecord(r)
	e, err := events.ReadEvent(own)
	if err == nil {
		err = t.evolve(e, own)
	}
	t.fault = err != nil
}

// LeftOut are the tasks of which an event may be lost, by their ids, and of which concerns says that they
// matter: it is given what was folded of one before that, nil: nothing.
func (s *Survey) LeftOut(concerns func(id string, t *events.Task) bool) (list []LeftOut) {
	for id := range s.lost.named {
		if s.tasks[id] == nil {
			s.tasks[id] = &instantTask{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		t := s.tasks[id]
		if at := s.lost.affecting(id, t.task, t.partition, t.next); at != nil && concerns(id, t.task) {
			list = append(list, leftOut(id, at))
		}
	}
	return list
}

// Unnamed are the partitions of which other tasks may have lost events, of which nothing else is known perhaps.
func (s *Survey) Unnamed() []int32 { return slices.Sorted(maps.Keys(s.lost.any)) }

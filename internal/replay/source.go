package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// Source provides events: a log, a file, or a console.
type Source interface {
	// Read passes the events of a task's partition to fn, or of all partitions if id is empty. Each partition is in
	// order. lost receives unreadable parts at their position, concurrently for several partitions; if it is nil, such a
	// part ends the read.
	Read(ctx context.Context, id string, fn func(*events.Record) error, lost func(Loss)) error
	// Head describes the origin of the events.
	Head() Head
}

// Losses are the unreadable parts that reads of a Source have found. It is safe for concurrent use.
type Losses struct {
	mu   sync.Mutex // several partitions are read concurrently
	list []Loss
}

// Add adds a part.
func (l *Losses) Add(at Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, at)
}

// List returns the parts.
func (l *Losses) List() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// firstNotIn returns the first part that others don't have, or nil.
func (l *Losses) firstNotIn(others *Losses) *Loss {
	for i := range l.list {
		same := func(o Loss) bool { return o.Partition == l.list[i].Partition && o.Offset == l.list[i].Offset }
		if !slices.ContainsFunc(others.list, same) {
			return &l.list[i]
		}
	}
	return nil
}

// Omission is what an answer about many tasks leaves out, because events can't be read.
type Omission struct {
	Tasks   []LeftOut // by id
	Unnamed []int32   // partitions in which unknown tasks may have lost all their events
}

// FindOmission finds the tasks that may have lost an event. It reads the partition of id again, or all if id is empty.
// concerns selects the tasks that matter: it receives each task as it was before the loss, or nil if nothing is known of
// it.
func (l *Losses) FindOmission(ctx context.Context, from Source, id string, concerns func(id string, t *events.Task) bool) (*Omission, error) {
	lost := l.List()
	if len(lost) == 0 {
		return &Omission{}, nil
	}
	s := NewSurvey(lost)
	err := from.Read(ctx, id, func(r *events.Record) error {
		s.Add(r)
		return nil
	}, func(Loss) {})
	if err != nil {
		return nil, err
	}
	return &Omission{s.LeftOut(concerns), s.Unnamed()}, nil
}

// IsEmpty reports whether nothing is left out.
func (o *Omission) IsEmpty() bool { return len(o.Tasks)+len(o.Unnamed) == 0 }

// Contains reports whether a task is left out.
func (o *Omission) Contains(id string) bool {
	_, is := slices.BinarySearchFunc(o.Tasks, id, func(l LeftOut, id string) int { return strings.Compare(l.Task, id) })
	return is
}

// withoutTasksMax bounds the ids in the first line of an export, whose size is bounded.
const withoutTasksMax = 2000

// without returns the part of an export's first line that lists what is left out.
func (o *Omission) without(lost *Losses) (w Without) {
	for i := range o.Tasks[:min(len(o.Tasks), withoutTasksMax)] {
		w.Tasks = append(w.Tasks, o.Tasks[i].Task)
	}
	for i := range lost.list {
		l := &lost.list[i]
		if slices.Contains(o.Unnamed, l.Partition) || slices.ContainsFunc(o.Tasks, func(t LeftOut) bool { return t.Loss.Partition == l.Partition }) {
			w.Lost = append(w.Lost, l.Err.Error())
		}
	}
	slices.Sort(w.Lost)
	if n := len(o.Tasks) - len(w.Tasks); n > 0 {
		w.Lost = append(w.Lost, fmt.Sprintf("and %d more %s", n, text.Plural(n, "task")))
	}
	return w
}

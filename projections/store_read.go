package projections

import (
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// AsOf says which part of its partition an answer reflects: everything below Next.
type AsOf struct {
	State events.PartitionState
	Next  int64
}

// The Read methods read saved data on one snapshot, so any goroutine may call them concurrently with the view's. Within
// a process AsOf never decreases.

// ReadTask returns a task; nil: the partition has none of that id. It belongs to the caller. A finished task is in the
// form of events.Task.Finished; its timeline has all events.
func (s *Store) ReadTask(p int32, id string) (t *events.Task, asOf AsOf, err error) {
	asOf, err = s.onSnapshot(ViewTasks, p, func(r reader) {
		if t = r.task(kindOpen, id); t == nil {
			t = r.task(kindFinished, id)
		}
	})
	if t.Forgotten(asOf.State.Forgot) {
		t = nil
	}
	return t, asOf, err
}

// ReadTasks calls fn with every task of the partition, in the order of ids, until fn returns an error, which ReadTasks
// returns. The tasks belong to the caller. Finished tasks are in the form of events.Task.Finished.
func (s *Store) ReadTasks(p int32, fn func(*events.Task) error) (AsOf, error) {
	var stopped error
	asOf, err := s.onSnapshot(ViewTasks, p, func(r reader) {
		state := events.PartitionState{}
		r.get(kindMeta, "", func(data []byte) (err error) {
			_, state, err = decodeMeta(data)
			return err
		})
		stopped = r.eachTask(state.Forgot, fn)
	})
	return asOf, errors.Join(err, stopped)
}

// ReadTimeline lists the places of a task's events, by seq. It is empty if the partition has none.
// A timeline's AsOf has no State.
func (s *Store) ReadTimeline(p int32, task string) (places []Place, asOf AsOf, err error) {
	asOf, err = s.onSnapshot(ViewTimelines, p, func(r reader) { places = r.timeline(task) })
	return places, asOf, err
}

// onSnapshot calls fn with a reader of a snapshot of a partition.
func (s *Store) onSnapshot(name string, p int32, fn func(reader)) (asOf AsOf, err error) {
	k, err := s.keyspaceOf(name, p)
	if err != nil {
		return asOf, err
	}
	leave, err := s.enter()
	if err != nil {
		return asOf, err
	}
	defer leave()
	snapshot := s.db.NewSnapshot()
	r := reader{s, snapshot, k}
	r.get(kindMeta, "", func(data []byte) (err error) {
		asOf.Next, asOf.State, err = decodeMeta(data)
		return err
	})
	fn(r)
	r.check(snapshot.Close())
	return asOf, nil
}

// keyspaceOf checks that the store has the partition and the view.
func (s *Store) keyspaceOf(name string, p int32) (keyspace, error) {
	if s.id.View != name {
		return keyspace{}, fmt.Errorf("projections: %s holds %s, not %s", s.dir, s.id.View, name)
	}
	if p < 0 || p >= s.id.Partitions {
		return keyspace{}, fmt.Errorf("projections: %s: there is no partition %d among %d", s.dir, p, s.id.Partitions)
	}
	return keyspace{viewLetters[name], p}, nil
}

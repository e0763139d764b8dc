package projections

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

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
	asOf, err = s.onSnapshot(ViewTasks, p, func(db pebble.Reader, k keyspace) error {
		for _, kind := range [...]byte{kindOpen, kindFinished} {
			err := s.getFrom(db, k, kind, id, func(data []byte) (err error) {
				t, err = ownTask(data)
				return err
			})
			if err != nil || t != nil {
				return err
			}
		}
		return nil
	})
	return t, asOf, err
}

// ReadTasks calls fn with every task of the partition, in the order of ids, until fn returns an error, which ReadTasks
// returns. The tasks belong to the caller. Finished tasks are in the form of events.Task.Finished.
func (s *Store) ReadTasks(p int32, fn func(*events.Task) error) (AsOf, error) {
	return s.onSnapshot(ViewTasks, p, func(db pebble.Reader, k keyspace) error {
		return s.eachTask(db, k, fn)
	})
}

// ReadTimeline lists the places of a task's events, by seq. It is empty if the partition has none.
// A timeline's AsOf has no State.
func (s *Store) ReadTimeline(p int32, task string) (places []Place, asOf AsOf, err error) {
	asOf, err = s.onSnapshot(ViewTimelines, p, func(db pebble.Reader, k keyspace) (err error) {
		places, err = s.timeline(db, k, task)
		return err
	})
	return places, asOf, err
}

func (s *Store) onSnapshot(name string, p int32, fn func(pebble.Reader, keyspace) error) (asOf AsOf, err error) {
	k, err := s.keyspaceOf(name, p)
	if err != nil {
		return asOf, err
	}
	err = s.use(func(db *pebble.DB) error {
		snapshot := db.NewSnapshot()
		err := s.getFrom(snapshot, k, kindMeta, "", func(data []byte) (err error) {
			asOf.Next, asOf.State, err = decodeMeta(data)
			return err
		})
		if err == nil {
			err = fn(snapshot, k)
		}
		return errors.Join(err, snapshot.Close())
	})
	return asOf, err
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

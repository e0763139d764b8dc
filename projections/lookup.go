package projections

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// lookup finds finished tasks by their ids. That is done for each submission, since the id may
// have been used, and mostly it wasn't. Pebble's Get doesn't use the filters of its
// last level, where most of them lie, and opens its tables anew each time (measured:
// a fifth of a scheduler's processor time). It is one goroutine's.
type lookup struct {
	s    *Store
	keys keyspace
	kind byte
	it   *pebble.Iterator
	key  []byte
}

// openLookup enters the store until the lookup is closed.
func (s *Store) openLookup(k keyspace, kind byte) (*lookup, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	lower, upper := k.bounds(kind)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper, UseL6Filters: true})
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("projections: read partition %d in %s: %w", k.partition, s.dir, err)
	}
	return &lookup{s: s, keys: k, kind: kind, it: it}, nil
}

// reuse returns the lookup that was opened before, or opens it.
func (s *Store) reuse(l **lookup, k keyspace, kind byte) (*lookup, error) {
	if *l != nil {
		return *l, nil
	}
	opened, err := s.openLookup(k, kind)
	if err != nil {
		return nil, err
	}
	*l = opened
	return opened, nil
}

// task returns a task, nil if there is none of that id.
func (l *lookup) task(id string) (t *events.Task, err error) {
	err = l.get(id, func(data []byte) (err error) {
		t, err = ownTask(data)
		return err
	})
	return t, err
}

// get calls fn with a value, if there is one. data is Pebble's. That fn can't read it
// is a damage.
func (l *lookup) get(id string, fn func(data []byte) error) error {
	l.key = l.keys.appendKey(l.key[:0], l.kind, id)
	if !l.it.SeekPrefixGE(l.key) || !bytes.Equal(l.it.Key(), l.key) {
		return l.failed(id, l.it.Error())
	}
	data, err := l.it.ValueAndErr()
	if err != nil {
		return l.failed(id, err)
	}
	if err := fn(data); err != nil {
		return l.s.unreadable(l.keys, l.kind, id, err)
	}
	return nil
}

// failed says why a lookup failed, if it did. A corruption stops the store.
func (l *lookup) failed(id string, err error) error {
	if err == nil {
		return l.s.Err()
	}
	if pebble.IsCorruptionError(err) {
		l.s.fail(l.s.damaged(err))
	}
	if stopped := l.s.Err(); stopped != nil {
		return stopped
	}
	return fmt.Errorf("projections: read %q of partition %d in %s: %w", id, l.keys.partition, l.s.dir, err)
}

func (l *lookup) close() {
	_ = l.it.Close() // an error was one of a lookup before, and told then
	l.s.leave()
}

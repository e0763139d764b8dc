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
	s         *Store
	keys      keyspace
	kind      byte
	recent    *recentKeys      // nil: the disk may lack any key
	disk, all *pebble.Iterator // nil: none was wanted yet
	key       []byte
}

// openLookup enters the store until the lookup is closed. Nothing of the kind may be written
// meanwhile, unless u says of all keys that the disk may lack them.
func (s *Store) openLookup(k keyspace, kind byte, u *recentKeys) (*lookup, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	return &lookup{s: s, keys: k, kind: kind, recent: u}, nil
}

// reuse returns the lookup that was opened before, or opens it.
func (s *Store) reuse(l **lookup, k keyspace, kind byte, u *recentKeys) (*lookup, error) {
	if *l != nil {
		return *l, nil
	}
	opened, err := s.openLookup(k, kind, u)
	if err != nil {
		return nil, err
	}
	*l = opened
	return opened, nil
}

// iterator returns that which sees an id if it is there.
func (l *lookup) iterator(id string) (*pebble.Iterator, error) {
	it, onDisk := &l.all, l.recent != nil && !l.recent.mayBeUnflushed(id)
	if onDisk {
		it = &l.disk
	}
	if *it != nil {
		return *it, nil
	}
	lower, upper := l.keys.bounds(l.kind)
	opened, err := l.s.db.NewIter(&pebble.IterOptions{
		LowerBound: lower, UpperBound: upper, UseL6Filters: true, OnlyReadGuaranteedDurable: onDisk,
	})
	if err != nil {
		return nil, fmt.Errorf("projections: read partition %d in %s: %w", l.keys.partition, l.s.dir, err)
	}
	*it = opened
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
	it, err := l.iterator(id)
	if err != nil {
		return err
	}
	l.key = l.keys.appendKey(l.key[:0], l.kind, id)
	if !it.SeekPrefixGE(l.key) || !bytes.Equal(it.Key(), l.key) {
		return l.failed(id, it.Error())
	}
	data, err := it.ValueAndErr()
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
	for _, it := range [...]*pebble.Iterator{l.disk, l.all} {
		if it != nil {
			_ = it.Close() // an error was one of a lookup before, and told then
		}
	}
	l.s.leave()
}

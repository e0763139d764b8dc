package projections

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// lookup finds stored tasks by id. Each submission needs a lookup, since its id may be in use, though it mostly isn't.
// It is cheaper than Pebble's Get, which doesn't use the filters of the last level, where most keys are, and opens its
// tables for each call (a fifth of a scheduler's CPU). It is for one goroutine.
type lookup struct {
	s         *Store
	keys      keyspace
	kind      byte
	recent    *recentKeys      // nil: the disk may lack any key
	disk, all *pebble.Iterator // nil: not opened yet; disk skips the memtables
	key       []byte
}

// openLookup enters the store until the lookup is closed. No key of the kind may be written in between, unless u is
// marked all dirty.
func (s *Store) openLookup(k keyspace, kind byte, u *recentKeys) (*lookup, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	return &lookup{s: s, keys: k, kind: kind, recent: u}, nil
}

// reuse returns *l, and opens it if it is nil.
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

// iterator returns an iterator that sees the key of an id if it exists.
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

// task returns a task; nil: there is none of that id.
func (l *lookup) task(id string) (t *events.Task, err error) {
	err = l.get(id, func(data []byte) (err error) {
		t, err = ownTask(data)
		return err
	})
	return t, err
}

// get calls fn with the value of a key, if it exists. data belongs to Pebble. An error of fn means a corrupt value.
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

// failed returns the error of a lookup. A corruption stops the store.
func (l *lookup) failed(id string, err error) error {
	if err == nil {
		return l.s.Err()
	}
	if pebble.IsCorruptionError(err) {
		l.s.fail(l.s.corrupt(err))
	}
	if stopped := l.s.Err(); stopped != nil {
		return stopped
	}
	return fmt.Errorf("projections: read %q of partition %d in %s: %w", id, l.keys.partition, l.s.dir, err)
}

func (l *lookup) close() {
	for _, it := range [...]*pebble.Iterator{l.disk, l.all} {
		if it != nil {
			_ = it.Close() // an earlier lookup has returned the error already
		}
	}
	l.s.leave()
}

package projections

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// lookup finds stored tasks by id. Each submission needs a lookup, since its id may be in use, though it mostly isn't.
// It is cheaper than Pebble's Get, which doesn't use the filters of the last level, where most keys are, and opens its
// tables for each call (a fifth of a scheduler's CPU). It is for one goroutine. No key of its kind may be written before
// it is closed, unless recent is marked all dirty.
type lookup struct {
	r         reader
	kind      byte
	recent    *recentKeys // nil: the disk may lack any key
	disk, all *iterator   // nil: not opened yet; disk skips the memtables
	key       []byte
}

// reuse returns *l, and opens it if it is nil.
func (r reader) reuse(l **lookup, kind byte, u *recentKeys) *lookup {
	if *l == nil {
		*l = &lookup{r: r, kind: kind, recent: u}
	}
	return *l
}

// iterator returns an iterator that sees the key of an id if it exists.
func (l *lookup) iterator(id string) *iterator {
	it, onDisk := &l.all, l.recent != nil && !l.recent.mayBeUnflushed(id)
	if onDisk {
		it = &l.disk
	}
	if *it == nil {
		lower, upper := l.r.keys.bounds(l.kind)
		opened := l.r.iteratorWith(pebble.IterOptions{LowerBound: lower, UpperBound: upper, UseL6Filters: true, OnlyReadGuaranteedDurable: onDisk})
		*it = &opened
	}
	return *it
}

// task returns a task; nil: there is none of that id.
func (l *lookup) task(id string) (t *events.Task) {
	l.get(id, func(data []byte) (err error) {
		t, err = events.DecodeTask(data)
		return err
	})
	return t
}

// get calls fn with the value of a key, if it exists. data belongs to Pebble. An error of fn means a corrupt value.
func (l *lookup) get(id string, fn func(data []byte) error) {
	it := l.iterator(id)
	l.key = l.r.keys.appendKey(l.key[:0], l.kind, id)
	if !it.seekPrefixGE(l.key) || !bytes.Equal(it.key(), l.key) {
		return
	}
	if err := fn(it.value()); err != nil {
		l.r.corrupt(l.kind, id, err)
	}
}

func (l *lookup) close() {
	for _, it := range [...]*iterator{l.disk, l.all} {
		if it != nil {
			it.close()
		}
	}
}

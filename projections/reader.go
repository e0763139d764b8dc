package projections

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A failing disk ends the process (Store.fatal). So reader, iterator and batch return no errors.

// reader reads the keys of one partition, from Pebble or from a snapshot of it.
type reader struct {
	s    *Store
	db   pebble.Reader
	keys keyspace
}

// get calls fn with the value of a key, if it exists. data belongs to Pebble. An error of fn means a corrupt value.
func (r reader) get(kind byte, rest string, fn func(data []byte) error) {
	var buf [128]byte
	data, closer, err := r.db.Get(r.keys.appendKey(buf[:0], kind, rest))
	if errors.Is(err, pebble.ErrNotFound) {
		return
	}
	r.check(err)
	if err := fn(data); err != nil {
		r.corrupt(kind, rest, err)
	}
	r.check(closer.Close())
}

// each calls fn with every value of a kind, in the order of keys. data belongs to Pebble.
func (r reader) each(kind byte, fn func(rest string, data []byte) error) {
	it := r.iterator(r.keys.bounds(kind))
	defer it.close()
	for ok := it.first(); ok; ok = it.next() {
		if err := fn(it.rest(), it.value()); err != nil {
			r.corrupt(kind, it.rest(), err)
		}
	}
}

// check ends the process if Pebble failed.
func (r reader) check(err error) {
	if err != nil {
		r.s.fatal(fmt.Errorf("partition %d: %w", r.keys.partition, err))
	}
}

// corrupt ends the process, since after one unreadable value no other can be trusted.
func (r reader) corrupt(kind byte, rest string, err error) {
	r.s.fatal(fmt.Errorf("partition %d, key %c %q: %w: %w", r.keys.partition, kind, rest, err, ErrCorrupt))
}

// iterator iterates over the keys of a range.
type iterator struct {
	r  reader
	it *pebble.Iterator
}

func (r reader) iterator(lower, upper []byte) iterator {
	return r.iteratorWith(pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

func (r reader) iteratorWith(o pebble.IterOptions) iterator {
	it, err := r.db.NewIter(&o)
	r.check(err)
	return iterator{r, it}
}

func (i iterator) first() bool                  { return i.valid(i.it.First()) }
func (i iterator) last() bool                   { return i.valid(i.it.Last()) }
func (i iterator) next() bool                   { return i.valid(i.it.Next()) }
func (i iterator) prev() bool                   { return i.valid(i.it.Prev()) }
func (i iterator) seekGE(key []byte) bool       { return i.valid(i.it.SeekGE(key)) }
func (i iterator) seekPrefixGE(key []byte) bool { return i.valid(i.it.SeekPrefixGE(key)) }

// valid checks whether an iterator that isn't at a key is at the end, or failed.
func (i iterator) valid(is bool) bool {
	if !is {
		i.r.check(i.it.Error())
	}
	return is
}

// key is valid until the iterator moves.
func (i iterator) key() []byte { return i.it.Key() }

// rest is the part of the key after its kind.
func (i iterator) rest() string { return string(i.it.Key()[prefixBytes:]) }

// value is valid until the iterator moves.
func (i iterator) value() []byte {
	data, err := i.it.ValueAndErr()
	i.r.check(err)
	return data
}

func (i iterator) close() { i.r.check(i.it.Close()) }

// batch is a set of changes that is written atomically.
type batch struct {
	s *Store
	b *pebble.Batch
}

func (b batch) set(key, value []byte) { b.s.check(b.b.Set(key, value, nil)) }
func (b batch) delete(key []byte)     { b.s.check(b.b.Delete(key, nil)) }

// deleteRange deletes the keys from lower on, below upper.
func (b batch) deleteRange(lower, upper []byte) { b.s.check(b.b.DeleteRange(lower, upper, nil)) }

// write commits one batch. It returns the batch's size.
func (s *Store) write(fill func(batch)) (size int) {
	b := s.db.NewBatch()
	fill(batch{s, b})
	size = b.Len()
	s.check(b.Commit(pebble.NoSync))
	s.check(b.Close())
	return size
}

// check ends the process if Pebble failed.
func (s *Store) check(err error) {
	if err != nil {
		s.fatal(err)
	}
}

// mustMarshal returns the JSON of a value of this package, which always has one.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("projections: %T has no JSON: %v", v, err))
	}
	return data
}

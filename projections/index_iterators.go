package projections

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// indexIterator iterates over places of the task list, forwards only.
type indexIterator interface {
	// seek moves to the first place at or after c, and returns it. ok is false if there is none.
	seek(c Cursor) (at Cursor, ok bool, err error)
	close() error
}

// errPageBound says that the page has read as many entries as it may.
var errPageBound = errors.New("the page's bound of entries is reached")

// indexReader opens the iterators of one partition, on one Pebble snapshot.
type indexReader struct {
	s         *Store
	db        pebble.Reader
	keys      keyspace
	looksLeft int // number of entries that the page may still read
}

// countLooks counts entries that the page reads. It returns errPageBound above the bound.
func (s *indexReader) countLooks(looks int) error {
	if s.looksLeft -= looks; s.looksLeft < 0 {
		return errPageBound
	}
	return nil
}

func (s *indexReader) iterator(kind byte, f facet) (it *pebble.Iterator, prefix []byte, err error) {
	prefix = s.keys.key(kind, string(f))
	upper := append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, 9)...) // a place begins with eight bytes, which aren't all ones after 1970
	if it, err = s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: upper}); err != nil {
		err = fmt.Errorf("projections: read the index of partition %d in %s: %w", s.keys.partition, s.s.dir, err)
	}
	return it, prefix, err
}

// entryIterator iterates over a facet with an entry for each task.
type entryIterator struct {
	from   *indexReader
	it     *pebble.Iterator
	prefix []byte
	key    []byte
	at     Cursor
	ok     bool // at is valid
}

func (s *indexReader) entryIterator(f facet) (indexIterator, error) {
	it, prefix, err := s.iterator(kindIndex, f)
	if err != nil {
		return nil, err
	}
	return &entryIterator{from: s, it: it, prefix: prefix}, nil
}

func (e *entryIterator) seek(c Cursor) (Cursor, bool, error) {
	if e.ok && e.at.compare(c) >= 0 {
		return e.at, true, nil
	}
	if err := e.from.countLooks(1); err != nil {
		return e.at, false, err
	}
	e.key = binary.BigEndian.AppendUint64(append(e.key[:0], e.prefix...), newestFirst(c.Submitted))
	e.key = append(e.key, c.Task...)
	e.ok = false
	if !e.it.SeekGE(e.key) {
		return e.at, false, e.it.Error()
	}
	at, err := cutIndexKey(e.it.Key()[len(e.prefix):])
	if err != nil {
		return e.at, false, e.from.s.unreadable(e.from.keys, kindIndex, string(e.it.Key()), err)
	}
	e.at, e.ok = at, true
	return at, true, nil
}

func (e *entryIterator) close() error { return e.it.Close() }

// postingIterator iterates over a posted facet. It holds the tasks of one second.
type postingIterator struct {
	from   *indexReader
	it     *pebble.Iterator
	prefix []byte
	key    []byte
	bucket int64
	loaded bool
	tasks  []Cursor // of the bucket, in order
	next   int      // index in tasks
}

func (s *indexReader) postingIterator(f facet) (indexIterator, error) {
	it, prefix, err := s.iterator(kindPosting, f)
	if err != nil {
		return nil, err
	}
	return &postingIterator{from: s, it: it, prefix: prefix}, nil
}

func (p *postingIterator) seek(c Cursor) (Cursor, bool, error) {
	for want := c.Submitted / bucketMillis; ; want = p.bucket - 1 {
		if !p.loaded || p.bucket > want {
			if err := p.from.countLooks(1); err != nil {
				return Cursor{}, false, err
			}
			if ok, err := p.load(want); err != nil || !ok {
				return Cursor{}, false, err
			}
		}
		for p.next < len(p.tasks) && p.tasks[p.next].compare(c) < 0 {
			p.next++
		}
		if p.next < len(p.tasks) {
			return p.tasks[p.next], true, nil
		}
	}
}

// load reads the postings of the newest bucket at or before this one that has any.
func (p *postingIterator) load(bucket int64) (ok bool, err error) {
	p.key = binary.BigEndian.AppendUint64(append(p.key[:0], p.prefix...), newestFirst(bucket))
	p.tasks, p.next, p.loaded = p.tasks[:0], 0, false
	for ok = p.it.SeekGE(p.key); ok; ok = p.it.Next() {
		rest := p.it.Key()[len(p.prefix):]
		if len(rest) != 16 {
			return false, p.corrupt(errNoEntry)
		}
		at := int64(^binary.BigEndian.Uint64(rest))
		if p.loaded && at != p.bucket {
			break
		}
		p.bucket, p.loaded = at, true
		data, err := p.it.ValueAndErr()
		if err != nil {
			return false, err
		}
		if err := readPosting(at, data, func(c Cursor) { p.tasks = append(p.tasks, c) }); err != nil {
			return false, p.corrupt(err)
		}
	}
	slices.SortFunc(p.tasks, Cursor.compare)
	return p.loaded, p.it.Error()
}

func (p *postingIterator) corrupt(err error) error {
	return p.from.s.unreadable(p.from.keys, kindPosting, string(p.it.Key()[prefixBytes:]), err)
}

func (p *postingIterator) close() error { return p.it.Close() }

// unionIterator iterates over the places that at least one of its iterators has.
type unionIterator struct {
	of []*unionMember
}

// unionMember is an iterator and its place.
type unionMember struct {
	indexIterator
	at    Cursor
	begun bool
	over  bool
}

func (u unionIterator) seek(c Cursor) (first Cursor, ok bool, err error) {
	for _, m := range u.of {
		if !m.over && (!m.begun || m.at.compare(c) < 0) {
			var found bool
			if m.at, found, err = m.seek(c); err != nil {
				return c, false, err
			}
			m.begun, m.over = true, !found
		}
		if !m.over && (!ok || m.at.compare(first) < 0) {
			first, ok = m.at, true
		}
	}
	return first, ok, nil
}

func (u unionIterator) close() (err error) {
	for _, m := range u.of {
		err = errors.Join(err, m.close())
	}
	return err
}

// intersectIterator iterates over the places that all of its iterators have. It has no further place before at.
type intersectIterator struct {
	of     []indexIterator
	at     Cursor
	oldest int64 // Unix ms; iteration ends at older submissions
}

func (x *intersectIterator) seek(c Cursor) (Cursor, bool, error) {
	x.at = c
	for agreed := 0; ; {
		for _, s := range x.of {
			at, ok, err := s.seek(x.at)
			if err != nil || !ok || at.Submitted < x.oldest {
				return x.at, false, err
			}
			if at == x.at {
				if agreed++; agreed >= len(x.of) {
					return at, true, nil
				}
				continue
			}
			x.at, agreed = at, 1
			if len(x.of) == 1 {
				return at, true, nil
			}
		}
	}
}

func (x *intersectIterator) close() (err error) {
	for _, s := range x.of {
		err = errors.Join(err, s.close())
	}
	return err
}

package projections

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// indexIterator iterates over places of the task list, forwards only.
type indexIterator interface {
	// seek moves to the first place at or after c, and returns it. ok is false if there is none.
	seek(c Cursor) (at Cursor, ok bool, err error)
	close()
}

// errPageBound says that the page has read as many entries as it may.
var errPageBound = errors.New("the page's bound of entries is reached")

// indexReader opens the iterators of one partition, on one Pebble snapshot.
type indexReader struct {
	reader
	looksLeft int // number of entries that the page may still read
}

// countLooks counts entries that the page reads. It returns errPageBound above the bound.
func (s *indexReader) countLooks(looks int) error {
	if s.looksLeft -= looks; s.looksLeft < 0 {
		return errPageBound
	}
	return nil
}

// facetIterator iterates over the keys of a facet.
func (s *indexReader) facetIterator(kind byte, f facet) (it iterator, prefix []byte) {
	prefix = s.keys.key(kind, string(f))
	upper := append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, 9)...) // a place begins with eight bytes, which aren't all ones after 1970
	return s.iterator(prefix, upper), prefix
}

// entryIterator iterates over a facet with an entry for each task.
type entryIterator struct {
	iterator
	from    *indexReader
	prefix  []byte
	seekKey []byte
	at      Cursor
	ok      bool // at is valid
}

func (s *indexReader) entryIterator(f facet) indexIterator {
	it, prefix := s.facetIterator(kindIndex, f)
	return &entryIterator{iterator: it, from: s, prefix: prefix}
}

func (e *entryIterator) seek(c Cursor) (Cursor, bool, error) {
	if e.ok && e.at.compare(c) >= 0 {
		return e.at, true, nil
	}
	if err := e.from.countLooks(1); err != nil {
		return e.at, false, err
	}
	e.seekKey = binary.BigEndian.AppendUint64(append(e.seekKey[:0], e.prefix...), newestFirst(c.Submitted))
	e.seekKey = append(e.seekKey, c.Task...)
	if e.ok = e.seekGE(e.seekKey); !e.ok {
		return e.at, false, nil
	}
	var err error
	if e.at, err = cutIndexKey(e.key()[len(e.prefix):]); err != nil {
		e.from.corrupt(kindIndex, e.rest(), err)
	}
	return e.at, true, nil
}

// postingIterator iterates over a posted facet. It holds the tasks of one second.
type postingIterator struct {
	iterator
	from    *indexReader
	prefix  []byte
	seekKey []byte
	bucket  int64
	loaded  bool
	tasks   []Cursor // of the bucket, in order
	at      int      // index in tasks
}

func (s *indexReader) postingIterator(f facet) indexIterator {
	it, prefix := s.facetIterator(kindPosting, f)
	return &postingIterator{iterator: it, from: s, prefix: prefix}
}

func (p *postingIterator) seek(c Cursor) (Cursor, bool, error) {
	for want := c.Submitted / bucketMillis; ; want = p.bucket - 1 {
		if !p.loaded || p.bucket > want {
			if err := p.from.countLooks(1); err != nil {
				return Cursor{}, false, err
			}
			if !p.load(want) {
				return Cursor{}, false, nil
			}
		}
		for p.at < len(p.tasks) && p.tasks[p.at].compare(c) < 0 {
			p.at++
		}
		if p.at < len(p.tasks) {
			return p.tasks[p.at], true, nil
		}
	}
}

// load reads the postings of the newest bucket at or before this one that has any.
func (p *postingIterator) load(bucket int64) (ok bool) {
	p.seekKey = binary.BigEndian.AppendUint64(append(p.seekKey[:0], p.prefix...), newestFirst(bucket))
	p.tasks, p.at, p.loaded = p.tasks[:0], 0, false
	for ok = p.seekGE(p.seekKey); ok; ok = p.next() {
		rest := p.key()[len(p.prefix):]
		if len(rest) != 16 {
			p.from.corrupt(kindPosting, p.rest(), errNoEntry)
		}
		at := int64(^binary.BigEndian.Uint64(rest))
		if p.loaded && at != p.bucket {
			break
		}
		p.bucket, p.loaded = at, true
		if err := readPosting(at, p.value(), func(c Cursor) { p.tasks = append(p.tasks, c) }); err != nil {
			p.from.corrupt(kindPosting, p.rest(), err)
		}
	}
	slices.SortFunc(p.tasks, Cursor.compare)
	return p.loaded
}

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

func (u unionIterator) close() {
	for _, m := range u.of {
		m.close()
	}
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

func (x *intersectIterator) close() {
	for _, s := range x.of {
		s.close()
	}
}

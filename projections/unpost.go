package projections

import (
	"bytes"
	"encoding/binary"
)

// unposted are the tasks to remove from the postings of earlier Saves.
type unposted map[postingOf]map[Cursor]bool

func (u unposted) add(f facet, c Cursor) {
	of := postingOf{f, c.Submitted / bucketMillis}
	if u[of] == nil {
		u[of] = map[Cursor]bool{}
	}
	u[of][c] = true
}

// unpost removes tasks from the postings of a facet and second.
func (w *indexWriter) unpost(r reader, of postingOf, tasks map[Cursor]bool) {
	lower := binary.BigEndian.AppendUint64(w.keys.key(kindPosting, string(of.facet)), newestFirst(of.bucket))
	upper := append(bytes.Clone(lower), bytes.Repeat([]byte{0xff}, 9)...)
	it := r.iterator(lower, upper)
	defer it.close()
	for ok := it.first(); ok; ok = it.next() {
		kept, removed := postings{}, false
		err := readPosting(of.bucket, it.value(), func(c Cursor) {
			if tasks[c] {
				removed = true
				return
			}
			kept.add(of.facet, c)
		})
		switch {
		case err != nil:
			r.corrupt(kindPosting, it.rest(), err)
		case removed && len(kept) == 0:
			w.remove(it.key())
		case removed:
			w.set(it.key(), kept[of])
		}
	}
}

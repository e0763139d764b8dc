package projections

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The open tasks by their complete-by have keys of their own, so that those that must end soon are found without a look
// at all others. A task has a key from the first Save after its start until its end. That of an item has one only while
// it isn't hidden.

// appendEndKey appends the key of an open task by its complete-by, in Unix milliseconds.
func (k keyspace) appendEndKey(dst []byte, by int64, task string) []byte {
	dst = binary.BigEndian.AppendUint64(k.appendKey(dst, kindEnds, ""), uint64(by))
	return append(dst, task...)
}

// endsBy returns the complete-by of an open task in Unix milliseconds; 0: it has none, or is hidden.
func endsBy(s *events.Summary) int64 {
	if !s.Open() || s.Hidden() || s.CompleteBy.IsZero() {
		return 0
	}
	return max(0, s.CompleteBy.UnixMilli())
}

// writeEnd writes the change of a task's complete-by.
func (w *indexWriter) writeEnd(was, is int64, at Cursor) {
	if was == is {
		return
	}
	if was != 0 {
		w.key = w.keys.appendEndKey(w.key[:0], was, at.Task)
		w.remove(w.key)
	}
	if is != 0 {
		w.key = w.keys.appendEndKey(w.key[:0], is, at.Task)
		w.set(w.key, binary.BigEndian.AppendUint64(nil, uint64(at.Submitted)))
	}
}

// Ending are the result of Store.Ending.
type Ending struct {
	Tasks []events.Summary // by complete-by
	Left  bool             // more tasks must end within the time; those with the latest complete-by were left out
	AsOf  map[int32]int64  // partition -> the offset below which all of it is reflected
}

// Ending returns the tasks being processed whose complete-by is within a time, of some partitions: at most limit, those
// that must end first. It looks at limit open tasks. It answers from what was saved, and may be called from several
// goroutines.
func (s *Store) Ending(ctx context.Context, partitions []int32, from, until time.Time, limit int) (Ending, error) {
	l := Ending{AsOf: map[int32]int64{}}
	leave, err := s.enter()
	if err != nil {
		return l, err
	}
	defer leave()
	snapshot := s.db.NewSnapshot()
	defer func() { s.check(snapshot.Close()) }()
	heads := make([]*endingHead, 0, len(partitions))
	defer func() {
		for _, h := range heads {
			h.close()
		}
	}()
	for _, p := range partitions {
		k, err := s.keyspaceOf(ViewTimelines, p)
		if err != nil {
			return l, err
		}
		r := reader{s, snapshot, k}
		l.AsOf[p] = r.savedNext()
		h := &endingHead{r, r.iterator(k.appendEndKey(nil, max(0, from.UnixMilli()), ""), k.appendEndKey(nil, max(0, until.UnixMilli()), "")), nil}
		heads = append(heads, h)
		h.setRest(h.first())
	}
	err = l.merge(ctx, heads, limit)
	return l, err
}

// endingHead is the position in a partition.
type endingHead struct {
	reader
	iterator
	at []byte // complete-by and task; nil: the partition has no more
}

func (h *endingHead) setRest(ok bool) {
	if h.at = nil; ok {
		h.at = append(h.at, h.key()[prefixBytes:]...)
	}
}

// merge reads the rows of the first tasks of all partitions.
func (l *Ending) merge(ctx context.Context, heads []*endingHead, limit int) error {
	for looked := 0; ; looked++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("projections: tasks that end soon: %w", err)
		}
		var first *endingHead
		for _, h := range heads {
			if h.at != nil && (first == nil || bytes.Compare(h.at, first.at) < 0) {
				first = h
			}
		}
		if first == nil {
			return nil
		}
		if looked == limit {
			l.Left = true
			return nil
		}
		if s := first.summary(string(first.at[8:])); s != nil && s.State == events.StateProcessing {
			l.Tasks = append(l.Tasks, *s)
		}
		first.setRest(first.next())
	}
}

// savedNext returns the offset below which the partition is reflected; 0: nothing was saved yet.
func (r reader) savedNext() (next int64) {
	r.get(kindMeta, "", func(data []byte) (err error) {
		next, _, err = decodeMeta(data)
		return err
	})
	return next
}

// dueBefore returns the places in the list of the open tasks whose complete-by is before an instant. ok is false if there
// are more than most.
func (r reader) dueBefore(at time.Time, most int) (places []Cursor, ok bool) {
	it := r.iterator(r.keys.key(kindEnds, ""), r.keys.appendEndKey(nil, max(0, ceilMillis(at)), ""))
	defer it.close()
	for more := it.first(); more; more = it.next() {
		if len(places) == most {
			return nil, false
		}
		if len(it.value()) != 8 {
			r.corrupt(kindEnds, it.rest(), errNoEntry)
		}
		places = append(places, Cursor{int64(binary.BigEndian.Uint64(it.value())), string(it.key()[prefixBytes+8:])})
	}
	slices.SortFunc(places, Cursor.compare)
	return places, true
}

// placeIterator iterates over places in memory.
type placeIterator struct{ left []Cursor }

func (p *placeIterator) seek(c Cursor) (Cursor, bool, error) {
	i, _ := slices.BinarySearchFunc(p.left, c, Cursor.compare)
	if p.left = p.left[i:]; len(p.left) == 0 {
		return c, false, nil
	}
	return p.left[0], true, nil
}

func (p *placeIterator) close() {}

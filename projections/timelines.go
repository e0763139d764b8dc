package projections

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// Timelines is the index of a partition: the place of every event of every task in the log, and a row of each task for
// lists (task_rows.go). The events themselves are only in the log. Events that this build can't fold have a place too;
// the row of their task remains as of the previous event (events.Summary.Stopped). It is for one goroutine.
type Timelines struct {
	v      *view
	counts map[string]int64
	rows   taskRows
	events int // not saved yet
}

// Place is the position of a task's event in its partition of the log.
type Place struct {
	Seq    uint64
	Offset int64
}

// Timelines opens the timelines of a partition.
func (s *Store) Timelines(p int32) (*Timelines, error) {
	base, err := s.view(ViewTimelines, p)
	if err != nil {
		return nil, err
	}
	v := &Timelines{v: base, counts: map[string]int64{}, rows: newRows()}
	err = base.get(kindCounts, "", func(data []byte) error { return json.Unmarshal(data, &v.counts) })
	if err == nil {
		err = base.get(kindTally, "", func(data []byte) error { return json.Unmarshal(data, &v.rows.tally) })
	}
	if err != nil {
		base.release()
		return nil, err
	}
	return v, nil
}

// Next returns the offset of the next event to apply.
func (t *Timelines) Next() int64 { return t.v.next }

// Stopped lists the tasks with records that couldn't be read and aren't in the timeline, by id: the
// first such record, and the number of those after it.
func (t *Timelines) Stopped() []Stop { return t.v.Stopped() }

// Apply adds the next event of the log. It skips events below Next. A record without a valid seq gets no place and is
// recorded (Stopped). An error means that the store has stopped, or that the log is another one (LogMismatchError).
func (t *Timelines) Apply(r *events.Record) error {
	if ok, err := t.v.accepts(r); err != nil || !ok {
		return err
	}
	ceType, seq, err := events.EventName(r)
	if err != nil {
		t.v.next, t.rows.tally.LastAt = r.Offset+1, 0
		t.v.stop(string(r.Key), r.Offset, err)
		return nil
	}
	var row *taskRow
	if len(r.Key) > 0 {
		if row, err = t.row(r.Key); err != nil {
			return err
		}
	}
	t.v.next = r.Offset + 1
	t.counts[ceType]++
	if row == nil { // an event of the partition
		t.rows.claim(r)
		return nil
	}
	t.rows.markTouched(row)
	t.rows.fold(row, r, ceType, seq)
	row.places = append(row.places, Place{seq, r.Offset})
	t.events++
	return nil
}

// Estimates for ChangedBytes: placeBytes is the size of a place in Pebble, rowBytes of a row
// with its index entries, rowStepBytes of each of its steps.
const (
	placeBytes   = 16
	rowBytes     = 400
	rowStepBytes = 60
)

// Changed returns the number of events that Save would write.
func (t *Timelines) Changed() int { return t.events }

// ChangedBytes estimates the bytes that Save would write.
func (t *Timelines) ChangedBytes() int {
	return placeBytes*t.events + rowBytes*len(t.rows.touched) + rowStepBytes*t.rows.steps
}

// Save writes the events since the last Save, the rows of their tasks and the offset, in one batch.
func (t *Timelines) Save() error {
	var index *indexWriter
	err := t.v.save(t.events, func(b *pebble.Batch) (err error) {
		var key, value []byte
		for _, r := range t.rows.touched {
			key = t.v.keys.appendEventKey(key[:0], r.task, r.places[0])
			value = appendPlaces(value[:0], r.places)
			if err := b.Set(key, value, nil); err != nil {
				return err
			}
		}
		if index, err = t.saveRows(b); err != nil {
			return err
		}
		counts, err := json.Marshal(t.counts)
		if err != nil {
			return err
		}
		return b.Set(t.v.keys.key(kindCounts, ""), counts, nil)
	})
	if err != nil || index == nil {
		return err
	}
	t.afterSave()
	t.v.setDecodedBytes(int64(t.rows.bytes))
	if index.due {
		return t.advanceDueFrom()
	}
	return nil
}

// appendPlaces writes the places after the first one, which is in the key, as differences of seq and offset. Offsets
// always increase. Seqs may decrease if another writer wrote to the topic.
func appendPlaces(dst []byte, places []Place) []byte {
	for i := 1; i < len(places); i++ {
		dst = binary.AppendVarint(dst, int64(places[i].Seq-places[i-1].Seq))
		dst = binary.AppendUvarint(dst, uint64(places[i].Offset-places[i-1].Offset))
	}
	return dst
}

// readPlaces is the inverse of appendPlaces.
func readPlaces(first Place, data []byte, fn func(Place)) error {
	for at := first; ; {
		fn(at)
		if len(data) == 0 {
			return nil
		}
		seq, n := binary.Varint(data)
		if n <= 0 {
			return errNoPlaces
		}
		offset, m := binary.Uvarint(data[n:])
		if m <= 0 {
			return errNoPlaces
		}
		at.Seq, at.Offset, data = at.Seq+uint64(seq), at.Offset+int64(offset), data[n+m:]
	}
}

var errNoPlaces = errors.New("not the places of events")

// Found is the view's data of one task.
type Found struct {
	Summary *events.Summary // its row; nil: there is none
	Places  []Place         // of its events, by seq
	Next    int64           // the offset below which this is complete
	Owner   string          // of the partition, by the last claim; empty: none yet
	// NoEvent is the first record of the task without a valid seq, which has no place; nil: none.
	NoEvent *Stop
}

// Find returns the view's data of a task, saved or not. It writes nothing.
func (t *Timelines) Find(task string) (f Found, err error) {
	f = Found{Next: t.v.next, Owner: t.rows.tally.Owner}
	if stop, is := t.v.StopOf(task); is {
		f.NoEvent = &stop
	}
	err = t.v.s.use(func(db *pebble.DB) (err error) {
		if f.Places, err = t.v.s.timeline(db, t.v.keys, task); err != nil || t.rows.byTask[task] != nil {
			return err
		}
		return t.v.s.getFrom(db, t.v.keys, kindRow, task, func(data []byte) (err error) {
			f.Summary, err = events.DecodeSummary(data)
			return err
		})
	})
	if r := t.rows.byTask[task]; r != nil && err == nil {
		f.Places = append(f.Places, r.places...)
		if r.summary != nil {
			sum := *r.summary
			sum.Steps = slices.Clone(sum.Steps) // the fold changes the originals
			f.Summary = &sum
		}
	}
	return f, err
}

// Timeline saves, then lists the places of a task's events, by seq. It is empty if the partition has none.
func (t *Timelines) Timeline(task string) ([]Place, error) {
	if err := t.Save(); err != nil {
		return nil, err
	}
	var places []Place
	err := t.v.s.use(func(db *pebble.DB) (err error) {
		places, err = t.v.s.timeline(db, t.v.keys, task)
		return err
	})
	return places, err
}

func (s *Store) timeline(db pebble.Reader, k keyspace, task string) (places []Place, err error) {
	lower := append(k.key(kindPlaces, task), 0)
	upper := append(k.key(kindPlaces, task), 1)
	err = s.eachPlace(db, k, lower, upper, func(of string, at Place) {
		if of == task { // another task's id may contain a zero byte
			places = append(places, at)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(places, func(a, b Place) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Offset, b.Offset)) })
	return places, nil
}

// eachPlace calls fn with every place in a range of keys.
func (s *Store) eachPlace(db pebble.Reader, k keyspace, lower, upper []byte, fn func(task string, at Place)) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("projections: read the timelines of partition %d in %s: %w", k.partition, s.dir, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		task, first, err := cutEventKey(it.Key())
		if err == nil {
			data, failed := it.ValueAndErr()
			if failed != nil { // an error of the disk, which may be temporary
				return fmt.Errorf("projections: read the timelines of partition %d in %s: %w", k.partition, s.dir, failed)
			}
			err = readPlaces(first, data, func(at Place) { fn(task, at) })
		}
		if err != nil {
			return s.unreadable(k, kindPlaces, string(it.Key()[prefixBytes:]), err)
		}
	}
	return it.Error()
}

// Counts returns the number of events by type.
func (t *Timelines) Counts() map[string]int64 { return maps.Clone(t.counts) }

// Digest saves, then hashes the logical content: the places of every task's events, the rows and
// their index, the counts, the records left out.
func (t *Timelines) Digest() (string, error) {
	if err := t.Save(); err != nil {
		return "", err
	}
	// The order of keys depends on when Saves happened. So a sum of hashes is added, which doesn't depend on the order.
	var sum sumDigest
	err := t.v.s.use(func(db *pebble.DB) error {
		lower, upper := t.v.keys.bounds(kindPlaces)
		return t.v.s.eachPlace(db, t.v.keys, lower, upper, func(task string, at Place) {
			sum.add(t.v.keys.appendEventKey(nil, task, at))
		})
	})
	if err != nil {
		return "", err
	}
	d := newDigest(ViewTimelines)
	d.add(fmt.Append(nil, sum))
	if err := t.digestRows(d); err != nil {
		return "", err
	}
	for _, ty := range slices.Sorted(maps.Keys(t.counts)) {
		d.add(fmt.Appendf(nil, "%s %d", ty, t.counts[ty]))
	}
	return t.v.digest(d, false), nil
}

// sumDigest is a sum of hashes. It doesn't depend on their order.
type sumDigest [4]uint64

func (s *sumDigest) add(b []byte) {
	h := sha256.Sum256(b)
	for i := range s {
		s[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

// Wipe deletes what the view and the store have of the partition, so that it is read from the start of the log.
func (t *Timelines) Wipe() error {
	if err := t.v.usable(); err != nil {
		return err
	}
	if err := t.v.deleteAll(nil); err != nil {
		return err
	}
	t.EndLookups()
	clear(t.counts)
	t.rows, t.events = newRows(), 0
	t.v.setDecodedBytes(0)
	return nil
}

// Close saves and drops the memory, as Tasks.Close.
func (t *Timelines) Close() {
	if !t.v.closed {
		_ = t.Save() // a failure stops the store: see Err
		t.Discard()
	}
}

// Discard drops what wasn't saved, as Tasks.Discard.
func (t *Timelines) Discard() {
	t.EndLookups()
	t.v.release()
	t.rows, t.events = taskRows{}, 0
}

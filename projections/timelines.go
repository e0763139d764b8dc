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

// HoldChanges is how often the events since it was opened began or ended the hold of a task.
func (t *Timelines) HoldChanges() uint64 { return t.rows.holdChanges }

// Place is the position of a task's event in its partition of the log.
type Place struct {
	Seq    uint64
	Offset int64
}

// timelinesFormat is the format of what a partition's index holds. An index of another format is emptied when it is
// opened, and is read again from the log: an older one lacks what later builds count.
const timelinesFormat = 9

// Timelines opens the timelines of a partition.
func (s *Store) Timelines(p int32) (*Timelines, error) {
	base, err := s.view(ViewTimelines, p)
	if err != nil {
		return nil, err
	}
	v := &Timelines{v: base, counts: map[string]int64{}, rows: newRows()}
	base.get(kindCounts, "", func(data []byte) error { return json.Unmarshal(data, &v.counts) })
	v.rows.tally = base.tally()
	v.rows.groups.load(base.reader)
	if v.rows.tally.Format != timelinesFormat && v.Next() > 0 {
		v.Wipe()
	}
	v.rows.tally.Format = timelinesFormat
	return v, nil
}

// Next returns the offset of the next event to apply.
func (t *Timelines) Next() int64 { return t.v.next }

// Stopped lists the tasks with records that couldn't be read and aren't in the timeline, by id: the
// first such record, and the number of those after it.
func (t *Timelines) Stopped() []Stop { return t.v.Stopped() }

// Apply adds the next event of the log. It skips events below Next. A record without a valid seq gets no place and is
// recorded (Stopped). An error means that the log is another one (LogMismatchError).
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
		row = t.row(r.Key)
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
	return placeBytes*t.events + rowBytes*len(t.rows.touched) + rowStepBytes*t.rows.changes
}

// Save writes the events since the last Save, the rows of their tasks and the offset, in one batch.
func (t *Timelines) Save() {
	var index *indexWriter
	saved := t.v.save(t.events, func(b batch) {
		var key, value []byte
		for _, r := range t.rows.touched {
			key = t.v.keys.appendEventKey(key[:0], r.task, r.places[0])
			value = appendPlaces(value[:0], r.places)
			b.set(key, value)
		}
		index = t.saveRows(b)
		b.set(t.v.keys.key(kindCounts, ""), mustMarshal(t.counts))
	})
	if !saved {
		return
	}
	t.afterSave()
	t.v.setDecodedBytes(int64(t.rows.bytes))
	if index.due {
		t.advanceDueFrom()
	}
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
	Earlier []Place         // of the events of earlier tasks with its id, by offset
	Next    int64           // the offset below which this is complete
	Owner   string          // of the partition, by the last claim; empty: none yet
	// ErrorGroup is the id of the error group of a held task; empty: it isn't held.
	ErrorGroup string
	// NoEvent is the first record of the task without a valid seq, which has no place; nil: none.
	NoEvent *Stop
}

// Find returns the view's data of a task, saved or not. It writes nothing.
func (t *Timelines) Find(task string) Found {
	f := Found{Next: t.v.next, Owner: t.rows.tally.Owner, Places: t.v.timeline(task)}
	if stop, is := t.v.StopOf(task); is {
		f.NoEvent = &stop
	}
	r := t.rows.byTask[task]
	if r == nil {
		if f.Summary = t.v.summary(task); f.Summary != nil {
			f.ErrorGroup = t.v.groupOf(f.Summary)
			f.Earlier, f.Places = splitPlaces(f.Places, f.Summary.From)
		}
		return f
	}
	f.ErrorGroup = r.group
	f.Places = append(f.Places, r.places...)
	if r.summary != nil {
		sum := *r.summary
		sum.Steps = slices.Clone(sum.Steps) // the fold changes the originals
		f.Summary = &sum
		f.Earlier, f.Places = splitPlaces(f.Places, sum.From)
	}
	return f
}

// Timeline saves, then lists the places of a task's events, by seq. It is empty if the partition has none.
func (t *Timelines) Timeline(task string) []Place {
	t.Save()
	return t.v.timeline(task)
}

func (r reader) timeline(task string) (places []Place) {
	lower := append(r.keys.key(kindPlaces, task), 0)
	upper := append(r.keys.key(kindPlaces, task), 1)
	r.eachPlace(lower, upper, func(of string, at Place) {
		if of == task { // another task's id may contain a zero byte
			places = append(places, at)
		}
	})
	slices.SortFunc(places, func(a, b Place) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Offset, b.Offset)) })
	return places
}

// eachPlace calls fn with every place in a range of keys.
func (r reader) eachPlace(lower, upper []byte, fn func(task string, at Place)) {
	it := r.iterator(lower, upper)
	defer it.close()
	for ok := it.first(); ok; ok = it.next() {
		task, first, err := cutEventKey(it.key())
		if err == nil {
			err = readPlaces(first, it.value(), func(at Place) { fn(task, at) })
		}
		if err != nil {
			r.corrupt(kindPlaces, it.rest(), err)
		}
	}
}

// Counts returns the number of events by type.
func (t *Timelines) Counts() map[string]int64 { return maps.Clone(t.counts) }

// Digest saves, then hashes the logical content: the places of every task's events, the rows and
// their index, the counts, the records left out.
func (t *Timelines) Digest() string {
	t.Save()
	// The order of keys depends on when Saves happened. So a sum of hashes is added, which doesn't depend on the order.
	var sum sumDigest
	lower, upper := t.v.keys.bounds(kindPlaces)
	t.v.eachPlace(lower, upper, func(task string, at Place) { sum.add(t.v.keys.appendEventKey(nil, task, at)) })
	d := newDigest(ViewTimelines)
	d.add(fmt.Append(nil, sum))
	t.digestRows(d)
	for _, ty := range slices.Sorted(maps.Keys(t.counts)) {
		d.add(fmt.Appendf(nil, "%s %d", ty, t.counts[ty]))
	}
	return t.v.digest(d, false)
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
func (t *Timelines) Wipe() {
	t.EndLookups()
	t.v.deleteAll(func(batch) {})
	clear(t.counts)
	t.rows, t.events = newRows(), 0
	t.rows.tally.Format = timelinesFormat
	t.v.setDecodedBytes(0)
}

// Close saves and drops the memory, as Tasks.Close.
func (t *Timelines) Close() {
	if !t.v.closed {
		t.Save()
		t.Discard()
	}
}

// Discard drops what wasn't saved, as Tasks.Discard.
func (t *Timelines) Discard() {
	t.EndLookups()
	t.v.release()
	t.rows, t.events = taskRows{}, 0
}

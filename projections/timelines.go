package projections

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// Timelines is what the audit knows of a partition: every event of every task,
// as it stands in the log. It folds nothing, so it also holds events that this
// build can't fold. It belongs to one goroutine.
type Timelines struct {
	v      *view
	counts map[string]int64
	lines  []lineEntry // not saved yet
	bytes  int
}

// lineEntry is one event to be written.
type lineEntry struct{ key, value []byte }

// Timelines opens the timelines of a partition.
func (s *Store) Timelines(p int32) (*Timelines, error) {
	base, err := s.view(ViewTimelines, p)
	if err != nil {
		return nil, err
	}
	v := &Timelines{v: base, counts: map[string]int64{}}
	if err := base.get(kindCounts, "", func(data []byte) error { return json.Unmarshal(data, &v.counts) }); err != nil {
		base.release()
		return nil, err
	}
	return v, nil
}

// Next is the offset of the next event to apply.
func (t *Timelines) Next() int64 { return t.v.next }

// FlushedNext is the next offset as of what is on disk.
func (t *Timelines) FlushedNext() int64 {
	_, next := t.v.FlushedState()
	return next
}

// Stopped lists the tasks of which a record couldn't be read, and so isn't in
// the timeline, by id: the first such record, and the number of those after it.
func (t *Timelines) Stopped() []Stop { return t.v.Stopped() }

// Apply takes in the next event of the log; what is below Next is skipped. A
// record that is no event is noted (Stopped) and left out. An error means that
// the store has stopped.
func (t *Timelines) Apply(r *events.Record) error {
	if ok, err := t.v.accepts(r); err != nil || !ok {
		return err
	}
	line, err := events.TimelineLine(r)
	t.v.next = r.Offset + 1
	if err != nil {
		t.v.stop(string(r.Key), r.Offset, err)
		return nil
	}
	t.counts[line.Type]++
	if len(r.Key) == 0 {
		return nil // of the partition, not of a task
	}
	value := make([]byte, 0, binary.MaxVarintLen64+len(line.Type)+len(r.Value))
	value = binary.AppendUvarint(value, uint64(len(line.Type)))
	value = append(append(value, line.Type...), r.Value...)
	t.lines = append(t.lines, lineEntry{t.v.keys.eventKey(string(r.Key), line.Seq, r.Offset), value})
	t.bytes += len(value)
	return nil
}

// Changed is the number of events that Save would write.
func (t *Timelines) Changed() int { return len(t.lines) }

// ChangedBytes is about how much Save would write.
func (t *Timelines) ChangedBytes() int { return t.bytes }

// Save writes the events since the last Save and the offset, in one batch.
func (t *Timelines) Save() error {
	err := t.v.save(len(t.lines), func(b *pebble.Batch) error {
		for _, l := range t.lines {
			if err := b.Set(l.key, l.value, nil); err != nil {
				return err
			}
		}
		counts, err := json.Marshal(t.counts)
		if err != nil {
			return err
		}
		return b.Set(t.v.keys.key(kindCounts, ""), counts, nil)
	})
	if err != nil {
		return err
	}
	clear(t.lines)
	t.lines, t.bytes = t.lines[:0], 0
	return nil
}

// Timeline saves, then lists the events of a task, by seq; none if the
// partition has none of it.
func (t *Timelines) Timeline(task string) ([]events.Line, error) {
	if err := t.Save(); err != nil {
		return nil, err
	}
	var lines []events.Line
	err := t.v.s.use(func(db *pebble.DB) (err error) {
		lines, err = t.v.s.timeline(db, t.v.keys, task)
		return err
	})
	return lines, err
}

func (s *Store) timeline(db pebble.Reader, k keyspace, task string) (lines []events.Line, err error) {
	lower := append(k.key(kindEvent, task), 0)
	upper := append(k.key(kindEvent, task), 1)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("projections: read the timeline of %q in %s: %w", task, s.dir, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		of, seq, offset, err := cutEventKey(it.Key())
		if err == nil && of != task {
			continue // of a task whose id holds a zero byte
		}
		data, verr := it.ValueAndErr()
		if verr != nil {
			return nil, verr
		}
		var line events.Line
		if err == nil {
			line, err = storedLine(k.partition, of, seq, offset, data)
		}
		if err != nil {
			return nil, s.unreadable(k, kindEvent, task, err)
		}
		lines = append(lines, line)
	}
	return lines, it.Error()
}

// storedLine makes the line of a stored event, by the same rule as from the
// log.
func storedLine(p int32, task string, seq uint64, offset int64, data []byte) (events.Line, error) {
	n, used := binary.Uvarint(data)
	if used <= 0 || n > uint64(len(data)-used) {
		return events.Line{}, errors.New("an event without its type")
	}
	rest := data[used:]
	r := events.Record{Partition: p, Offset: offset, Key: []byte(task), Value: append([]byte(nil), rest[n:]...),
		Headers: []events.Header{
			{Key: events.HeaderType, Value: rest[:n]},
			{Key: events.HeaderID, Value: []byte(events.TaskEventID(task, seq))},
		}}
	return events.TimelineLine(&r)
}

// Counts is the number of events by type.
func (t *Timelines) Counts() map[string]int64 { return maps.Clone(t.counts) }

// Digest saves, then hashes the logical content: every event in the order of
// task and seq, the counts, the records left out.
func (t *Timelines) Digest() (string, error) {
	if err := t.Save(); err != nil {
		return "", err
	}
	d := newDigest(ViewTimelines)
	err := t.v.each(kindEvent, func(rest string, data []byte) error {
		d.add([]byte(rest))
		d.add(data)
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, ty := range slices.Sorted(maps.Keys(t.counts)) {
		d.add(fmt.Appendf(nil, "%s %d", ty, t.counts[ty]))
	}
	return t.v.digest(d, false), nil
}

// Close saves and drops the memory, as Tasks.Close.
func (t *Timelines) Close() {
	if !t.v.closed {
		_ = t.Save() // its failure is the store's: Err
		t.Discard()
	}
}

// Discard drops what wasn't saved, as Tasks.Discard.
func (t *Timelines) Discard() {
	t.v.release()
	t.lines, t.bytes = nil, 0
}

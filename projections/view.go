package projections

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// view is the common part of the three views of a partition: the offset, the partition's state, and the stopped tasks.
type view struct {
	reader
	next         int64
	state        events.PartitionState
	stops        map[string]*Stop
	savedNext    int64 // next as of the last Save
	decodedBytes int64 // the view's part of Store.decoded
	closed       bool

	recent  recentKeys // keys of the kind that lookups read
	decoder events.EventReader

	// awaitingLast is true while the last applied event, of instant lastAt, must come again. inOrder is true if one
	// reader delivers records in order.
	awaitingLast, inOrder bool
	lastAt                time.Time
}

// Stop is a stopped task: one of its events can't be folded, so no later one can be. In Timelines it means only that
// the timeline lacks records of the task.
type Stop struct {
	Task    string `json:"-"`
	Offset  int64  `json:"offset"` // of the event that can't be folded
	Reason  string `json:"reason"`
	Skipped int64  `json:"skipped,omitempty"` // later events of the task

	changed bool
}

// errViewOpen is returned because a partition may have only one view, which is for one goroutine.
var errViewOpen = errors.New("a view of the partition is open already; close it first")

func (s *Store) view(name string, p int32) (*view, error) {
	k, err := s.keyspaceOf(name, p)
	if err != nil {
		return nil, err
	}
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	s.mu.Lock()
	taken := s.views[p]
	s.views[p] = true
	s.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("projections: %s: partition %d: %w", s.dir, p, errViewOpen)
	}
	v := &view{reader: reader{s, s.db, k}, stops: map[string]*Stop{}, recent: newRecentKeys()}
	v.load()
	return v, nil
}

func (v *view) load() {
	v.get(kindMeta, "", func(data []byte) error {
		next, state, err := decodeMeta(data)
		v.next, v.savedNext, v.state = next, next, state
		return err
	})
	v.s.mu.Lock()
	// A partition that this process hasn't saved yet is on disk as it was loaded.
	if _, known := v.s.saved[v.keys.partition]; !known {
		v.s.flushed[v.keys.partition] = mark{v.next, v.state}
	} else {
		v.recent.markAllDirty(v.s.flushesBegun)
	}
	v.s.mu.Unlock()
	v.each(kindStopped, func(rest string, data []byte) error {
		stop := &Stop{Task: rest}
		v.stops[rest] = stop
		return json.Unmarshal(data, stop)
	})
}

func encodeMeta(next int64, state *events.PartitionState) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(next)), state.Encode()...)
}

func decodeMeta(data []byte) (int64, events.PartitionState, error) {
	if len(data) < 8 {
		return 0, events.PartitionState{}, fmt.Errorf("%d bytes are no offset", len(data))
	}
	state, err := events.DecodePartitionState(data[8:])
	if err != nil {
		return 0, events.PartitionState{}, err
	}
	return int64(binary.BigEndian.Uint64(data)), *state, nil
}

// Next returns the offset of the next event to apply.
func (v *view) Next() int64 { return v.next }

// State returns the partition's state, as of Next.
func (v *view) State() events.PartitionState { return v.state }

// FlushedState returns the partition's state and the next offset on disk. A crash loses nothing below that offset.
// Inboxes may be trimmed below Reflected of this state, and the log below the offset.
func (v *view) FlushedState() (events.PartitionState, int64) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	m := v.s.flushed[v.keys.partition]
	return m.state, m.next
}

// Stopped lists the stopped tasks by id. A stop without a task is of a record without a key.
func (v *view) Stopped() []Stop {
	out := make([]Stop, 0, len(v.stops))
	for _, s := range v.stops {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Stop) int { return cmp.Compare(a.Task, b.Task) })
	return out
}

// WhyStopped returns why a task was stopped, and whether it was.
func (v *view) WhyStopped(task string) (string, bool) {
	stop, ok := v.StopOf(task)
	return stop.Reason, ok
}

// StopOf returns the stop of a task, and whether it was stopped.
func (v *view) StopOf(task string) (Stop, bool) {
	if s := v.stops[task]; s != nil {
		return *s, true
	}
	return Stop{}, false
}

// stop stops a task at a record, or counts the record if the task was stopped before.
func (v *view) stop(task string, offset int64, reason error) {
	if v.skip(task) {
		return
	}
	v.stops[task] = &Stop{Task: task, Offset: offset, Reason: reason.Error(), changed: true}
}

// skip counts an event of a stopped task. It returns false if the task isn't stopped.
func (v *view) skip(task string) bool {
	s := v.stops[task]
	if s == nil {
		return false
	}
	s.Skipped++
	s.changed = true
	return true
}

// accepts reports whether a record must be applied: it is of the view's partition, and not applied yet.
func (v *view) accepts(r *events.Record) (bool, error) {
	v.mustBeOpen()
	if r.Partition != v.keys.partition {
		return false, fmt.Errorf("projections: a record of partition %d was given to the view of partition %d", r.Partition, v.keys.partition)
	}
	if err := v.checkLog(r); err != nil {
		return false, err
	}
	return r.Offset >= v.next, nil
}

// mustBeOpen panics if the view was closed.
func (v *view) mustBeOpen() {
	if v.closed {
		panic(fmt.Sprintf("projections: %s: the view of partition %d is closed", v.s.dir, v.keys.partition))
	}
}

// decode decodes the next event, and folds it into the partition's state. e is nil if no task is to be changed: it is an
// event of the partition, its task is stopped, or it is unreadable, which stops its task.
func (v *view) decode(r *events.Record) (e *events.Event, err error) {
	e, err = v.decoder.Decode(r)
	if err != nil {
		return nil, v.stopUnreadable(r, err)
	}
	if err := v.evolvePartition(r, e); err != nil {
		return nil, err
	}
	v.next = r.Offset + 1
	if e.Task == "" || len(v.stops) > 0 && v.skip(e.Task) {
		return nil, nil
	}
	return e, nil
}

// stopUnreadable stops the task of an event that this build can't read. It folds the event's envelope into the
// partition's state.
func (v *view) stopUnreadable(r *events.Record, why error) error {
	v.stop(string(r.Key), r.Offset, why)
	v.next = r.Offset + 1
	e, err := events.DecodeEnvelope(r)
	if err != nil {
		return nil // not even the envelope is readable
	}
	return v.evolvePartition(r, e)
}

// evolvePartition folds an event into the partition's state. An error stops the partition, not a task: an epoch or an
// instant decreased, since two owners wrote or a clock ran backwards.
func (v *view) evolvePartition(r *events.Record, e *events.Event) error {
	if err := v.state.Evolve(e); err != nil {
		return fmt.Errorf("projections: events/%d/%d: %w: two owners wrote to the log, or its time ran backwards; run waybill verify", v.keys.partition, r.Offset, err)
	}
	return nil
}

// save commits what fill adds, the stops and the offset, in one batch. saved is false if nothing has changed.
func (v *view) save(entries int, fill func(batch)) (saved bool) {
	v.mustBeOpen()
	if entries == 0 && v.savedNext == v.next {
		return false
	}
	size := v.s.write(func(b batch) {
		fill(b)
		for _, stop := range v.stops {
			if stop.changed {
				b.set(v.keys.key(kindStopped, stop.Task), mustMarshal(stop))
			}
		}
		b.set(v.keys.key(kindMeta, ""), encodeMeta(v.next, &v.state))
	})
	v.recent.afterWrite(v.s.flushes())
	for _, stop := range v.stops {
		stop.changed = false
	}
	v.savedNext = v.next
	v.s.o.Listener.Saved(Saved{Partition: v.keys.partition, Next: v.next, Entries: entries, Bytes: size})
	v.s.recordSaved(v.keys.partition, mark{v.next, v.state}, size)
	return true
}

// deleteAll deletes the partition's keys. instead adds keys to the same batch.
func (v *view) deleteAll(instead func(batch)) {
	v.mustBeOpen()
	v.s.write(func(b batch) {
		lower, upper := v.keys.all()
		b.deleteRange(lower, upper)
		instead(b)
	})
	v.reset()
}

// reset empties the view, after all keys of the partition were deleted.
func (v *view) reset() {
	v.s.mu.Lock()
	v.s.flushed[v.keys.partition] = mark{}
	v.s.saved[v.keys.partition] = mark{}
	delete(v.s.flushingMarks, v.keys.partition)
	v.recent.markAllDirty(v.s.flushesBegun)
	v.s.mu.Unlock()
	v.next, v.savedNext, v.state, v.awaitingLast = 0, 0, events.PartitionState{}, false
	clear(v.stops)
}

// setDecodedBytes sets the stored size of the tasks or rows that the view keeps decoded.
func (v *view) setDecodedBytes(bytes int64) {
	v.s.decoded.Add(bytes - v.decodedBytes)
	v.decodedBytes = bytes
}

// release allows the partition to be opened again.
func (v *view) release() {
	if v.closed {
		return
	}
	v.closed = true
	v.setDecodedBytes(0)
	v.s.mu.Lock()
	delete(v.s.views, v.keys.partition)
	v.s.viewClosed.Broadcast()
	v.s.mu.Unlock()
}

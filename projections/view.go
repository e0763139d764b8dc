package projections

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-run/waybill/events"
)

// view is the common part of the three views of a partition: the offset, the partition's state, and the stopped tasks.
type view struct {
	s            *Store
	keys         keyspace
	next         int64
	state        events.PartitionState
	stops        map[string]*Stop
	savedNext    int64 // next as of the last Save
	decodedBytes int64 // the view's part of Store.decoded
	closed       bool

	recent recentKeys // keys of the kind that lookups read

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
	s.mu.Lock()
	taken := s.views[p]
	s.views[p] = true
	s.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("projections: %s: partition %d: %w", s.dir, p, errViewOpen)
	}
	v := &view{s: s, keys: k, stops: map[string]*Stop{}, recent: newRecentKeys()}
	if err := v.load(); err != nil {
		v.release()
		return nil, err
	}
	return v, nil
}

func (v *view) load() error {
	if err := v.get(kindMeta, "", func(data []byte) error {
		next, state, err := decodeMeta(data)
		v.next, v.savedNext, v.state = next, next, state
		return err
	}); err != nil {
		return err
	}
	v.s.mu.Lock()
	// A partition that this process hasn't saved yet is on disk as it was loaded.
	if _, known := v.s.saved[v.keys.partition]; !known {
		v.s.flushed[v.keys.partition] = mark{v.next, v.state}
	} else {
		v.recent.markAllDirty(v.s.flushesBegun)
	}
	v.s.mu.Unlock()
	return v.each(kindStopped, func(rest string, data []byte) error {
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

// get calls fn with the value of a key, if it exists. data belongs to Pebble. An error of fn means a corrupt value.
func (v *view) get(kind byte, rest string, fn func(data []byte) error) error {
	return v.s.get(v.keys, kind, rest, fn)
}

func (s *Store) get(k keyspace, kind byte, rest string, fn func(data []byte) error) error {
	return s.use(func(db *pebble.DB) error { return s.getFrom(db, k, kind, rest, fn) })
}

func (s *Store) getFrom(db pebble.Reader, k keyspace, kind byte, rest string, fn func(data []byte) error) error {
	var room [128]byte
	data, closer, err := db.Get(k.appendKey(room[:0], kind, rest))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("projections: read %q of partition %d in %s: %w", rest, k.partition, s.dir, err)
	}
	err = fn(data)
	if err != nil {
		err = s.unreadable(k, kind, rest, err)
	}
	return errors.Join(err, closer.Close())
}

// unreadable stops the store, since after one unreadable value no other can be trusted.
func (s *Store) unreadable(k keyspace, kind byte, rest string, err error) error {
	err = s.corrupt(fmt.Errorf("partition %d, key %c %q: %w", k.partition, kind, rest, err))
	s.fail(err)
	return err
}

// each calls fn with every value of a kind, in the order of keys. data belongs to Pebble.
func (v *view) each(kind byte, fn func(rest string, data []byte) error) error {
	return v.s.use(func(db *pebble.DB) error {
		lower, upper := v.keys.bounds(kind)
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return fmt.Errorf("projections: read partition %d in %s: %w", v.keys.partition, v.s.dir, err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			rest := string(it.Key()[prefixBytes:])
			data, err := it.ValueAndErr()
			if err == nil {
				if err = fn(rest, data); err != nil {
					err = v.s.unreadable(v.keys, kind, rest, err)
				}
			}
			if err != nil {
				return errors.Join(err, it.Close())
			}
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return fmt.Errorf("projections: read partition %d in %s: %w", v.keys.partition, v.s.dir, err)
		}
		return nil
	})
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
	if err := v.usable(); err != nil {
		return false, err
	}
	if r.Partition != v.keys.partition {
		return false, fmt.Errorf("projections: a record of partition %d was given to the view of partition %d", r.Partition, v.keys.partition)
	}
	if err := v.checkLog(r); err != nil {
		return false, err
	}
	return r.Offset >= v.next, nil
}

func (v *view) usable() error {
	if v.closed {
		return fmt.Errorf("projections: %s: the view of partition %d is %w", v.s.dir, v.keys.partition, ErrClosed)
	}
	return v.s.Err()
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

// save commits what fill adds, the stops and the offset, in one batch.
func (v *view) save(entries int, fill func(*pebble.Batch) error) error {
	if err := v.usable(); err != nil {
		return err
	}
	if entries == 0 && v.savedNext == v.next {
		return nil
	}
	size, err := v.s.write(func(b *pebble.Batch) error {
		if err := fill(b); err != nil {
			return err
		}
		for _, stop := range v.stops {
			if !stop.changed {
				continue
			}
			data, err := json.Marshal(stop)
			if err != nil {
				return err
			}
			if err := b.Set(v.keys.key(kindStopped, stop.Task), data, nil); err != nil {
				return err
			}
		}
		return b.Set(v.keys.key(kindMeta, ""), encodeMeta(v.next, &v.state), nil)
	})
	if err != nil {
		err = fmt.Errorf("projections: save partition %d at offset %d: %w", v.keys.partition, v.next, err)
		if v.s.Err() == nil {
			// fill may have changed the state in memory as if it were saved. A later batch would lack those changes.
			err = fmt.Errorf("%w; see to the disk, then start again: nothing is lost, the log is replayed", err)
			v.s.fail(err)
		}
		return err
	}
	v.recent.afterWrite(v.s.flushes())
	for _, stop := range v.stops {
		stop.changed = false
	}
	v.savedNext = v.next
	if f := v.s.o.Listener.Saved; f != nil {
		f(Saved{Partition: v.keys.partition, Next: v.next, Entries: entries, Bytes: size})
	}
	return v.s.recordSaved(v.keys.partition, mark{v.next, v.state}, size)
}

// deleteAll deletes the partition's keys. instead, if not nil, adds keys to the same batch.
func (v *view) deleteAll(instead func(*pebble.Batch) error) error {
	_, err := v.s.write(func(b *pebble.Batch) error {
		lower, upper := v.keys.all()
		if err := b.DeleteRange(lower, upper, nil); err != nil || instead == nil {
			return err
		}
		return instead(b)
	})
	if err != nil {
		return fmt.Errorf("projections: empty partition %d in %s: %w", v.keys.partition, v.s.dir, err)
	}
	v.reset()
	return nil
}

// reset empties the view, after all keys of the partition were deleted.
func (v *view) reset() {
	v.s.mu.Lock()
	v.s.flushed[v.keys.partition] = mark{}
	v.s.saved[v.keys.partition] = mark{}
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
	v.s.mu.Unlock()
}

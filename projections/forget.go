package projections

import (
	"encoding/binary"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Ids of ended tasks are forgotten by an event of the partition (events.PartitionForgot), which may name millions. So
// nothing is deleted when it is applied: from then on Task hides the tasks whose ForgetAt isn't after
// PartitionState.Forgot. Each Save deletes some of them from Pebble, by a list that is ordered by ForgetAt. A key of the
// list may be obsolete: the task was undone, or its id is a later task's.

const (
	// forgetsPerSave bounds the ids that one Save deletes. It exceeds what ends between two Saves, so that the deletions
	// keep up.
	forgetsPerSave = 1 << 14
	// rewriteEndedMin is the number of ended tasks in a snapshot's chunks from which on they are written again without
	// the forgotten ones. That happens when more than half are forgotten.
	rewriteEndedMin = 1 << 14
)

// appendForgetKey appends the key of an ended task by its ForgetAt.
func (k keyspace) appendForgetKey(dst []byte, at time.Time, task string) []byte {
	dst = k.appendKey(dst, kindForget, "")
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(0, at.UnixMilli())))
	return append(dst, task...)
}

// known returns the task, or nil if its id is forgotten.
func (v *view) known(t *events.Task) *events.Task {
	if t.Forgotten(v.state.Forgot) {
		return nil
	}
	return t
}

// MayForget reports whether ids may be forgotten now. While a snapshot is written its tasks must stay as they are, since
// they reflect several offsets. While ended tasks are loaded, nothing is known about them.
func (v *Tasks) MayForget() bool { return v.snap.pass == nil && !v.loading }

// NextForgetAt returns the earliest ForgetAt after an instant of the ended tasks, or an earlier instant; zero: none has
// one.
func (v *Tasks) NextForgetAt(after time.Time) (next time.Time) {
	for _, en := range v.finished {
		if at := en.task.ForgetAt; at.After(after) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	_, upper := v.keys.bounds(kindForget)
	it := v.iterator(v.keys.appendForgetKey(nil, after.Add(time.Millisecond), ""), upper)
	defer it.close()
	if it.first() && len(it.rest()) >= 8 {
		if at := instant(int64(binary.BigEndian.Uint64([]byte(it.rest()[:8])))); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Kept returns the number of ended tasks in the store, as of the last Save. Those that are forgotten and not deleted yet
// are included.
func (v *Tasks) Kept() int64 { return v.kept }

// TakeForgets returns the number of ids that were deleted since the last call.
func (v *Tasks) TakeForgets() (n int64) {
	n, v.forgets = v.forgets, 0
	return n
}

// loadKept reads the number of ended tasks.
func (v *Tasks) loadKept() {
	v.kept, v.savedKept = 0, 0
	v.get(kindKept, "", func(data []byte) error {
		n, size := binary.Varint(data)
		if size <= 0 {
			return errMissing
		}
		v.kept, v.savedKept = n, n
		return nil
	})
}

// fillForgotten adds the deletion of forgotten ids to the batch of a Save, at most forgetsPerSave.
func (v *Tasks) fillForgotten(b batch) {
	if !v.hasForgotten() {
		return
	}
	lower, _ := v.keys.bounds(kindForget)
	it := v.iterator(lower, v.keys.appendForgetKey(nil, v.state.Forgot.Add(time.Millisecond), ""))
	defer it.close()
	l := lookup{r: v.reader, kind: kindFinished}
	defer l.close()
	n, last := 0, []byte(nil)
	for ok := it.first(); ok && n < forgetsPerSave; ok = it.next() {
		id := it.rest()[8:]
		t := l.task(id)
		if v.isReopened(id) { // fillEnded or fillUnended counts it
			t = nil
		}
		if t.Forgotten(v.state.Forgot) {
			b.delete(v.keys.key(kindFinished, id))
			v.recent.add(id)
		}
		if t != nil { // if it isn't forgotten, a later task has replaced the earlier one
			v.kept--
			v.forgets++
		}
		n, last = n+1, append(last[:0], it.key()...)
	}
	if n > 0 {
		b.deleteRange(lower, append(last, 0))
	}
	if n < forgetsPerSave {
		v.deletedUntil = v.state.Forgot
	}
}

// hasForgotten reports whether Pebble may have forgotten ids to delete now.
func (v *Tasks) hasForgotten() bool {
	return v.state.Forgot.After(v.deletedUntil) && v.snap.pass == nil && !v.loading
}

// isReopened reports whether a task is undone, or another one, and Pebble still holds it as ended.
func (v *Tasks) isReopened(id string) bool {
	en := v.open.hot[id]
	if en == nil {
		en = v.finished[id]
	}
	return en != nil && en.storedEnded
}

// fillEnded adds what a Save writes of an ended task besides its row, and counts it.
func (v *Tasks) fillEnded(b batch, en *entry) {
	if !en.storedEnded {
		v.kept++
	}
	if en.storedEnded && !en.wasForget.IsZero() {
		b.delete(v.keys.appendForgetKey(nil, en.wasForget, en.task.ID))
	}
	if at := en.task.ForgetAt; !at.IsZero() {
		b.set(v.keys.appendForgetKey(nil, at, en.task.ID), nil)
		if !at.After(v.state.Forgot) { // it is deleted by the next Save
			v.deletedUntil = time.Time{}
		}
	}
}

// fillUnended deletes what the store has of an open task that had ended, besides its row.
func (v *Tasks) fillUnended(b batch, en *entry) {
	if !en.storedEnded {
		return
	}
	v.kept--
	if !en.wasForget.IsZero() {
		b.delete(v.keys.appendForgetKey(nil, en.wasForget, en.task.ID))
	}
}

// fillKept adds the number of ended tasks.
func (v *Tasks) fillKept(b batch) {
	if v.kept != v.savedKept {
		b.set(v.keys.key(kindKept, ""), binary.AppendVarint(nil, v.kept))
		v.savedKept = v.kept
	}
}

// setForgetKey adds the key of a stored ended task by its ForgetAt, if it has one.
func (k keyspace) setForgetKey(b batch, id string, stored []byte) {
	if at := events.StoredForgetAt(stored); !at.IsZero() {
		b.set(k.appendForgetKey(nil, at, id), nil)
	}
}

// rewriteEnded begins a full snapshot if most of the ended tasks in the chunks are forgotten.
func (v *Tasks) rewriteEnded() {
	s := &v.snap
	if s.pass == nil && !s.full && s.counts() && s.finishedN >= rewriteEndedMin && s.finishedN > 2*v.kept {
		v.restartFull()
	}
}

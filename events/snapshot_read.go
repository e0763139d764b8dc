package events

import (
	"errors"
	"fmt"
)

// A reader finds the newest snapshot of a partition by its SnapshotMetaKey, which is written last. So it first reads
// the last SnapshotReadBack offsets of the topic. Until it has found the key it reads again, SnapshotReadBackFactor
// times as many.
const (
	SnapshotReadBack       = 64
	SnapshotReadBackFactor = 32
)

// snapshotLeadMin is the number of events by which a snapshot must be ahead to be loaded, beyond the cost of loading
// it. Reading fewer events takes a second or two, and keeps the store's content.
const snapshotLeadMin = 100_000

// ShorterThan reports whether loading the snapshot takes less time than reading the events from offset next. tasks is
// the number of its tasks to load. Loading a task takes about as long as reading an event. If next is 0 the result is
// true for every snapshot with events.
func (s *Snapshot) ShorterThan(next, tasks int64) bool {
	return next == 0 && s.Next > 0 || s.Next-next > snapshotLeadMin+tasks
}

// SnapshotReader collects the records of a partition of the snapshots topic. A record replaces earlier ones with its
// key, as in compaction. The zero value is ready. It is for one goroutine.
type SnapshotReader struct {
	chunks  map[string][]byte
	meta    *Snapshot
	metaErr error
}

// AddOpen is Add without the finished tasks, which are most of a topic.
func (r *SnapshotReader) AddOpen(rec *Record) {
	if kind, _, ok := ParseChunkKey(string(rec.Key)); !ok || kind != ChunkFinished {
		r.Add(rec)
	}
}

// Add adds the next record.
func (r *SnapshotReader) Add(rec *Record) {
	key := string(rec.Key)
	if key == SnapshotMetaKey {
		r.meta, r.metaErr = nil, nil
		if rec.Value != nil {
			r.meta, r.metaErr = DecodeSnapshot(rec)
		}
		return
	}
	if _, _, ok := ParseChunkKey(key); !ok {
		return // of a newer format; then the format of the snapshot is newer too
	}
	if r.chunks == nil {
		r.chunks = map[string][]byte{}
	}
	if rec.Value == nil {
		delete(r.chunks, key)
		return
	}
	r.chunks[key] = rec.Value
}

// Snapshot returns the last snapshot that was added. The error wraps ErrSnapshot if it can't be
// read, and ErrNoSnapshot if there is none.
func (r *SnapshotReader) Snapshot() (*Snapshot, error) {
	switch {
	case r.metaErr != nil:
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, r.metaErr)
	case r.meta == nil:
		return nil, ErrNoSnapshot
	}
	return r.meta, nil
}

// The kinds of error of a snapshot.
var (
	ErrSnapshot   = errors.New("the snapshot can't be used")
	ErrNoSnapshot = errors.New("there is no snapshot")
	// ErrSnapshotFormat says that a newer build wrote the snapshot. Snapshot wraps it together with ErrSnapshot.
	ErrSnapshotFormat = errors.New("a later format")
)

// ChunkValues returns the values of the chunks of a kind that belong to the snapshot. The error
// names the chunk that is missing or corrupt.
func (r *SnapshotReader) ChunkValues(kind string, of Chunks) ([][]byte, error) {
	var values [][]byte
	sum := uint64(0)
	for n := of.From; n < of.To; n++ {
		key := ChunkKey(kind, n)
		value := r.chunks[key]
		if value == nil {
			return nil, fmt.Errorf("%s is missing, of %d to %d", key, of.From, of.To)
		}
		sum += ChunkSum(key, value)
		values = append(values, value)
	}
	if sum != of.Sum {
		return nil, fmt.Errorf("the chunks %s/%d to %d aren't those that were written", kind, of.From, of.To)
	}
	return values, nil
}

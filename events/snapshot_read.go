package events

import (
	"errors"
	"fmt"
)

// How a reader finds the newest snapshot of a partition. The record that makes it count
// (SnapshotMetaKey) is written last. So the last SnapshotReadBack offsets of the topic are read
// first, and as long as it isn't among them, SnapshotReadBackFactor times as many.
const (
	SnapshotReadBack       = 64
	SnapshotReadBackFactor = 32
)

// snapshotLeadMin is by how many events more than it costs a snapshot must be ahead to be taken.
// Within that, reading on from where one is takes a second or two, and throws nothing away.
const snapshotLeadMin = 100_000

// ShorterThan reports whether taking the snapshot, with so many of its tasks, is a shorter way
// to the end of the log than reading events from an offset on; from offset 0, where nothing is
// there to go on from, it always is. A task costs about what an event costs.
func (s *Snapshot) ShorterThan(next, tasks int64) bool {
	return next == 0 && s.Next > 0 || s.Next-next > snapshotLeadMin+tasks
}

// SnapshotReader gathers the records of a partition of the snapshots topic. Only
// what is there after the last record counts: compaction takes earlier versions
// away at any time. The zero value is ready; it belongs to one goroutine.
type SnapshotReader struct {
	chunks  map[string][]byte
	meta    *Snapshot
	metaErr error
}

// AddOpen is Take, but for finished tasks, which are most of a topic.
func (r *SnapshotReader) AddOpen(rec *Record) {
	if kind, _, ok := ParseChunkKey(string(rec.Key)); !ok || kind != ChunkFinished {
		r.Add(rec)
	}
}

// Take takes the next record.
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
		return // of a later format, which meta says
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

// Snapshot is the last one that was taken. ErrSnapshot is wrapped where it can't
// be read, ErrNoSnapshot where there is none.
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
	// ErrSnapshotFormat comes with ErrSnapshot.
	ErrSnapshotFormat = errors.New("a later format")
)

// Counted are the values of the chunks of a kind that the snapshot counts. An
// error names what is missing or damaged.
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

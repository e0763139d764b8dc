package projections

import (
	"encoding/binary"
	"fmt"
)

// keyVersion begins every key.
const keyVersion = 1

// The kinds of key, after version, view and partition.
const (
	kindMeta     = 'm'
	kindStopped  = 'x'
	kindOpen     = 'o'
	kindFinished = 'f'
	kindArmed    = 'a'
	kindPlaces   = 'p'
	kindCounts   = 'n'
	kindLoading  = 'r'
	kindRow      = 'R'
	kindIndex    = 'I'
	kindPosting  = 'J'
	kindDue      = 'D'
	kindTally    = 'N'
	kindHold     = 'h' // where the open alert of a task is
	kindAlert    = 'L' // open ones
	kindPast     = 'P'
)

// viewLetters are the views as keys name them.
var viewLetters = map[string]byte{ViewTasks: 't', ViewDeadlines: 'd', ViewTimelines: 'l'}

// keyspace makes the keys of one partition of one view.
type keyspace struct {
	view      byte
	partition int32
}

// prefixBytes is what comes before the rest of a key.
const prefixBytes = 7

// appendKey appends the key of a kind and its rest.
func (k keyspace) appendKey(dst []byte, kind byte, rest string) []byte {
	dst = append(dst, keyVersion, k.view)
	dst = binary.BigEndian.AppendUint32(dst, uint32(k.partition))
	dst = append(dst, kind)
	return append(dst, rest...)
}

func (k keyspace) key(kind byte, rest string) []byte {
	return k.appendKey(make([]byte, 0, prefixBytes+len(rest)), kind, rest)
}

// bounds are the first key of a kind and the first after it.
func (k keyspace) bounds(kind byte) (lower, upper []byte) {
	return k.key(kind, ""), k.key(kind+1, "")
}

// all are the first key of the partition and the first after it.
func (k keyspace) all() (lower, upper []byte) {
	lower = k.key(0, "")[:prefixBytes-1]
	upper = keyspace{k.view, k.partition + 1}.key(0, "")[:prefixBytes-1]
	return lower, upper
}

// appendEventKey appends the key of a run of a task's events, by the first. A task's
// id holds no zero byte, so the events of one task are neighbours, in the order of
// seq; the offset keeps two records of one seq apart.
func (k keyspace) appendEventKey(dst []byte, task string, first Place) []byte {
	dst = append(k.appendKey(dst, kindPlaces, task), 0)
	dst = binary.BigEndian.AppendUint64(dst, first.Seq)
	return binary.BigEndian.AppendUint64(dst, uint64(first.Offset))
}

// eventSuffixBytes is what follows the task's id in the key of a run.
const eventSuffixBytes = 1 + 8 + 8

// cutEventKey is the inverse of appendEventKey.
func cutEventKey(key []byte) (task string, first Place, err error) {
	n := len(key) - eventSuffixBytes
	if n < prefixBytes || key[n] != 0 {
		return "", Place{}, fmt.Errorf("key %x: not that of events", key)
	}
	return string(key[prefixBytes:n]), Place{binary.BigEndian.Uint64(key[n+1:]), int64(binary.BigEndian.Uint64(key[n+9:]))}, nil
}

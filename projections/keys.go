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
	kindHold     = 'h' // the offset of a task's open alert
	kindAlert    = 'L' // open alerts
	kindPast     = 'P'
	kindGroup    = 'G' // error groups
	kindStats    = 'S' // of workflows
	kindAgents   = 'V' // stats of agents
	kindSteps    = 'T' // counts of steps
	kindTook     = 'U' // durations of steps
	kindEnds     = 'E' // open tasks by complete-by
	kindForget   = 'F' // ended tasks by when their ids may be forgotten
	kindKept     = 'K' // number of ended tasks
)

// viewLetters are the letters of the views in keys.
var viewLetters = map[string]byte{ViewTasks: 't', ViewDeadlines: 'd', ViewTimelines: 'l'}

// keyspace makes the keys of one partition of one view.
type keyspace struct {
	view      byte
	partition int32
}

// prefixBytes is the length of version, view, partition and kind, which precede the rest of a key.
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

// bounds returns the first key of a kind, and the first key after the kind.
func (k keyspace) bounds(kind byte) (lower, upper []byte) {
	return k.key(kind, ""), k.key(kind+1, "")
}

// all returns the first key of the partition, and the first key after the partition.
func (k keyspace) all() (lower, upper []byte) {
	lower = k.key(0, "")[:prefixBytes-1]
	upper = keyspace{k.view, k.partition + 1}.key(0, "")[:prefixBytes-1]
	return lower, upper
}

// appendEventKey appends the key of consecutive events of a task, by the first. A valid task id has no zero byte, so
// the events of one task are adjacent, in the order of seq. The offset distinguishes two records with one seq.
func (k keyspace) appendEventKey(dst []byte, task string, first Place) []byte {
	dst = append(k.appendKey(dst, kindPlaces, task), 0)
	dst = binary.BigEndian.AppendUint64(dst, first.Seq)
	return binary.BigEndian.AppendUint64(dst, uint64(first.Offset))
}

// eventSuffixBytes is the length of the key after the task's id.
const eventSuffixBytes = 1 + 8 + 8

// cutEventKey is the inverse of appendEventKey.
func cutEventKey(key []byte) (task string, first Place, err error) {
	n := len(key) - eventSuffixBytes
	if n < prefixBytes || key[n] != 0 {
		return "", Place{}, fmt.Errorf("key %x: not that of events", key)
	}
	return string(key[prefixBytes:n]), Place{binary.BigEndian.Uint64(key[n+1:]), int64(binary.BigEndian.Uint64(key[n+9:]))}, nil
}

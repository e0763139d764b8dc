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
	kindEvent    = 'e'
	kindCounts   = 'n'
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

// eventKey is the key of one event of a timeline. A task's id holds no zero
// byte, so the events of one task are neighbours, in the order of seq; the
// offset keeps two records of one seq apart.
func (k keyspace) eventKey(task string, seq uint64, offset int64) []byte {
	b := k.appendKey(make([]byte, 0, prefixBytes+len(task)+eventSuffixBytes), kindEvent, task)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, seq)
	return binary.BigEndian.AppendUint64(b, uint64(offset))
}

// eventSuffixBytes is what follows the task's id in an event's key.
const eventSuffixBytes = 1 + 8 + 8

// cutEventKey is the inverse of eventKey.
func cutEventKey(key []byte) (task string, seq uint64, offset int64, err error) {
	n := len(key) - eventSuffixBytes
	if n < prefixBytes || key[n] != 0 {
		return "", 0, 0, fmt.Errorf("key %x: not an event's", key)
	}
	return string(key[prefixBytes:n]), binary.BigEndian.Uint64(key[n+1:]), int64(binary.BigEndian.Uint64(key[n+9:])), nil
}

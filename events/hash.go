package events

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// Hash is the link of the chain: what the next event of the task holds as
// prev, and its last event as sum (Seal). It covers the type and the value, so no event
// of a task can be changed, dropped or put in without breaking the chain after it. 128
// bits of SHA-256, without a key: who can write the topic can make a chain that fits.
func Hash(ceType string, value []byte) string {
	if len(ceType)+1+len(value) > hashRoom {
		h := hashers.Get().(*Hasher)
		defer hashers.Put(h)
		return h.Hash(ceType, value)
	}
	var room [hashRoom]byte // most events fit, and cost no allocation
	sum := sha256.Sum256(append(append(append(room[:0], ceType...), 0), value...))
	return hashText(sum[:])
}

// hashers are for events that are longer.
var hashers = sync.Pool{New: func() any { return &Hasher{} }}

// hashRoom is for a type and a value, in bytes.
const hashRoom = 1 << 10

// Hasher makes one hash after another, and copies nothing of what it is given. The zero value
// is ready; one goroutine uses it.
type Hasher struct {
	sum  hash.Hash
	room [sha256.Size]byte
}

// Hash is the function Hash.
func (h *Hasher) Hash(ceType string, value []byte) string {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	h.sum.Reset()
	// A hash takes all that it is given.
	_, _ = h.sum.Write(bytesOf(ceType))
	_, _ = h.sum.Write(zero)
	_, _ = h.sum.Write(value)
	return hashText(h.sum.Sum(h.room[:0]))
}

// zero stands between a type and a value.
var zero = []byte{0}

// hashText is a hash as prev has it.
func hashText(sum []byte) string {
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], sum[:16])
	return string(text[:])
}

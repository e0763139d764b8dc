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
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	return h.Hash(ceType, value)
}

var hashers = sync.Pool{New: func() any { return &Hasher{} }}

// Hasher makes one hash after another, and copies nothing of what it is given. The zero value
// is ready; one goroutine uses it.
type Hasher struct {
	sum hash.Hash
	buf [sha256.Size]byte
}

// Hash is the function Hash.
func (h *Hasher) Hash(ceType string, value []byte) string {
	h.start(ceType, value)
	return h.encode(h.sum)
}

// begin takes a type and where a value begins.
func (h *Hasher) start(ceType string, value []byte) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	h.sum.Reset()
	// A hash takes all that it is given.
	_, _ = h.sum.Write(bytesOf(ceType))
	_, _ = h.sum.Write(zero)
	_, _ = h.sum.Write(value)
}

// unsealed is the sum of a value that has none yet, which open is but for its last brace.
func (h *Hasher) hashOpen(ceType string, open []byte) (sum string) {
	h.start(ceType, open)
	without, err := h.sum.(hash.Cloner).Clone()
	if err != nil {
		panic("events: SHA-256 can't be cloned: " + err.Error())
	}
	_, _ = without.Write(brace)
	return h.encode(without)
}

// sealed is the Hash of that value with its sum, after unsealed: rest is what stands behind open. What both
// hashes cover is read once.
func (h *Hasher) hashRest(rest []byte) string {
	_, _ = h.sum.Write(rest)
	return h.encode(h.sum)
}

// text is the hash of what was written to sum.
func (h *Hasher) encode(sum hash.Hash) string { return encodeHash(sum.Sum(h.buf[:0])) }

// encodeHash is a hash as prev has it.
func encodeHash(sum []byte) string {
	var text [hashBytes]byte
	writeHash(&text, sum)
	return string(text[:])
}

func writeHash(text *[hashBytes]byte, sum []byte) { base64.RawURLEncoding.Encode(text[:], sum[:16]) }

var (
	zero  = []byte{0}   // stands between a type and a value
	brace = []byte{'}'} // ends a value
)

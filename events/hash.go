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
	sum  hash.Hash
	room [sha256.Size]byte
}

// Hash is the function Hash.
func (h *Hasher) Hash(ceType string, value []byte) string {
	h.begin(ceType, value)
	return h.text(h.sum)
}

// begin takes a type and where a value begins.
func (h *Hasher) begin(ceType string, value []byte) {
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
func (h *Hasher) unsealed(ceType string, open []byte) (sum string) {
	h.begin(ceType, open)
	without, err := h.sum.(hash.Cloner).Clone()
	if err != nil {
		panic("events: SHA-256 can't be cloned: " + err.Error())
	}
	_, _ = without.Write(brace)
	return h.text(without)
}

// sealed is the Hash of that value with its sum, after unsealed: rest is what stands behind open. What both
// hashes cover is read once.
func (h *Hasher) sealed(rest []byte) string {
	_, _ = h.sum.Write(rest)
	return h.text(h.sum)
}

// text is the hash of what was written to sum.
func (h *Hasher) text(sum hash.Hash) string { return hashText(sum.Sum(h.room[:0])) }

// hashText is a hash as prev has it.
func hashText(sum []byte) string {
	var text [hashBytes]byte
	writeHash(&text, sum)
	return string(text[:])
}

func writeHash(text *[hashBytes]byte, sum []byte) { base64.RawURLEncoding.Encode(text[:], sum[:16]) }

var (
	zero  = []byte{0}   // stands between a type and a value
	brace = []byte{'}'} // ends a value
)

package events

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"sync"
)

// Hash returns the hash of an event, by which the events of a task form a chain. The next event of the task contains it
// as prev. It covers the type and the value, so no event can be changed, dropped or inserted without breaking the chain
// after it. It is 128 bits of SHA-256 without a key, so it doesn't protect against writers of the topic.
func Hash(ceType string, value []byte) string {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	return h.Hash(ceType, value)
}

var hashers = sync.Pool{New: func() any { return &Hasher{} }}

// Hasher computes hashes one after another. It doesn't retain its input. The zero value is ready. It is for one
// goroutine.
type Hasher struct {
	sum hash.Hash
	buf [sha256.Size]byte
}

// Hash is the function Hash.
func (h *Hasher) Hash(ceType string, value []byte) string {
	h.start(ceType, value)
	return h.encode(h.sum)
}

// start hashes a type and the beginning of a value.
func (h *Hasher) start(ceType string, value []byte) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	h.sum.Reset()
	// Write never returns an error (hash.Hash).
	_, _ = h.sum.Write(bytesOf(ceType))
	_, _ = h.sum.Write(zero)
	_, _ = h.sum.Write(value)
}

// hashOpen returns the hash of a value, for its sum. open is the value without its last brace.
func (h *Hasher) hashOpen(ceType string, open []byte) (sum string) {
	h.start(ceType, open)
	without, err := h.sum.(hash.Cloner).Clone()
	if err != nil {
		panic("events: SHA-256 can't be cloned: " + err.Error())
	}
	_, _ = without.Write(brace)
	return h.encode(without)
}

// hashRest, called after hashOpen, returns the Hash of the value with its sum. rest is what follows
// open. The part that both hashes cover is hashed once.
func (h *Hasher) hashRest(rest []byte) string {
	_, _ = h.sum.Write(rest)
	return h.encode(h.sum)
}

// encode returns the text of a finished hash.
func (h *Hasher) encode(sum hash.Hash) string { return encodeHash(sum.Sum(h.buf[:0])) }

// encodeHash returns the text of a hash, as in prev and sum.
func encodeHash(sum []byte) string {
	var text [hashBytes]byte
	writeHash(&text, sum)
	return string(text[:])
}

func writeHash(text *[hashBytes]byte, sum []byte) { base64.RawURLEncoding.Encode(text[:], sum[:16]) }

var (
	zero  = []byte{0}   // separates a type and a value
	brace = []byte{'}'} // ends a value
)

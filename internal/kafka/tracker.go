package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// commitMetadataMaxBytes is Kafka's default for offset.metadata.max.bytes.
const commitMetadataMaxBytes = 4096

// metadataVersion begins what a Tracker writes, so that another program's
// metadata is told from it.
const metadataVersion = "w1:"

// span is a range of offsets, from inclusive, to exclusive.
type span struct{ from, to int64 }

// Tracker knows which requests of one partition are finished, in any order:
// what may be committed, and what is finished above that. Pure; not for
// concurrent use.
//
// The offset to commit is the lowest that is not finished, so that nothing is
// lost; what is finished above it goes into the commit's metadata, so that the
// next owner of the partition doesn't do it again. Offsets that hold no visible
// record (markers, aborted records) count as finished once passed.
type Tracker struct {
	// low: all below is finished; -1 until the first record says where it is.
	low int64
	// read: all below was delivered by this tracker, or holds nothing. It can
	// be less than low, which what an earlier owner finished may have moved.
	read int64
	// done are finished ranges at or above low: ascending, apart from each
	// other, none beginning at low.
	done []span
}

// NewTracker begins at the group's committed offset with its metadata; a
// negative offset means that there is no commit. Metadata that it can't read is
// an error, with a tracker that goes by the offset alone.
func NewTracker(committed int64, metadata string) (*Tracker, error) {
	t := &Tracker{low: max(committed, -1), read: max(committed, -1)}
	if committed < 0 || metadata == "" {
		return t, nil
	}
	done, err := decodeSpans(committed, metadata)
	if err != nil {
		return t, fmt.Errorf("metadata of the commit at %d: %w", committed, err)
	}
	t.done = done
	return t, nil
}

// Deliver takes note of the next record that was read, and reports whether it
// is to be worked on: false if an earlier owner finished it. An offset that
// goes back means that the log did (the topic was made again, or truncated):
// the tracker begins anew there.
func (t *Tracker) Deliver(offset int64) bool {
	if t.low < 0 || offset < t.read {
		*t = Tracker{low: offset, read: offset}
	}
	if offset > t.read {
		t.addFinished(span{t.read, offset})
	}
	t.read = offset + 1
	return !t.isFinished(offset)
}

// Done takes note that a record's request is finished. Twice is as good as
// once.
func (t *Tracker) Done(offset int64) {
	if t.low >= 0 && offset >= t.low {
		t.addFinished(span{offset, offset + 1})
	}
}

// Commit is the offset to commit and its metadata; offset -1: nothing yet.
func (t *Tracker) Commit() (offset int64, metadata string) {
	if t.low < 0 {
		return -1, ""
	}
	return t.low, encodeSpans(t.low, t.done)
}

// Open is how many offsets were delivered and are not finished.
func (t *Tracker) Open() int64 {
	n := max(0, t.read-t.low)
	for _, s := range t.done {
		n -= max(0, min(s.to, t.read)-s.from)
	}
	return n
}

func (t *Tracker) isFinished(offset int64) bool {
	if offset < t.low {
		return true
	}
	i, exact := slices.BinarySearchFunc(t.done, offset, func(s span, o int64) int { return int(min(1, max(-1, s.from-o))) })
	return exact || i > 0 && offset < t.done[i-1].to
}

// finish adds a range, merging it with those that it touches, and moves low
// over what is finished there.
func (t *Tracker) addFinished(s span) {
	s.from = max(s.from, t.low)
	if s.from >= s.to {
		return
	}
	first, _ := slices.BinarySearchFunc(t.done, s.from, func(d span, from int64) int { return int(min(1, max(-1, d.to-from))) })
	last := first
	for ; last < len(t.done) && t.done[last].from <= s.to; last++ {
		s.from, s.to = min(s.from, t.done[last].from), max(s.to, t.done[last].to)
	}
	t.done = slices.Replace(t.done, first, last, s)
	if t.done[0].from == t.low {
		t.low = t.done[0].to
		t.done = slices.Delete(t.done, 0, 1)
	}
}

// encodeSpans writes, from low on, the lengths of what is open and finished by
// turns, as varints in base64. What doesn't fit is left out from the farthest:
// the next owner will do that again.
func encodeSpans(low int64, done []span) string {
	if len(done) == 0 {
		return ""
	}
	limit := base64.RawStdEncoding.DecodedLen(commitMetadataMaxBytes - len(metadataVersion) - topicMaxBytes - circuitMaxBytes)
	buf := make([]byte, 0, min(limit, 4*len(done)))
	at := low
	for _, s := range done {
		next := binary.AppendUvarint(binary.AppendUvarint(buf, uint64(s.from-at)), uint64(s.to-s.from))
		if len(next) > limit {
			break
		}
		buf, at = next, s.to
	}
	return metadataVersion + base64.RawStdEncoding.EncodeToString(buf)
}

func decodeSpans(low int64, metadata string) ([]span, error) {
	text, ok := strings.CutPrefix(metadata, metadataVersion)
	if !ok {
		return nil, fmt.Errorf("%.40q is not of Waybill", metadata)
	}
	text, _, _ = strings.Cut(text, ";") // what others than the tracker have added
	buf, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%.40q: %w", metadata, err)
	}
	var done []span
	for at := low; len(buf) > 0; {
		var lengths [2]int64
		for i := range lengths {
			n, size := binary.Uvarint(buf)
			// Zero lengths are never written; without an upper bound a sum
			// could wrap around.
			if size <= 0 || n == 0 || n > 1<<48 {
				return nil, errors.New("its run lengths are damaged")
			}
			lengths[i], buf = int64(n), buf[size:]
		}
		s := span{at + lengths[0], at + lengths[0] + lengths[1]}
		done, at = append(done, s), s.to
	}
	return done, nil
}

package agentsession

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

// metadataVersion is the prefix of a Tracker's metadata, which tells it from that of other programs.
const metadataVersion = "w1:"

// span is the range of offsets [from, to).
type span struct{ from, to int64 }

// Tracker records which requests of a partition are finished, in any order. It computes the offset to commit and the
// finished ranges above it. It does no I/O and is not safe for concurrent use.
//
// The offset to commit is the lowest unfinished one, so that no request is lost. The finished ranges above it are
// stored in the commit's metadata, so that the partition's next owner doesn't repeat them. Offsets without a visible
// record (markers, aborted records) count as finished once a later record is delivered.
type Tracker struct {
	// low: all offsets below are finished; -1: there is no commit, and no record was delivered yet.
	low int64
	// read: all offsets below were delivered by this tracker or have no record. It is less than low if an earlier owner
	// finished requests that were not delivered here yet.
	read int64
	// done are the finished ranges above low: ascending, not adjacent, and none begins at low.
	done []span
}

// NewTracker starts at the group's committed offset with its metadata; a negative offset means no commit. For metadata
// that it can't decode it returns an error, and a tracker that uses the offset alone.
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

// Deliver records that an offset was read, and reports whether its request has to be processed: false if an earlier
// owner finished it. If the offset goes backwards, the log was truncated or the topic recreated: the tracker starts
// again there.
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

// Done records that an offset's request is finished. It is idempotent.
func (t *Tracker) Done(offset int64) {
	if t.low >= 0 && offset >= t.low {
		t.addFinished(span{offset, offset + 1})
	}
}

// Commit returns the offset to commit and its metadata; offset -1: nothing to commit yet.
func (t *Tracker) Commit() (offset int64, metadata string) {
	if t.low < 0 {
		return -1, ""
	}
	return t.low, encodeSpans(t.low, t.done)
}

// Open returns the number of offsets that were delivered and are not finished.
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

// addFinished adds a range, merges it with those that it touches, and advances low.
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

// encodeSpans encodes, from low on, the lengths of alternating unfinished and finished ranges, as varints in base64.
// Ranges that don't fit are dropped, the highest first: the next owner repeats those requests.
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
		return nil, fmt.Errorf("%.40q was not written by Waybill", metadata)
	}
	text, _, _ = strings.Cut(text, ";") // the circuit and topic id that withCircuit and withTopic add
	buf, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%.40q: %w", metadata, err)
	}
	var done []span
	for at := low; len(buf) > 0; {
		var lengths [2]int64
		for i := range lengths {
			n, size := binary.Uvarint(buf)
			// A length is never written as 0. The upper bound prevents overflow of the sums.
			if size <= 0 || n == 0 || n > 1<<48 {
				return nil, errors.New("its run lengths are corrupt")
			}
			lengths[i], buf = int64(n), buf[size:]
		}
		s := span{at + lengths[0], at + lengths[0] + lengths[1]}
		done, at = append(done, s), s.to
	}
	return done, nil
}

package agentsession

import (
	"slices"
	"testing"
)

// FuzzTrackerSpans checks that the finished requests in a commit's metadata survive decoding and encoding.
func FuzzTrackerSpans(f *testing.F) {
	f.Add(int64(10), "w1:AQIDrAI", []byte{1, 2, 3, 4})
	f.Add(int64(0), "", []byte{0})
	f.Add(int64(1)<<40, "w1:", []byte{255, 255, 1, 1})
	f.Fuzz(func(t *testing.T, low int64, metadata string, lengths []byte) {
		low &= 1<<50 - 1
		if done, err := decodeSpans(low, metadata); err == nil && len(done) > 0 {
			back, err := decodeSpans(low, encodeSpans(low, done))
			if err != nil || !slices.Equal(back, done[:min(len(done), len(back))]) {
				t.Fatalf("%q is %v, then %v, %v", metadata, done, back, err)
			}
			shown := withCircuit(encodeSpans(low, done), "half-open")
			if beside, err := decodeSpans(low, shown); err != nil || !slices.Equal(beside, back) || circuitIn(shown) != "half-open" || len(shown) > commitMetadataMaxBytes {
				t.Fatalf("%q is %v, %v and %q, without a circuit %v", shown, beside, err, circuitIn(shown), back)
			}
		}
		var spans []span
		for at := low; len(lengths) > 1; lengths = lengths[2:] {
			s := span{at + int64(lengths[0]) + 1, at + int64(lengths[0]) + 2 + int64(lengths[1])}
			spans, at = append(spans, s), s.to
		}
		if len(spans) == 0 {
			return // encoded as the empty string
		}
		back, err := decodeSpans(low, encodeSpans(low, spans))
		if err != nil || !slices.Equal(back, spans[:min(len(spans), len(back))]) || len(back) < min(len(spans), 100) {
			t.Fatalf("%v is read as %v, %v", spans, back, err)
		}
	})
}

package logreader

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// TestKeysOfACorruptBatch checks the keys that are read from a corrupt batch, for each changed bit. They are called
// complete only if all events are readable and each event's name matches its key. Otherwise any task may be affected.
func TestKeysOfACorruptBatch(t *testing.T) {
	b := testBatch{first: 7, attributes: attributeTransactional, last: 2, records: []testRecord{
		{key: []byte("a"), value: []byte(`{}`), headers: events.CloudHeaders("waybill.task.received.v1", "s", "a/1")},
		{value: []byte(`{}`), offset: 1, headers: events.CloudHeaders("waybill.partition.claimed.v1", "s", "0/2")},
		{key: []byte("b/c"), value: []byte(`{}`), offset: 2, headers: events.CloudHeaders("waybill.task.started.v1", "s", "b/c/2")},
	}}
	for _, codec := range []kgo.CompressionCodecType{kgo.CodecNone, kgo.CodecSnappy} {
		b.attributes = attributeTransactional | uint16(codec)
		raw, known := b.write(nil), 0
		if keys, all := keysOf(raw); !all || !slices.Equal(keys, []string{"a", "b/c"}) {
			t.Fatalf("unchanged: %q, all: %v", keys, all)
		}
		for i := batchAttributes; i < len(raw); i++ { // the checksum covers the bytes from here on
			for bit := range 8 {
				corrupted := slices.Clone(raw)
				corrupted[i] ^= 1 << bit
				keys, all := keysOf(corrupted)
				if all && (!slices.Contains(keys, "a") || !slices.Contains(keys, "b/c")) {
					t.Errorf("codec %d: bit %d of byte %d: %q are said to be all", codec, bit, i, keys)
				}
				if all {
					known++
				}
			}
		}
		t.Logf("codec %d: of %d changes %d leave all keys known", codec, 8*(len(raw)-batchAttributes), known)
	}
	for name, other := range map[string]testBatch{
		"what isn't an event":  {first: 1, records: []testRecord{{key: []byte("a"), value: []byte(`{}`)}}},
		"a marker":             marker(1, 1, true),
		"fewer than offsets":   {first: 1, last: 1, records: []testRecord{{key: []byte("a"), headers: events.CloudHeaders("waybill.task.received.v1", "s", "a/1")}}},
		"a key of another one": {first: 1, records: []testRecord{{key: []byte("a"), headers: events.CloudHeaders("waybill.task.received.v1", "s", "aa/1")}}},
	} {
		if keys, all := keysOf(other.write(nil)); all {
			t.Errorf("%s: %q are said to be all", name, keys)
		}
	}
}

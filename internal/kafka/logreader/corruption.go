package logreader

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

// CorruptError says that records of a topic were changed after they were written, because the checksum of their batch
// is wrong, or that they are lost. Kafka checks a batch's checksum when it receives the batch, and not when it returns
// it.
type CorruptError struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first corrupt record
	// Next is the offset after them, as far as the corrupt batch header can be trusted.
	Next int64
	// Keys are their keys, as KeysOf returns them. AllKeys, for events: they are the keys of all records, as far as can
	// be determined. Otherwise any task of the partition may have lost a record.
	Keys    []string
	AllKeys bool
	// Gone: the broker has none of the records, although nothing may have removed them.
	Gone bool
}

func (e *CorruptError) Error() string {
	if e.Gone {
		return fmt.Sprintf("topic %s partition %d: the broker has none of the records %d to %d, although they are below its last committed offset and records of this topic are never deleted; they were lost on the broker's disk",
			e.Topic, e.Partition, e.Offset, e.Next-1)
	}
	return fmt.Sprintf("topic %s partition %d: the records %d to %d%s are corrupt: the checksum of their batch doesn't match; they were changed on the broker's disk after they were written",
		e.Topic, e.Partition, e.Offset, e.Next-1, KeysText(e.Keys))
}

// Of reports whether records with a key are among them, as far as their keys can be read.
func (e *CorruptError) Of(key string) bool { return slices.Contains(e.Keys, key) }

// keysTold is the maximum number of keys in KeysText.
const keysTold = 3

// KeysOf returns the keys of a batch with a wrong checksum, as far as they can be read. For events they are task ids.
// They may be what was changed.
func KeysOf(batch []byte) (keys []string) {
	keys, _ = keysOf(batch)
	return keys
}

// keysOf is KeysOf. all, for events: each offset of the batch has a record with a key, and the event's name names the
// same task. Then, after a change of any single bit, the true keys are among them. Without all, any open task of the
// partition may have lost an event.
func keysOf(batch []byte) (keys []string, all bool) {
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.RecordBatches = batch
	read, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{DisableCRCValidation: true}, &answer, kgo.DefaultDecompressor(), nil)
	h := parseHeader(batch)
	all = h.count > 0 && h.count == len(read.Records) && h.last-h.first+1 == int64(h.count)
	seen := map[string]bool{"": true}
	for i, r := range read.Records {
		key := string(r.Key)
		all = all && r.Offset == h.first+int64(i) && namesTask(r, key)
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys, all
}

// namesTask reports whether an event's name agrees with its key. An event of a partition has no key and no name.
func namesTask(r *kgo.Record, key string) bool {
	for _, h := range r.Headers {
		switch {
		case key == "" && h.Key == events.HeaderType:
			return string(h.Value) == (&events.PartitionClaimed{}).Type() || string(h.Value) == (&events.PartitionForgot{}).Type()
		case key != "" && h.Key == events.HeaderID:
			seq, of := strings.CutPrefix(string(h.Value), key+"/")
			_, err := strconv.ParseUint(seq, 10, 63)
			return of && err == nil
		}
	}
	return false
}

// KeysText formats keys for a sentence; empty if there are none.
func KeysText(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	var quoted []string
	for i, key := range keys {
		if i == keysTold {
			quoted = append(quoted, "others")
			break
		}
		quoted = append(quoted, strconv.Quote(key))
	}
	return " (of " + strings.Join(quoted, ", ") + ")"
}

package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

// DamagedError says that records of a topic aren't as they were written: the checksum of
// their batch is another, or they are gone. Kafka checks it when it takes a batch, and not
// when it gives it.
type DamagedError struct {
	Topic     string
	Partition int32
	Offset    int64 // of the first of them
	// Next is the offset after them, as far as what says so can be believed.
	Next int64
	// Keys are theirs, as KeysOf. AllKeys: of events, they are the keys of all, as far as can be told: else
	// any task of the partition may have lost one.
	Keys    []string
	AllKeys bool
	// Gone: the broker has none of them, and nothing may have taken them out.
	Gone bool
}

func (e *DamagedError) Error() string {
	if e.Gone {
		return fmt.Sprintf("topic %s partition %d: the broker has nothing of the records %d to %d, though committed ones go so far, and of this topic none are ever taken out; its disk, or somebody at it, lost them",
			e.Topic, e.Partition, e.Offset, e.Next-1)
	}
	return fmt.Sprintf("topic %s partition %d: the records %d to %d%s aren't as they were written: the checksum of their batch is another; the broker's disk, or somebody at it, changed them",
		e.Topic, e.Partition, e.Offset, e.Next-1, KeysText(e.Keys))
}

// Of reports whether records with a key are among them, as far as their keys can be read.
func (e *DamagedError) Of(key string) bool { return slices.Contains(e.Keys, key) }

// keysTold bounds KeysText.
const keysTold = 3

// KeysOf are the keys of a batch whose checksum is another, as far as they can be read:
// they say whose it is, of events the tasks', and may be what was changed.
func KeysOf(batch []byte) (keys []string) {
	keys, _ = keysOf(batch)
	return keys
}

// keysOf is KeysOf. all: of events, there is a key for each offset that the batch takes, and what
// names the event names the same task. A change of any single bit then leaves the true keys among
// them. Without all, any open task of the partition may have lost an event.
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

// namesTask reports whether an event's name says the same as its key. The claim of a partition has none.
func namesTask(r *kgo.Record, key string) bool {
	for _, h := range r.Headers {
		switch {
		case key == "" && h.Key == events.HeaderType:
			return string(h.Value) == (&events.PartitionClaimed{}).Type()
		case key != "" && h.Key == events.HeaderID:
			seq, of := strings.CutPrefix(string(h.Value), key+"/")
			_, err := strconv.ParseUint(seq, 10, 63)
			return of && err == nil
		}
	}
	return false
}

// KeysText tells of keys in a sentence; of none, nothing.
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

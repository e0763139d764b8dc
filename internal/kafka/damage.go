package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	// Keys are theirs, as KeysOf.
	Keys []string
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

// keysMost bounds KeysOf.
const keysMost = 4

// KeysOf are some keys of a batch whose checksum is another, as far as they can be read:
// they say whose it is, of events the tasks', and may be what was changed.
func KeysOf(batch []byte) (keys []string) {
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.RecordBatches = batch
	read, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{DisableCRCValidation: true}, &answer, kgo.DefaultDecompressor(), nil)
	for _, r := range read.Records {
		if key := string(r.Key); key != "" && !slices.Contains(keys, key) && len(keys) < keysMost {
			keys = append(keys, key)
		}
	}
	return keys
}

// KeysText tells of keys in a sentence; of none, nothing.
func KeysText(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = strconv.Quote(key)
	}
	if len(keys) == keysMost {
		quoted[keysMost-1] = "others"
	}
	return " (of " + strings.Join(quoted, ", ") + ")"
}

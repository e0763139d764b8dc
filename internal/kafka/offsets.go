package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Metadata returns the metadata of some topics, or of all. It also requests authorized operations, which no caller
// uses: the client doesn't answer such a request from its cache.
func Metadata(ctx context.Context, adm *kadm.Client, topics ...string) (kadm.Metadata, error) {
	return adm.Metadata(kadm.WithAuthorizedOps(ctx), topics...)
}

// KnownOffsets is AllOffsets without the partitions that have an error. It fails if all have.
func KnownOffsets(topic, which string, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		if o.Err == nil {
			offsets[p] = o.Offset
		}
	}
	if len(offsets) > 0 {
		return offsets, nil
	}
	return AllOffsets(topic, which, listed, err)
}

// OffsetsOfPartitions is AllOffsets for some partitions. Errors of other partitions don't matter.
func OffsetsOfPartitions(topic, which string, partitions []int32, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(partitions))
	for _, p := range partitions {
		switch o, ok := listed.Lookup(topic, p); {
		case ok && o.Err == nil:
			offsets[p] = o.Offset
		case ok:
			return nil, fmt.Errorf("list %s offsets of %s/%d: %w", which, topic, p, o.Err)
		case err != nil || listed.Error() != nil || len(listed[topic]) == 0:
			return AllOffsets(topic, which, listed, err)
		default:
			return nil, fmt.Errorf("topic %s has no partition %d, the last one is %d", topic, p, len(listed[topic])-1)
		}
	}
	return offsets, nil
}

// AllOffsets returns the listed offsets of a topic, by partition. It fails if a partition has none; which names them in
// the error.
func AllOffsets(topic, which string, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	if err == nil {
		err = listed.Error()
	}
	if err == nil && len(listed[topic]) == 0 {
		err = kerr.UnknownTopicOrPartition
	}
	if err != nil {
		return nil, fmt.Errorf("list %s offsets of %s: %w", which, topic, err)
	}
	offsets := make(map[int32]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		offsets[p] = o.Offset
	}
	return offsets, nil
}

// OffsetOrUnknown returns the offset that was listed for a partition; -1: none.
func OffsetOrUnknown(offsets kadm.ListedOffsets, at TopicPartition) int64 {
	if o, ok := offsets.Lookup(at.Topic, at.Partition); ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

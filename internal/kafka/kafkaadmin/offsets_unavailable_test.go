package kafkaadmin_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestOnePartitionThatSaysNothingStopsNoOther checks that a partition whose offsets can't be listed doesn't affect
// reads of the others.
func TestOnePartitionThatSaysNothingStopsNoOther(t *testing.T) {
	b := kafkatest.Embedded(t)
	r := kafkatest.NewRequests(t, b, 2)
	r.Write(0, 0, 3)
	b.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		b.Fake.KeepControl()
		req := k.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		at := kmsg.NewListOffsetsResponseTopic()
		at.Topic = r.Topic
		for _, p := range req.Topics[0].Partitions {
			answer := kmsg.NewListOffsetsResponseTopicPartition()
			if answer.Partition, answer.Offset = p.Partition, 0; p.Timestamp == -1 {
				answer.Offset = 3
			}
			if p.Partition == 1 {
				answer.ErrorCode = kerr.UnknownServerError.Code
			}
			at.Partitions = append(at.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, at)
		return resp, nil, true
	})
	admin, err := kafkaadmin.Open(r.Config)
	must(t, err)
	t.Cleanup(admin.Close)
	if ends, err := admin.KnownCommittedEndOffsets(r.Ctx, r.Topic); err != nil || !maps.Equal(ends, map[int32]int64{0: 3}) {
		t.Errorf("what is known of the ends: %v, %v", ends, err)
	}
	if _, err := admin.CommittedEndOffsets(r.Ctx, r.Topic); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("all ends: %v", err)
	}
	reader, err := logreader.OpenRestorer(r.Config, nil)
	must(t, err)
	t.Cleanup(reader.Close)
	n := 0
	count := func(rs []events.Record) error {
		n += len(rs)
		return nil
	}
	if _, err := reader.Read(r.Ctx, r.Topic, 0, 0, count); err != nil || n != 3 {
		t.Errorf("Read gave %d records, %v", n, err)
	}
	n = 0
	if reached, err := reader.ReadAll(r.Ctx, r.Topic, logreader.Range{Partitions: []int32{0}}, count, nil); err != nil || n != 3 || reached[0] != 3 {
		t.Errorf("ReadAll gave %d records, to %v, %v", n, reached, err)
	}
	if _, err := reader.ReadAll(r.Ctx, r.Topic, logreader.Range{Partitions: []int32{1}}, count, nil); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("ReadAll of the other: %v", err)
	}
	if _, err := reader.Read(r.Ctx, r.Topic, 1, 0, count); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("Read of the other: %v", err)
	}
}

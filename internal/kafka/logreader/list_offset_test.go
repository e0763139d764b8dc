package logreader

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-run/waybill/internal/kafka"
)

// TestListedBesidePartitionsWithoutALeader checks offsets of a topic in which some partitions have no leader: the
// client returns the offsets of the others together with an error.
func TestListedBesidePartitionsWithoutALeader(t *testing.T) {
	leaderless := &kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{{Err: kerr.LeaderNotAvailable}}}
	list := func(context.Context, ...string) (kadm.ListedOffsets, error) {
		return kadm.ListedOffsets{"t": {0: {Topic: "t", Partition: 0, Offset: 7}}}, leaderless
	}
	if at, err := listOffset(t.Context(), list, "t", 0); at != 7 || err != nil {
		t.Errorf("got %d, %v", at, err)
	}
	if _, err := listOffset(t.Context(), list, "t", 1); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("got %v", err)
	}
	known, err := list(t.Context())
	if some, err := kafka.OffsetsOfPartitions("t", "end", []int32{0}, known, err); err != nil || some[0] != 7 {
		t.Errorf("got %v, %v", some, err)
	}
	if _, err := kafka.OffsetsOfPartitions("t", "end", []int32{0, 1}, known, err); !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("got %v", err)
	}
	if _, err := kafka.OffsetsOfPartitions("t", "end", []int32{0, 1}, known, nil); err == nil {
		t.Error("a partition that isn't there")
	}
}

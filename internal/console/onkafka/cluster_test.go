package onkafka

import (
	"maps"
	"testing"

	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestSchedulingOfPartitions: Kafka's group decides which scheduler has a partition. Restore progress of a member that
// has left the group is ignored.
func TestSchedulingOfPartitions(t *testing.T) {
	members := []kafkaadmin.Member{
		{ID: "m0", Owner: "s1.0", Partitions: map[string][]int32{"in": {0, 1, 2}}},
		{ID: "m1", Partitions: map[string][]int32{"in": {3}}}, // of an older release
	}
	restores := map[int32]kafkaadmin.RestoreProgress{0: {Member: "m0", Next: 1, End: 4}, 1: {Member: "dead", Next: 1, End: 4}, 2: {Member: "m0", Next: 4, End: 4},
		4: {Member: "m0", Next: 1, End: 4}}
	lags := map[string]map[int32]int64{"in": {0: 2, 4: 1}, "more": {0: 3}, "others": {0: 9}}
	want := map[int32]console.Scheduling{
		0: {Lag: 5, Scheduler: "s1.0", Restored: 0.25},
		1: {Scheduler: "s1.0", Restored: 1},
		2: {Scheduler: "s1.0", Restored: 1},
		3: {Scheduler: "m1", Restored: 1},
		4: {Lag: 1},
	}
	if got := schedulingOf(members, restores, lags, []string{"in", "more"}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

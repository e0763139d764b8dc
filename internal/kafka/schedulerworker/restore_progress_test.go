package schedulerworker_test

import (
	"maps"
	"testing"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestRestoresAreShownInTheirGroup checks that restore progress is published in a group of its own, with the member id
// of the restoring worker. The scheduler group's members have the ids and owners.
func TestRestoresAreShownInTheirGroup(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		admin, err := kafkaadmin.Open(s.Config)
		must(t, err)
		t.Cleanup(admin.Close)
		shown, err := admin.RestoreProgress(t.Context())
		if must(t, err); len(shown) > 0 {
			t.Errorf("before anything was shown: %v", shown)
		}
		l := openWorker(t, s.worker("s1.0"))
		untilAssigned(t, l, testPartitions)
		member, owns := l.Member(1)
		if !owns {
			t.Error("the worker doesn't own what was assigned to it")
		}
		want := map[int32]kafkaadmin.RestoreProgress{1: {Member: member, Next: 3, End: 12}, 2: {Member: member, Next: 7, End: 7}}
		must(t, admin.PublishRestoreProgress(t.Context(), want))
		shown, err = admin.RestoreProgress(t.Context())
		if must(t, err); !maps.Equal(shown, want) {
			t.Errorf("shown: %v, want %v", shown, want)
		}
		group, err := admin.DescribeGroup(t.Context(), s.NS.SchedulerGroup())
		must(t, err)
		if len(group.Members) != 1 || group.Members[0].Owner != "s1.0" || group.Members[0].ID != member {
			t.Errorf("%+v, the worker is %s", group.Members, member)
		}
	})
}

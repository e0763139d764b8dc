package schedulerworker_test

import (
	"maps"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestCommits checks that Commits returns a group's offsets by partition, and none for an unknown group.
func TestCommits(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		admin, err := kafkaadmin.Open(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		consumed := func() map[int32]int64 {
			t.Helper()
			commits, err := admin.Commits(t.Context(), s.NS.SchedulerGroup())
			if err != nil {
				t.Fatal(err)
			}
			offsets := commits[s.Inboxes[3]]
			maps.DeleteFunc(offsets, func(_ int32, next int64) bool { return next == 0 }) // no commit beyond the start
			return offsets
		}
		if got := consumed(); len(got) != 0 {
			t.Errorf("before anybody: %v", got)
		}
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[3], 4, "a"))
		commit(t, l, len(poll(t, l)), nil)
		// A transaction's offsets become visible some time after its commit, and nothing reports when.
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for deadline := time.Now().Add(suite.Patience); !maps.Equal(consumed(), map[int32]int64{4: 1}); <-again.C {
			if time.Now().After(deadline) {
				t.Fatalf("after one record of partition 4: %v", consumed())
			}
		}
	})
}

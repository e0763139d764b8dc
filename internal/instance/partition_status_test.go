package instance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// workerOf is a worker with an id and its assigned partitions.
type workerOf struct {
	id    string
	owned map[int32]bool
}

func (l workerOf) Member(p int32) (string, bool) { return l.id, l.owned[p] }

// Reports of restores are correct: they cover owned partitions only, name the owning member, continue until the restore
// ends, and are repeated after a failed write.
func TestLongRestoresAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := &Instance{metrics: NewMetrics(), Admin: &kafkaadmin.Admin{}, log: slog.New(slog.NewTextHandler(&log, nil))}
		events := n.Kafka.Namespace.Events()
		s := newPartitionStatus(n)
		var failure error
		said := map[int32]kafkaadmin.RestoreProgress{} // reports since the last check
		s.writeReports = func(_ context.Context, rs map[int32]kafkaadmin.RestoreProgress) error {
			if failure == nil {
				maps.Copy(said, rs)
			}
			return failure
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.runReports(ctx)
		wait := func(what string, want map[int32]kafkaadmin.RestoreProgress) {
			t.Helper()
			synctest.Wait()
			if !maps.Equal(said, want) {
				t.Errorf("%s: said %v, want %v", what, said, want)
			}
			said = map[int32]kafkaadmin.RestoreProgress{}
		}
		none := map[int32]kafkaadmin.RestoreProgress{}

		s.workerOpened("s.0", workerOf{"m0", map[int32]bool{1: true}})
		s.workerOpened("s.1", workerOf{"m1", map[int32]bool{2: true}})
		s.restoreEnded(1)
		wait("a short restore", none)
		s.restoreProgressed(events, 1, 3, 10, nil)
		s.restoreProgressed(events, 2, 4, 11, nil)
		s.restoreProgressed(events, 3, 5, 12, nil)
		wait("two that take long, and one that went", map[int32]kafkaadmin.RestoreProgress{1: {Member: "m0", Next: 3, End: 10}, 2: {Member: "m1", Next: 4, End: 11}})
		s.restoreProgressed("snapshots", 1, 8, 9, nil)
		wait("a snapshot", none)

		failure = errors.New("no coordinator")
		s.restoreProgressed(events, 1, 9, 10, nil)
		wait("nobody listens", none)
		failure = nil
		time.Sleep(restoreReportWithin)
		wait("and again", map[int32]kafkaadmin.RestoreProgress{1: {Member: "m0", Next: 9, End: 10}})

		s.restoreEnded(1)
		wait("the end", map[int32]kafkaadmin.RestoreProgress{1: {Member: "m0", Next: 10, End: 10}})
		s.restoreEnded(1)
		wait("the next restore, a short one", none)
		s.partitionLost(2)
		s.workerOpened("s.1", workerOf{"m2", map[int32]bool{2: true}})
		wait("a partition that went", none)

		s.workerOpened("s.3", workerOf{"m3", map[int32]bool{4: true}})
		s.restoreProgressed("snapshots", 4, 8, 9, errors.New("no leader"))
		wait("one that waits for its snapshot", map[int32]kafkaadmin.RestoreProgress{4: {Member: "m3", Next: 0, End: 1}})
		s.restoreProgressed(events, 4, 5, 12, nil)
		s.restoreProgressed("snapshots", 4, 8, 9, nil)
		wait("the events after the snapshot", map[int32]kafkaadmin.RestoreProgress{4: {Member: "m3", Next: 5, End: 12}})
		s.restoreEnded(4)
		wait("it acts", map[int32]kafkaadmin.RestoreProgress{4: {Member: "m3", Next: 12, End: 12}})
		s.restoreProgressed("snapshots", 4, 8, 9, nil)
		wait("finished tasks come beside", none)
		s.partitionLost(4)
		s.restoreProgressed("snapshots", 4, 8, 9, nil)
		s.restoreEnded(4)
		wait("it came back, and had a snapshot only", map[int32]kafkaadmin.RestoreProgress{4: {Member: "m3", Next: 1, End: 1}})

		log.Reset()
		s.restoreProgressed(events, 2, 4, 11, errors.New("quota"))
		if lines := strings.Count(log.String(), "restore of a partition makes no progress"); lines != 1 {
			t.Errorf("logged: %s", log.String())
		}
	})
}

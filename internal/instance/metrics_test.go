package instance

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/kafka"
)

// What a process says of a partition ends when the partition goes: its next owner says it then,
// and a sum over processes counts it once.
func TestPartitionsThatWentAreNotMeasured(t *testing.T) {
	n := &Instance{metrics: NewMetrics(), Admin: &kafka.Admin{}, log: slog.New(slog.DiscardHandler)}
	measured := func() (of []string) {
		t.Helper()
		families, err := n.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "partition" {
						of = append(of, f.GetName()+" "+l.GetValue())
					}
				}
			}
		}
		return of
	}
	restoring := newRestoring(n)
	s, v := n.schedulerListener(restoring), n.supervisorListener()
	s.Assigned(3)
	n.metrics.snapshotAt.WithLabelValues("3").Set(1)
	v.Assigned(4)
	v.Armed(4, 5)
	restoring.underWay(n.Kafka.Namespace.Events(), 3, 1, 10, nil)
	if got := strings.Join(measured(), ", "); got != "waybill_restore_remaining 3, waybill_snapshot_timestamp_seconds 3, waybill_timers_armed 4" {
		t.Fatalf("measured: %s", got)
	}
	s.Lost(3)
	v.Lost(4)
	if got := measured(); len(got) != 0 {
		t.Errorf("measured of partitions that went: %v", got)
	}
}

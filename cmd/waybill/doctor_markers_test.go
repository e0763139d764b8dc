package main

import (
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A log ends with a transaction that was rolled back, and a group has read all before it: it has nothing to do,
// and isn't blamed. One with a record to read is.
func TestDoctorCountsNoMarkers(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		createTopics(t, cfg)
		ns := cfg.Namespace
		admin, err := kafka.OpenAdmin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		reader, err := kafka.OpenRestorer(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		d := doctor{admin, reader, ns}
		record := history(t, ns)[0]
		rolledBack := func() {
			b.OpenTransaction(t, string(ns)+"test", []events.Record{record})()
		}
		rolledBack()
		lag := func(group *groupCondition) int64 {
			c := &condition{supervisor: *group}
			if err := d.leaveMarkers(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			return c.supervisor.lag
		}
		ends, err := admin.EndsKnown(t.Context(), ns.Events())
		if err != nil || ends[record.Partition] == 0 {
			t.Fatalf("the log ends at %v: %v", ends, err)
		}
		at := func() *groupCondition {
			g := &groupCondition{members: 1, lags: map[string]map[int32]int64{ns.Events(): {record.Partition: ends[record.Partition]}}}
			g.sum(ns)
			return g
		}
		if got := lag(at()); got != 0 {
			t.Errorf("lag %d, and there is nothing to read", got)
		}
		produce(t, cfg, record)
		rolledBack()
		if got := lag(at()); got != ends[record.Partition] {
			t.Errorf("lag %d, and there is a record to read", got)
		}
		moved := at()
		if moved.moved = true; lag(moved) == 0 {
			t.Error("a group that moves isn't looked at")
		}
	})
}

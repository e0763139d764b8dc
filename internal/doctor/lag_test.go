package doctor

import (
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestDoctorCountsRecordsNotMarkers: records of aborted transactions and end markers after a group's position aren't
// lag. Committed records are.
func TestDoctorCountsRecordsNotMarkers(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		ns := b.Namespace(t)
		topic, group := ns.Requests("a"), ns.AgentGroup("a")
		b.CreateTopics(t, 1, topic)
		first := b.Produce(t, events.Record{Topic: topic, Value: []byte("done")})
		b.CommitOffset(t, group, topic, 0, first.Offset+1)
		b.OpenTransaction(t, string(ns)+"doctor", []events.Record{{Topic: topic, Value: []byte("rolled back")}})()
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: ns}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(admin.Close)
		reader, err := logreader.OpenRestorer(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(reader.Close)
		c := Collector{Admin: admin, Reader: reader, Namespace: ns}
		lag := func(want int64) {
			t.Helper()
			g, err := c.group(t.Context(), group, []string{topic}, 0)
			if err != nil || g.Lag != want {
				t.Errorf("lag %d, %v; want %d", g.Lag, err, want)
			}
		}
		lag(0)
		b.Produce(t, events.Record{Topic: topic, Value: []byte("waits")})
		lag(1)
	})
}

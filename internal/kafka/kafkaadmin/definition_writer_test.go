package kafkaadmin_test

import (
	"fmt"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestChangedDefinitionsAreCommittedForReaders checks that a change can be read when ChangeDefinitions has returned.
func TestChangedDefinitionsAreCommittedForReaders(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test"}
		topic := cfg.Namespace.Definitions()
		b.CreateTopics(t, 1, topic)
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		for n := range 20 {
			err := kafkaadmin.ChangeDefinitions(t.Context(), cfg, func([]events.Record) ([]events.Record, error) {
				return []events.Record{{Topic: topic, Key: fmt.Appendf(nil, "w/%d", n), Value: []byte("{}")}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			read := 0
			err = admin.ReadCompacted(t.Context(), topic, func(events.Record) error { read++; return nil })
			if err != nil || read != n+1 {
				t.Fatalf("after %d changes %d are read: %v", n+1, read, err)
			}
		}
	})
}

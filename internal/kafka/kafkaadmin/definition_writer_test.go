package kafkaadmin_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// TestARolledBackChangeIsMadeAgain checks that ChangeDefinitions doesn't report a change as made if its transaction was
// rolled back although the end was confirmed. It reads again, because others may have changed the definitions.
func TestARolledBackChangeIsMadeAgain(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := configOf(t, b)
	topic := cfg.Namespace.Definitions()
	b.CreateTopics(t, 1, topic)
	rolledBack := 0
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		if rolledBack < 2 {
			rolledBack++
			req.(*kmsg.EndTxnRequest).Commit = false
		}
		return nil, nil, false
	})
	decided := 0
	must(t, kafkaadmin.ChangeDefinitions(bounded(t), cfg, func(all []events.Record) ([]events.Record, error) {
		if decided++; len(all) != 0 {
			t.Errorf("decision %d sees %d records", decided, len(all))
		}
		return []events.Record{{Topic: topic, Key: []byte("a/1"), Value: []byte("{}")}, {Topic: topic, Key: []byte("b/1"), Value: []byte("{}")}}, nil
	}))
	read := 0
	must(t, openAdmin(t, cfg).ReadCompacted(bounded(t), topic, func(events.Record) error { read++; return nil }))
	if decided != 3 || read != 2 {
		t.Errorf("%d decisions, %d records are read; want 3 and 2", decided, read)
	}
}

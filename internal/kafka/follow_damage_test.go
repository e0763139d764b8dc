package kafka_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A byte that a broker's disk has changed stops its partition, and no other; where it is
// whole again, all of it is read, each record once.
func TestFollowerGoesOnBesideDamage(t *testing.T) {
	c := kafkatest.KafkaNodes(t, 1, nil)
	b := kafkatest.Of(c)
	b.CreateTopics(t, 2, "test.events")
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: "test."}
	producer, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	write := func(p int32, value string) {
		t.Helper()
		if err := producer.Send(t.Context(), events.Record{Topic: "test.events", Partition: p, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, value := range []string{"first", "second", "third"} { // a batch each
		write(0, value)
		write(1, value)
	}
	flip := func() { // Kafka reads what the file has then
		t.Helper()
		path := filepath.Join(c.Dir(), "node1", "data", "test.events-0", "00000000000000000000.log")
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := max(bytes.Index(log, []byte("second")), bytes.Index(log, []byte("tecond")))
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{log[at] ^ 's' ^ 't'}, int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	told := make(chan string, 100)
	f := openFollower(t, kafka.FollowerConfig{Config: cfg, Group: "test.supervisor", Topics: []string{"test.events"}, Partitions: 2,
		Listener: &kafka.FollowerListener{Damaged: func(topic string, p int32, err error) { told <- fmt.Sprintf("%s/%d: %v", topic, p, err) }}})
	var got [2][]string
	take := func(rs []events.Record) {
		for i := range rs {
			got[rs[i].Partition] = append(got[rs[i].Partition], string(rs[i].Value))
		}
	}
	follow(t, f, "the damage, told twice, and the other partition", func(rs []events.Record) bool {
		take(rs)
		return len(told) >= 2 && len(got[1]) == 3
	})
	if said := <-told; !strings.HasPrefix(said, "test.events/0: ") || !strings.Contains(said, "crc") {
		t.Errorf("told %s", said)
	}
	write(1, "fourth")
	follow(t, f, "what comes beside it", func(rs []events.Record) bool {
		take(rs)
		return len(got[1]) == 4
	})
	if at, ok := f.Position("test.events", 0); !ok || at != 1 || !slices.Equal(got[0], []string{"first"}) {
		t.Errorf("of the damaged partition %q were read, up to %d (%v)", got[0], at, ok)
	}
	flip()
	follow(t, f, "what is whole again", func(rs []events.Record) bool {
		take(rs)
		return len(got[0]) == 3
	})
	if all := [2][]string{{"first", "second", "third"}, {"first", "second", "third", "fourth"}}; !slices.Equal(got[0], all[0]) || !slices.Equal(got[1], all[1]) {
		t.Errorf("read %q", got)
	}
}

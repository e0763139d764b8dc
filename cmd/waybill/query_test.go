package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// Whoever reads the log is told of what he isn't shown, for it was written behind the
// transaction of one who died, say.
func TestReadTellsOfAnOpenTransaction(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ns := b.Namespace(t)
		topic := ns.Events()
		b.CreateTopics(t, 2, topic)
		at := func(p int32, value string) *kgo.Record {
			return &kgo.Record{Topic: topic, Partition: p, Value: []byte(value)}
		}
		dead := b.Client(t, kgo.TransactionalID(string(ns)+"scheduler.dead"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := dead.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		plain := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := plain.ProduceSync(ctx, at(0, "a"), at(1, "b")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := dead.ProduceSync(ctx, at(1, "open")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := plain.ProduceSync(ctx, at(1, "behind")).FirstErr(); err != nil {
			t.Fatal(err)
		}

		var note strings.Builder
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: ns, Dial: b.Dial}
		reader, err := kafka.OpenRestorer(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		l := &logbook{cfg: cfg, reader: reader, note: &note}
		seen := 0
		if _, err := l.read(ctx, topic, kafka.Range{}, func(*events.Record) error { seen++; return nil }); err != nil {
			t.Fatal(err)
		}
		if seen != 2 || strings.Count(note.String(), "\n") != 1 || !strings.HasPrefix(note.String(), "partition 1 of "+topic+": a transaction is open at offset 1;") {
			t.Errorf("%d records, and the note %q", seen, note.String())
		}
		if err := dead.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		note.Reset()
		if _, err := l.read(ctx, topic, kafka.Range{HeldBack: passed}, func(*events.Record) error { return nil }); err != nil || note.Len() > 0 {
			t.Errorf("%v, and the note %q", err, note.String())
		}
	})
}

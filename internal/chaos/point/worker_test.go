package point_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const askInterval = 10 * time.Millisecond

// seen is what the broker had at a point.
type seen struct {
	point       point.Point
	end, stable int64 // of events: with what is open, and without
}

// A worker's transaction on a real broker and on the embedded one: at produced the
// broker has the records and hasn't ended the transaction, at sent it has.
func TestAWorkerPassesProducedAndSent(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		ns := b.Namespace(t)
		b.CreateTopics(t, 1, append(ns.InboxTopics(), ns.Events())...)
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: ns}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		var passed []seen
		cfg.Dial = point.Dial(b.Dial, func(p point.Point) {
			// The worker waits meanwhile: what the broker does, it does without it.
			passed = append(passed, await(t, admin, p, ns.Events()))
		})
		transact(t, cfg)
		if len(passed) != 2 || passed[0].point != point.Produced || passed[1].point != point.Sent {
			t.Fatalf("passed %+v, want produced and sent", passed)
		}
		if at := passed[0]; at.end == 0 || at.stable != 0 {
			t.Errorf("at produced events end at %d, and %d is stable: want records that aren't", at.end, at.stable)
		}
		if at := passed[1]; at.stable == 0 || at.stable != at.end {
			t.Errorf("at sent events end at %d, and %d is stable: the broker hasn't ended the transaction", at.end, at.stable)
		}
	})
}

// await looks at events; at sent until the broker has done what it was sent.
func await(t *testing.T, admin *kafkaadmin.Admin, p point.Point, topic string) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for {
		end, err := admin.EndOffsets(ctx, topic)
		if err != nil {
			t.Error(err)
			return seen{point: p}
		}
		stable, err := admin.CommittedEndOffsets(ctx, topic)
		if err != nil {
			t.Error(err)
			return seen{point: p}
		}
		if p == point.Produced || stable[0] > 0 && stable[0] == end[0] {
			return seen{p, end[0], stable[0]}
		}
		select {
		case <-ctx.Done():
			return seen{p, end[0], stable[0]}
		case <-time.After(askInterval):
		}
	}
}

// transact runs one transaction of a worker.
func transact(t *testing.T, cfg kafka.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	producer, err := kafka.OpenProducer(kafka.Config{Brokers: cfg.Brokers, Namespace: cfg.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.Send(ctx, events.Record{Topic: cfg.Namespace.Inbox(events.Tasks), Key: []byte("k"), Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	worker, err := schedulerworker.Open(ctx, schedulerworker.Config{Config: cfg, Group: cfg.Namespace.SchedulerGroup(), Owner: "o", Topics: cfg.Namespace.InboxTopics(), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	for {
		if _, ok := worker.Assigned()[0]; ok {
			worker.Resume(0, inboxgate.PausedForRestore)
		}
		records, err := worker.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			continue
		}
		committed, err := worker.Commit(ctx, []events.Record{{Topic: cfg.Namespace.Events(), Key: []byte("k"), Value: []byte("{}")}})
		if err != nil {
			t.Fatal(err)
		}
		if committed {
			return
		}
	}
}

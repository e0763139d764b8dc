package instance_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// An open transaction in the topic of offsets blocks the partitions of a scheduler: its client waits without a bound.
// The scheduler logs which partitions and why, its worker gets a new client, and the process ends with that reason.
func TestStalledSchedulerEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	suite.NeedAll(t, "a wait of many seconds")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newEventLogOn(t, b)
		ns := l.cfg.Namespace
		b.Produce(t, events.Record{Topic: ns.Inbox(events.Tasks), Key: []byte("order-1"), Value: []byte(`{"id":"order-1","workflow":"w"}`)})
		b.KeepOffsetsUnstable(t, "somebody-"+string(ns), ns.SchedulerGroup(), ns.Inbox(events.Tasks), 0)
		var said strings.Builder
		n, err := instance.Open(t.Context(), l.cfg, instance.Config{DataDir: t.TempDir(), Metrics: instance.NewMetrics(), OwnClock: true,
			Log: slog.New(slog.NewTextHandler(&said, nil)), Seams: instance.Seams{StallCheckEvery: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		err = n.Run(t.Context(), func(ctx context.Context) error {
			return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 1})
		})
		var standing *instance.InboxStalledError
		if !errors.As(err, &standing) || standing.Inbox != ns.Inbox(events.Tasks)+"/0" || !strings.Contains(standing.Why, "__consumer_offsets") {
			t.Errorf("it ends with %v", err)
		}
		for _, line := range []string{"records wait in an inbox, but its worker makes no progress", "gets a new client"} {
			if !strings.Contains(said.String(), line) {
				t.Errorf("it doesn't say that %q:\n%s", line, said.String())
			}
		}
	})
}

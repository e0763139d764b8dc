package schedulerun_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestReadFromASnapshot: what came before a snapshot is deleted, as retention does. A process that reads the topic then knows the
// same as one that has read all of it. A later snapshot whose offset is of another log isn't used.
func TestReadFromASnapshot(t *testing.T) {
	t.Parallel()
	x := start(t, func(x *site) { x.apply("schedule: a\nevery: 1s\nsubmit: {workflow: quick}\n") })
	x.await("some tasks", func(list []schedule.Schedule) bool { return list[0].Started >= 3 })
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	if _, err := registry.PauseNamed(ctx, x.sys.Kafka, events.ScheduleDefinition, "a", events.By{}); err != nil {
		t.Fatal(err)
	}
	want := x.await("no task runs", func(list []schedule.Schedule) bool {
		return list[0].State == schedule.StatePaused && len(list[0].Running) == 0
	})

	r, err := logreader.OpenRestorer(x.sys.Kafka, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	topic := x.sys.Kafka.Namespace.Schedules()
	if end, err := schedulerun.FindSnapshot(ctx, r, topic); err != nil || end == nil {
		t.Fatalf("the owner has written no snapshot: %v, %v", end, err)
	}
	state := schedule.NewState() // the owner's next snapshot is a day away
	next, err := r.ReadAll(ctx, topic, logreader.Range{}, func(rs []events.Record) error {
		for i := range rs {
			state.Apply(&rs[i])
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	records := schedule.Records{Namespace: x.sys.Kafka.Namespace, Source: "test"}
	snapshot, err := records.Snapshot(state, "with tasks", next[0])
	if err == nil {
		err = x.sys.Producer.Send(ctx, snapshot...)
	}
	if err != nil {
		t.Fatal(err)
	}
	end, err := schedulerun.FindSnapshot(ctx, r, topic)
	if err != nil || end == nil || end.ID != "with tasks" {
		t.Fatalf("found %+v, %v", end, err)
	}
	ofAnotherLog, err := records.Snapshot(state, "of another log", next[0]+1000)
	if err == nil {
		err = x.sys.Producer.Send(ctx, ofAnotherLog...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if end, err := schedulerun.FindSnapshot(ctx, r, topic); err != nil || end == nil || end.ID != "with tasks" {
		t.Fatalf("with a snapshot that begins after its end, found %+v, %v", end, err)
	}
	if err := x.sys.Admin.DeleteRecordsBefore(ctx, topic, map[int32]int64{0: end.From}); err != nil {
		t.Fatal(err)
	}
	again := schedulerun.New(schedulerun.Config{Kafka: x.sys.Kafka, Admin: x.sys.Admin, Producer: x.sys.Producer, Source: "test", Log: slog.New(slog.DiscardHandler)})
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- again.Run(running) }()
	if err := again.AwaitRead(ctx); err != nil {
		t.Fatal(err)
	}
	list, err := again.List()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, list), text(t, want); got != want {
		t.Errorf("from the snapshot: %s, want %s", got, want)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

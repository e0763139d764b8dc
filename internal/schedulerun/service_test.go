package schedulerun_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

// site is the whole system in this process, and a service that only reads.
type site struct {
	t   *testing.T
	sys *local.System
	s   *schedulerun.Service
}

// start starts the system. before is called when the topics exist, and no role runs.
func start(t *testing.T, before func(*site)) *site {
	t.Helper()
	d, err := workflow.ParseYAML("w.yaml", []byte("workflow: quick\nversion: 1\ncomplete_within: 1h\nsteps:\n  pause: {wait: 10ms}\n"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	sys, err := local.Start(t.Context(), local.Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Partitions: 4, Definitions: []*workflow.Definition{d}, Log: log, Metrics: instance.NewMetrics(),
		StartIndex: func(context.Context, *instance.Instance) (string, error) { return "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	x := &site{t: t, sys: sys}
	before(x)
	x.s = schedulerun.New(schedulerun.Config{Kafka: sys.Kafka, Admin: sys.Admin, Producer: sys.Producer, Source: "test", Log: log})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	read, ran := make(chan error, 1), make(chan error, 1)
	go func() { read <- x.s.Run(ctx) }()
	go func() { ran <- sys.Run(ctx, sys.StartRoles) }()
	t.Cleanup(func() {
		stop()
		for _, ended := range []chan error{read, ran} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// apply applies schedules.
func (x *site) apply(texts ...string) {
	x.t.Helper()
	var list []events.NamedDefinition
	for _, text := range texts {
		d, err := schedule.Parse("s.yaml", []byte(text))
		if err != nil {
			x.t.Fatal(err)
		}
		body, err := d.JSON()
		if err != nil {
			x.t.Fatal(err)
		}
		list = append(list, events.NamedDefinition{Kind: events.ScheduleDefinition, Name: d.Name, Body: body})
	}
	if _, err := registry.ApplyAllNamed(x.t.Context(), x.sys.Kafka, list, schedule.SameRule); err != nil {
		x.t.Fatal(err)
	}
}

// await waits until the schedules are as ready says.
func (x *site) await(what string, ready func([]schedule.Schedule) bool) []schedule.Schedule {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), suite.Patience)
	defer cancel()
	if err := x.s.AwaitDefinitions(ctx); err != nil {
		x.t.Fatal(err)
	}
	for {
		changed := x.s.Changed()
		list, err := x.s.List()
		if err != nil {
			x.t.Fatal(err)
		}
		if ready(list) {
			return list
		}
		select {
		case <-changed:
		case <-ctx.Done():
			x.t.Fatalf("%s: not within %s", what, suite.Patience)
		}
	}
}

// TestDecisionsOfADeadOwner: an owner died after it had decided to start 200 tasks, and before it submitted them. The next one
// submits all of them, and each runs once. A later instant of theirs, and a decision of the dead owner that comes late, change nothing.
func TestDecisionsOfADeadOwner(t *testing.T) {
	t.Parallel()
	const schedules = 200
	dead := schedule.Decider{Epoch: 1, Namespace: events.DefaultNamespace}
	at := time.Now().UTC().Truncate(time.Hour)
	x := start(t, func(x *site) {
		records := schedule.Records{Namespace: x.sys.Kafka.Namespace, Source: "dead"}
		var texts []string
		for i := range schedules {
			texts = append(texts, fmt.Sprintf("schedule: s-%d\nevery: 8784h\nsubmit: {workflow: quick, input: {of: \"${ schedule }\"}}\n", i))
		}
		x.apply(texts...)
		claim, err := records.Claimed(schedule.Claim{Epoch: dead.Epoch, Owner: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		rs := []events.Record{claim}
		for i := range schedules {
			d, err := schedule.Parse("s.yaml", []byte(texts[i]))
			if err != nil {
				t.Fatal(err)
			}
			s, err := d.Submission(at, x.sys.Kafka.Namespace.Schedules())
			if err != nil {
				t.Fatal(err)
			}
			r, err := records.Decided(d.Name, &schedule.Start{Epoch: dead.Epoch, At: at, Cause: schedule.Due, Submission: s.Record(x.sys.Kafka.Namespace, "dead").Value})
			if err != nil {
				t.Fatal(err)
			}
			rs = append(rs, r)
		}
		if err := x.sys.Producer.Send(t.Context(), rs...); err != nil {
			t.Fatal(err)
		}
	})
	list := x.await("all tasks ended", func(list []schedule.Schedule) bool {
		for i := range list {
			if v := &list[i]; v.Last == nil || v.Last.EndedAt == nil {
				return false
			}
		}
		return len(list) == schedules
	})
	for i := range list {
		if v := &list[i]; v.Started != 1 || v.Last.Status != string(events.StateProcessed) || v.Last.Task != events.ScheduledTask(v.Name, at) {
			t.Fatalf("%+v, last %+v", v, v.Last)
		}
	}
}

// TestScheduleLife: a schedule starts tasks, is triggered while it is paused, goes on after it was resumed, and starts the tasks
// of past instants. A workflow that doesn't exist is a refused task, and an expression that fails a skipped instant.
func TestScheduleLife(t *testing.T) {
	t.Parallel()
	x := start(t, func(*site) {})
	find := func(list []schedule.Schedule, name string) *schedule.Schedule {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return &schedule.Schedule{}
	}
	x.apply("schedule: a\nevery: 1s\nsubmit: {workflow: quick}\noverlap: queue_one\n", "schedule: b\nevery: 1s\nsubmit: {workflow: none}\n",
		"schedule: c\nevery: 1s\nsubmit: {workflow: quick, input: {x: \"${ 1 / (at.getSeconds() - at.getSeconds()) }\"}}\n")
	x.await("some tasks", func(list []schedule.Schedule) bool {
		b, c := find(list, "b"), find(list, "c")
		return find(list, "a").Started >= 2 && b.Last != nil && b.Last.Status == events.StatusRefused && c.Last != nil && c.Last.Skipped == schedule.Failed
	})
	by := events.By{Who: "olga", Why: "a test"}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := registry.PauseNamed(t.Context(), x.sys.Kafka, events.ScheduleDefinition, name, by); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	if err := x.s.AwaitDefinitions(ctx); err != nil {
		t.Fatal(err)
	}
	request, err := x.s.Trigger(ctx, "a", by)
	if err != nil {
		t.Fatal(err)
	}
	o, err := x.s.AwaitRequest(ctx, "a", request)
	if err != nil || o.Cause != schedule.Triggered || o.Task == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	from := time.Now().Truncate(time.Hour).Add(-time.Hour)
	if _, n, err := x.s.Backfill(ctx, "a", from, from.Add(3*time.Second), by); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	list := x.await("the backfill", func(list []schedule.Schedule) bool {
		a := find(list, "a")
		return a.Requests == 0 && len(a.Running) == 0 && a.Last != nil && a.Last.Cause == schedule.Backfilled
	})
	if a := find(list, "a"); a.State != schedule.StatePaused || a.Next != nil || a.Why != "a test" {
		t.Errorf("%+v", a)
	}
	started := find(list, "a").Started
	if _, err := registry.ResumeNamed(t.Context(), x.sys.Kafka, events.ScheduleDefinition, "a", by); err != nil {
		t.Fatal(err)
	}
	x.await("it goes on", func(list []schedule.Schedule) bool { return find(list, "a").Started > started })
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// sendSignals sends the signal approved to tasks, each twice with the same id.
func sendSignals(t *testing.T, cfg kafka.Config, ids []string) {
	t.Helper()
	producer, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	acks := make(chan error, 2*len(ids))
	for range 2 {
		for _, id := range ids {
			s := &events.Signal{Task: id, Name: "approved", ID: "click-1", Data: []byte(`{"yes":true}`), By: "alice"}
			producer.SendAsync(t.Context(), s.Record(cfg.Namespace, "test"), func(_ events.Record, err error) { acks <- err })
		}
	}
	for range 2 * len(ids) {
		if err := <-acks; err != nil {
			t.Fatal(err)
		}
	}
}

// TestSignalsSurviveKills kills a scheduler and a supervisor on Apache Kafka while 100 tasks wait for signals. Half of
// the signals come before their steps start. Each signal is sent twice, and counts once: verify checks it.
func TestSignalsSurviveKills(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 100
	c := newCluster(t)
	c.apply(strings.ReplaceAll(clusterWorkflow, "  ship: {needs: [charge]", "  approve: {needs: [charge], signal: approved, complete_within: 5m}\n  ship: {needs: [approve]"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.follow(ctx)
	for _, n := range []string{"1", "2"} {
		c.scheduler("scheduler-" + n)
		c.supervisor("supervisor-" + n)
	}
	c.agent("agent-1", c.url+"/shop/{operation}", 3*time.Second)
	ns := c.cfg.Namespace
	c.owners(ns.SchedulerGroup(), 4, time.Minute)
	c.owners(ns.SupervisorGroup(), 2, time.Minute)
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("order-%05d", i)
	}
	if err := c.submit(ctx, ids, 100); err != nil {
		t.Fatal(err)
	}
	sendSignals(t, c.cfg, ids[:tasks/2])
	c.kill("scheduler-1")
	c.kill("supervisor-1")
	sendSignals(t, c.cfg, ids[tasks/2:])
	c.await("all tasks ended", 2*time.Minute, func() bool { return len(c.ended) >= tasks })
	for id, s := range c.ended {
		if s != events.StateProcessed {
			t.Errorf("task %s ended %s", id, s)
		}
	}
	c.verified(ids)
}

const signalsOnly = `workflow: signals
version: 1
complete_within: 10m
steps:
  first: {wait: 2s}
  approve: {needs: [first], signal: approved, complete_within: 5m}
output: {by: "${ steps.approve.output.by }"}
`

// TestSignalsSurviveUpKilled kills `up` with kill -9, with its embedded broker, while tasks keep signals or wait for
// them.
func TestSignalsSurviveUpKilled(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	const tasks = 20
	file := filepath.Join(t.TempDir(), "signals.yaml")
	if err := os.WriteFile(file, []byte(signalsOnly), 0o644); err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--workflow", file)
	seen := observe(t, &u.system)
	var lines strings.Builder
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("s-%d", i)
		fmt.Fprintf(&lines, "{\"id\":%q,\"workflow\":\"signals\"}\n", ids[i])
	}
	orders := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(orders, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	u.waybill(t, exitOK, "submit", "-f", orders)
	sendSignals(t, u.config(), ids[:tasks/2])
	seen.await(t, "all tasks wait", func() bool { return seen.begun() == tasks })
	u.kill()
	u.start(t)
	sendSignals(t, u.config(), ids[tasks/2:tasks-1])
	u.waybill(t, exitOK, "signal", ids[tasks-1], "approved", "--data", `{"yes":true}`, "--by", "alice")
	u.waybill(t, exitOK, "submit", "-f", orders, "--wait", "--timeout", "10m")
	if n := seen.awaitEnded(t, tasks); n != tasks {
		t.Errorf("%d tasks ended", n)
	}
	u.waybill(t, exitOK, "verify")
	u.stop(t)
}

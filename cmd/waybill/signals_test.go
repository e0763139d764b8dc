package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
	c.follow()
	c.startShop(c.url, 1)
	ids := c.submitNumbered(ctx, tasks)
	sendSignals(t, c.cfg, ids[:tasks/2])
	c.killFirst("scheduler", "supervisor")
	sendSignals(t, c.cfg, ids[tasks/2:])
	c.awaitProcessed(tasks)
	c.verified(ids)
}

const signalsOnly = `workflow: signals
version: 1
complete_within: 2h
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
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("signals-%d", i)
	}
	k := upKill{definition: signalsOnly, orders: numberedOrders("signals", tasks)}
	k.killing = func(u *upSystem) { sendSignals(t, u.config(), ids[:tasks/2]) }
	k.restarted = func(u *upSystem) {
		sendSignals(t, u.config(), ids[tasks/2:tasks-1])
		u.waybill(t, exitOK, "signal", ids[tasks-1], "approved", "--data", `{"yes":true}`, "--by", "alice")
	}
	k.run(t)
}

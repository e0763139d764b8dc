package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestTornScript: an unreadable record of one task doesn't affect other tasks, with a console or from the log. Each
// tool reports it.
func TestTornScript(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	received := &events.Event{Task: "torn", Seq: 1, At: events.Millis(time.Now()), Epoch: 1, Cause: events.Cause{Inbox: events.Tasks},
		Fact: &events.TaskReceived{Workflow: "order", Version: 1, Input: json.RawMessage(`{}`),
			Plan: events.NewPlan(events.OnErrorHold, time.Minute, []events.PlanStep{{ID: "charge", Agent: "payments", Operation: "charge"}})}}
	record := func(task, seq, ceType, value string) events.Record {
		return events.Record{Topic: cfg.Namespace.Events(), Partition: -1, Key: []byte(task), Value: []byte(value), Headers: events.CloudHeaders(ceType, "test", task+"/"+seq)}
	}
	produce(t, cfg, received.Record(cfg.Namespace, "test", -1, received.Value()),
		record("torn", "2", "waybill.task.started.v1", `{"at":"2026-`),
		record("torn", "3", "waybill.step.started.v1", `{"at":"2026-05-04T12:00:00.000Z","step":"charge","attempt":1}`),
		record("torn", "x", "waybill.step.started.v1", `{}`),
		record("wordless", "x", "waybill.task.received.v1", `{}`),
		record("wreck", "1", "waybill.task.received.v1", "no JSON"))
	env := map[string]string{"WAYBILL_BROKERS": b.Addrs[0], "WAYBILL_NAMESPACE": string(cfg.Namespace)}
	console := startProcess(t, []string{"WAYBILL_BROKERS=" + b.Addrs[0], "WAYBILL_NAMESPACE=" + string(cfg.Namespace)}, "console", "--listen", "127.0.0.1:0")
	env["CONSOLE"] = consoleAt(t, console).url
	runScripts(t, "testdata/torn", env)
}

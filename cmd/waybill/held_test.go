package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestToolsSayWhereTheyCouldNotReadOn: tools and exports lack the records after an open transaction, and say so.
func TestToolsSayWhereTheyCouldNotReadOn(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	records := history(t, cfg.Namespace)
	defer b.OpenTransaction(t, "another.open", records[:1])()
	produce(t, cfg, records...)
	file := filepath.Join(t.TempDir(), "all.jsonl")
	cmd := exec.Command(filepath.Join(binary(t), "waybill"), "export", "--out", file, "--brokers", cfg.Brokers[0], "--namespace", string(cfg.Namespace))
	out, err := cmd.CombinedOutput()
	want := "waybill: " + cfg.Namespace.Events() + "/0 was read only up to offset 0: an open transaction"
	if err != nil || strings.Count(string(out), want) != 1 {
		t.Errorf("%v: %s\nwant %q", err, out, want)
	}
}

// TestVerifyKnowsNothingOfWhatIsHeldBack: a record that can't be read yet isn't reported as missing.
func TestVerifyKnowsNothingOfWhatIsHeldBack(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	ns := cfg.Namespace
	claim := &events.Event{Seq: 1, Epoch: 1, At: events.Millis(time.Now()), Cause: events.Cause{Inbox: events.Tasks, Offset: 1}, Fact: &events.PartitionClaimed{Owner: "test"}}
	produce(t, cfg, events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("no JSON")}, claim.Record(ns, "test", 0, claim.Seal(nil)))
	if out, _, code := verifyOf(t, cfg); code != exitOther || !strings.Contains(out, "there is no dead letter of it") {
		t.Fatalf("without a dead letter: exit code %d\n%s", code, out)
	}
	letter := events.Record{Topic: ns.Deadletters(), Value: []byte("no JSON"), Headers: []events.Header{
		{Key: events.HeaderOrigin, Value: []byte(ns.Inbox(events.Tasks) + "/0/0")}, {Key: events.HeaderReason, Value: []byte(events.ReasonBadJSON)}}}
	defer b.OpenTransaction(t, "another.open", []events.Record{letter})()
	produce(t, cfg, letter)
	if out, note, code := verifyOf(t, cfg); code != exitOK || !strings.Contains(note, ns.Deadletters()+"/0 was read only up to offset 0") {
		t.Errorf("exit code %d: %s\n%s", code, note, out)
	}
}

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/replay"
)

// openTransaction writes a record in a transaction that stays open until rollBack is called.
func openTransaction(t *testing.T, l *logbook, r events.Record) (rollBack func()) {
	t.Helper()
	before, err := l.ends(t.Context(), r.Topic)
	if err != nil {
		t.Fatal(err)
	}
	other := l.cfg
	other.Namespace = "another."
	w, err := kafka.OpenHistoryWriter(t.Context(), other)
	if err == nil {
		err = w.Write(t.Context(), &r)
	}
	for ends := before; err == nil && ends[r.Partition] == before[r.Partition]; {
		ends, err = l.ends(t.Context(), r.Topic)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// opened opens the log of a namespace.
func opened(t *testing.T, cfg kafka.Config) *logbook {
	t.Helper()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	l, err := (&tool{connection: connection{brokers: cfg.Brokers, namespace: string(cfg.Namespace)}}).open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// TestToolsSayWhereTheyCouldNotReadOn: tools and exports lack the records after an open transaction, and say so.
func TestToolsSayWhereTheyCouldNotReadOn(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	records := history(t, cfg.Namespace)
	defer openTransaction(t, opened(t, cfg), records[0])()
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
	produce(t, cfg, events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("no JSON")}, claim.Record(ns, "test", 0, claim.Value()))
	if out, _, code := verifyOf(t, cfg); code != exitOther || !strings.Contains(out, "there is no dead letter of it") {
		t.Fatalf("without a dead letter: exit code %d\n%s", code, out)
	}
	letter := events.Record{Topic: ns.Deadletters(), Value: []byte("no JSON"), Headers: []events.Header{
		{Key: events.HeaderOrigin, Value: []byte(ns.Inbox(events.Tasks) + "/0/0")}, {Key: events.HeaderReason, Value: []byte(events.ReasonBadJSON)}}}
	defer openTransaction(t, opened(t, cfg), letter)()
	produce(t, cfg, letter)
	if out, note, code := verifyOf(t, cfg); code != exitOK || !strings.Contains(note, ns.Deadletters()+"/0 was read only up to offset 0") {
		t.Errorf("exit code %d: %s\n%s", code, note, out)
	}
}

// TestImportIsComparedOnceItCanBeRead: a commit returns before its records are readable. An import waits for them
// before it compares them with its file.
func TestImportIsComparedOnceItCanBeRead(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	records := history(t, cfg.Namespace)
	l := opened(t, cfg)
	waited := &onWrite{do: openTransaction(t, l, records[0])}
	l.note = waited
	produce(t, cfg, records...)
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	m := &importing{cmd: cmd, file: &fileHistory{first: replay.Head{Namespace: cfg.Namespace, Partitions: 2}}}
	var err error
	if m.sums, err = m.readBack(l); err != nil || len(m.sums) != 1 || waited.do != nil {
		t.Errorf("%d partitions, %v, said %q", len(m.sums), err, waited)
	}
	if err := m.compare(l); err != nil {
		t.Error(err)
	}
}

// onWrite calls a function at the first write.
type onWrite struct {
	bytes.Buffer
	do func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	if w.do != nil {
		w.do()
		w.do = nil
	}
	return w.Buffer.Write(p)
}

package main

import (
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestUpAgainWithoutPartitions: the number of partitions is fixed when a data directory is created. A later `up` uses
// it, unless another count is requested.
func TestUpAgainWithoutPartitions(t *testing.T) {
	suite.NeedAll(t, "processes that are started and stopped")
	addr := freeAddress(t)
	u := &upSystem{dir: t.TempDir(), system: system{ns: events.DefaultNamespace,
		broker: &kafkatest.Broker{Kind: kafkatest.EmbeddedKind, Addrs: []string{addr}}}}
	again := []string{"up", "--data-dir", u.dir, "--kafka-listen", addr}
	u.args = append(again[:len(again):len(again)], "--partitions", "4")
	u.start(t)
	u.process.stop(t)

	u.args = again
	u.start(t)
	if out := u.waybill(t, exitOK, "verify"); !strings.Contains(out, "of 4 partitions") {
		t.Errorf("verify of 4 partitions says:\n%s", out)
	}
	u.process.stop(t)

	_, note, code := runWaybill(t, nil, append(again, "--partitions", "12")...)
	if code != exitOther || !strings.Contains(note, "leave --partitions out") {
		t.Errorf("asked for 12: exit code %d, %s", code, note)
	}
}

// TestUpTrickle: with --rate there are soon tasks that were processed, undone and held, and dead letters.
func TestUpTrickle(t *testing.T) {
	suite.NeedAll(t, "a process that runs for a while")
	addr := freeAddress(t)
	u := &upSystem{dir: t.TempDir(), system: system{ns: events.DefaultNamespace,
		broker: &kafkatest.Broker{Kind: kafkatest.EmbeddedKind, Addrs: []string{addr}}}}
	u.args = []string{"up", "--demo", "--rate", "20", "--data-dir", u.dir, "--kafka-listen", addr}
	u.start(t)
	for _, state := range []string{"processed", "undone", "held"} {
		for out := ""; !strings.Contains(out, "demo-"); { // the test's deadline ends it
			out = u.waybill(t, exitOK, "task", "list", "--workflow", "quick-order", "--state", state, "--limit", "1", "-o", "jsonl")
		}
	}
	if out := u.waybill(t, exitOK, "deadletters"); !strings.Contains(out, "quick-ordr") {
		t.Errorf("no dead letters:\n%s", out)
	}
	u.process.stop(t)
	if _, note, code := runWaybill(t, nil, "up", "--rate", "1", "--data-dir", t.TempDir()); code != exitUsage || !strings.Contains(note, "--rate needs --demo") {
		t.Errorf("exit code %d, %s", code, note)
	}
}

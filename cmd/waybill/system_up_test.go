package main

import (
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestUpAgainWithoutPartitions: the number of partitions is fixed when a data directory is created. A later `up` uses
// it, unless another count is requested.
func TestUpAgainWithoutPartitions(t *testing.T) {
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

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestWaitingSubmissionIsFound: if no scheduler runs, submissions stay in the inbox. A tool that asks for such a task
// says where the submission is, and says for another id that there is none.
func TestWaitingSubmissionIsFound(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		createTopics(t, cfg)
		ns := cfg.Namespace
		for _, id := range []string{"first", "second", "second"} {
			produce(t, cfg, (&events.Submission{ID: id, Workflow: "w", Input: []byte("{}")}).Record(ns, "test"))
		}
		elsewhere := func(id string) int32 { return (events.Partition([]byte(id), 2) + 1) % 2 }
		for _, id := range []string{"keyless", "keyless-at-home"} {
			r := (&events.Submission{ID: id, Workflow: "w", Input: []byte("{}")}).Record(ns, "test")
			if r.Key, r.Partition = nil, elsewhere(id); id == "keyless-at-home" {
				r.Partition = events.Partition([]byte(id), 2)
			}
			produce(t, cfg, r)
		}
		for what, want := range map[string]string{
			"keyless":         fmt.Sprintf(`its submission waits at %s/%d/`, ns.Inbox(events.Tasks), elsewhere("keyless")),
			"keyless-at-home": fmt.Sprintf(`its submission waits at %s/%d/`, ns.Inbox(events.Tasks), events.Partition([]byte("keyless-at-home"), 2)),
			"second":          `task "second" has not been consumed by a scheduler yet: its submission waits at ` + ns.Inbox(events.Tasks) + "/",
			"nowhere":         `there is no task "nowhere"`,
			"nowhere2":        `there is no task "nowhere2"`,
		} {
			for _, verb := range []string{"why", "get"} {
				cmd := exec.Command(filepath.Join(binary(t), "waybill"), "task", verb, what, "--api", "off", "--brokers", cfg.Brokers[0], "--namespace", string(ns))
				out, err := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); err == nil || code != exitNotFound || !strings.Contains(string(out), want) {
					t.Errorf("task %s %s: exit code %d, %s", verb, what, code, out)
				}
			}
		}
	})
}

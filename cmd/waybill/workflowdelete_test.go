package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// A definition is deleted when no open task has it, and comes back with the same body only, while a
// copy of the first is kept.
func TestDeletedDefinitionComesBackAsItWas(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		createTopics(t, cfg)
		waybill := func(want int, says string, args ...string) {
			t.Helper()
			cmd := exec.Command(filepath.Join(binary(t), "waybill"), append(args, "--brokers", cfg.Brokers[0], "--namespace", string(cfg.Namespace))...)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), says) {
				t.Errorf("%v: exit code %d (%v), want %d and %q:\n%s", args, code, err, want, says, out)
			}
		}
		d, other := versionOf(t, 1), versionOf(t, 2)
		if err := applyDefinition(t.Context(), cfg, d); err != nil {
			t.Fatal(err)
		}
		waybill(exitUsage, "--yes", "workflow", "delete", "race/1")
		waybill(exitUsage, "NAME/VERSION", "workflow", "delete", "race", "--yes")
		waybill(exitNotFound, "no definition race/2", "workflow", "delete", "race/2", "--yes")

		produce(t, cfg, history(t, cfg.Namespace)[:4]...) // the claim, and a task that is at work
		waybill(exitRefused, "1 open tasks have pay/1 (good-7)", "workflow", "delete", "pay/1", "--yes")
		waybill(exitOK, "deleted", "workflow", "delete", "race/1", "--yes")
		waybill(exitNotFound, "no definition race/1", "workflow", "delete", "race/1", "--yes")
		produce(t, cfg, definitionRecord(cfg.Namespace, events.KeptDefinition(d.Key()), d.Stored())) // as a scheduler does
		if err := applyDefinition(t.Context(), cfg, other); codeOf(err) != exitRefused || !strings.Contains(err.Error(), "was deleted, and had another body") {
			t.Errorf("another body: %v", err)
		}
		if err := applyDefinition(t.Context(), cfg, d); err != nil {
			t.Errorf("the same body: %v", err)
		}
		waybill(exitOK, "race", "workflow", "list")
	})
}

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/workflow"
)

// TestDeletedDefinitionComesBackAsItWas: a definition is deleted only if no open task uses it. While a copy is kept, it
// can be applied again only with the same body.
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
		if _, err := registry.Apply(t.Context(), cfg, d); err != nil {
			t.Fatal(err)
		}
		waybill(exitUsage, "--yes", "workflow", "delete", "race/1")
		waybill(exitUsage, "NAME/VERSION", "workflow", "delete", "race", "--yes")
		waybill(exitNotFound, "no definition race/2", "workflow", "delete", "race/2", "--yes")

		produce(t, cfg, history(t, cfg.Namespace)[:4]...) // the claim, and an open task
		waybill(exitRefused, "1 open task uses pay/1 (good-7)", "workflow", "delete", "pay/1", "--yes")
		waybill(exitOK, "deleted", "workflow", "delete", "race/1", "--yes")
		waybill(exitNotFound, "no definition race/1", "workflow", "delete", "race/1", "--yes")
		produce(t, cfg, registry.Record(cfg.Namespace, events.KeptDefinition(d.Key()), d.Stored())) // as a scheduler does
		// Its tasks can still be forked with it, and it can be shown.
		waybill(exitOK, "flowchart", "workflow", "graph", "race/1", "--format", "mermaid")
		waybill(exitUsage, "belongs to workflow pay, but the definition to race", "replay", "fork", "good-7", "--workflow", "race/1")
		waybill(exitNotFound, "race/2", "replay", "fork", "good-7", "--workflow", "race/2")
		waybill(exitOK, "race/1", "replay", "plan", "--workflow", "race/1")
		if _, err := registry.Apply(t.Context(), cfg, other); codeOf(err) != exitRefused || !strings.Contains(err.Error(), "was deleted, and its tasks still use its other body") {
			t.Errorf("another body: %v", err)
		}
		if _, err := registry.Apply(t.Context(), cfg, d); err != nil {
			t.Errorf("the same body: %v", err)
		}
		waybill(exitOK, "race", "workflow", "list")
	})
}

// TestTombstoneFromOutside writes a tombstone while a scheduler runs. The scheduler keeps a copy for tasks that use the
// definition, and refuses new tasks with the reason. So does a scheduler that starts later.
func TestTombstoneFromOutside(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
		createTopics(t, cfg)
		s := &system{broker: b, ns: cfg.Namespace, partitions: 2}
		admin, err := kafkaadmin.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		until := func(what, topic string, is func(*events.Record) bool) {
			t.Helper()
			for found := false; !found; {
				if err := admin.ReadCompacted(t.Context(), topic, func(r events.Record) error {
					found = found || is(&r)
					return nil
				}); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		refused := func(id string) {
			t.Helper()
			produce(t, cfg, (&events.Submission{ID: id, Workflow: "race", Input: []byte("{}")}).Record(cfg.Namespace, "test"))
			until("a refusal", cfg.Namespace.Deadletters(), func(r *events.Record) bool {
				detail, _ := r.Header(events.HeaderDetail)
				return string(r.Key) == id && strings.Contains(detail, `workflow "race" was deleted`)
			})
		}
		d := versionOf(t, 1)
		if _, err := registry.Apply(t.Context(), cfg, d); err != nil {
			t.Fatal(err)
		}
		first := s.start(t, "scheduler", "--session-timeout", shortSession)
		produce(t, cfg, registry.Record(cfg.Namespace, d.Key(), nil))
		until("a copy", cfg.Namespace.Definitions(), func(r *events.Record) bool {
			return string(r.Key) == events.KeptDefinition(d.Key()) && string(r.Value) == string(d.Stored())
		})
		refused("one")
		first.stop(t)
		s.start(t, "scheduler", "--session-timeout", shortSession)
		refused("two")
	})
}

// versionOf returns a definition of race/1 with one of several bodies.
func versionOf(t *testing.T, body int) *workflow.Definition {
	t.Helper()
	d, err := workflow.New("race", 1).CompleteWithin(time.Duration(body) * time.Minute).AttemptWithin(10 * time.Second).
		Step(workflow.Step{ID: "a", Agent: "payments", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// heldWorkflow is held at the charge while the bank is down.
const heldWorkflow = `workflow: held
version: 1
on_error: hold
complete_within: 2h
steps:
  note: {agent: payments, operation: note, complete_within: 1m, when: "${ has(input.noted) }", input: {order: "${ task.id }"}}
  charge: {agent: payments, operation: charge, needs: [note], complete_within: 1m, input: {order: "${ task.id }"}}
`

// heldWorkflow2 notes in another way, so it doesn't fit tasks that were noted.
func heldWorkflow2() string {
	return strings.Replace(strings.Replace(heldWorkflow, "version: 1", "version: 2", 1), "operation: note", "operation: record", 1)
}

// migrationsSurviveKill migrates held tasks to version 2, which fits half of them, and back. The scheduler is killed in the middle
// of a migration: if it is over too soon, the next one is slower. For each task the outcome is what the dry run said.
func migrationsSurviveKill(t *testing.T, s *system, scheduler *process, api *consoleapi.Client, held int) {
	t.Helper()
	m := &migrations{t, s, api}
	killed := false
	for rate := 100.0; !killed; rate /= 4 {
		name := fmt.Sprintf("at %v a second", rate)
		migrated := m.compared(name+", there", 2, "workflow:held/1 state:held", rate, held, func(id string) {
			b := awaitBatch(t, api, id, func(b *consoleapi.Batch) bool { return b.EndedAt != nil || b.Counts[batch.Waiting] <= held*3/4 })
			if b.EndedAt != nil {
				t.Logf("%s: it was over before the kill", name)
				return
			}
			scheduler.kill()
			b, err := api.Batch(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			killed = b.EndedAt == nil
			t.Logf("%s: the scheduler is killed -9: %v", name, b.Counts)
			scheduler = s.start(t, "scheduler", "--workers", "2", "--session-timeout", shortSession)
		})
		if migrated == 0 || migrated == held {
			t.Fatalf("%d of %d tasks were migrated", migrated, held)
		}
		// All that were migrated go back, so the version before has all again.
		if back := m.compared(name+", back", 1, "workflow:held/2", 0, migrated, func(string) {}); back != migrated {
			t.Fatalf("%d of %d tasks were migrated back", back, migrated)
		}
	}
	s.waybill(t, exitOther, "batch", "compare", "dry run at 100 a second, there", "at 100 a second, back")
}

// migrations orders migrations.
type migrations struct {
	t   *testing.T
	s   *system
	api *consoleapi.Client
}

// compared runs a dry run and the migration, and compares them task by task. during is called while it runs.
func (m *migrations) compared(name string, version int, filter string, rate float64, tasks int, during func(id string)) (migrated int) {
	m.t.Helper()
	said := m.order("dry run "+name, version, filter, 0, true, func(string) {})
	did := m.order(name, version, filter, rate, false, during)
	m.t.Logf("%s: the dry run said %v, the migration did %v", name, said.Counts, did.Counts)
	if said.Tasks != tasks || did.Tasks != tasks {
		m.t.Errorf("%s: %d tasks; the dry run: %+v, the migration: %+v", name, tasks, said, did)
	}
	m.s.waybill(m.t, exitOK, "batch", "compare", "dry run "+name, name)
	return did.Counts[batch.Passed] + did.Counts[batch.Accepted]
}

func (m *migrations) order(id string, version int, filter string, rate float64, dryRun bool, during func(id string)) *consoleapi.Batch {
	m.t.Helper()
	canary := 0
	if _, err := m.api.OrderBatch(m.t.Context(), &consoleapi.BatchCommand{ID: id, Command: "migrate", Version: version, DryRun: dryRun, Filter: filter, Reason: "a test", Rate: &rate, Canary: &canary}); err != nil {
		m.t.Fatal(err)
	}
	during(id)
	b := awaitBatch(m.t, m.api, id, func(b *consoleapi.Batch) bool { return b.EndedAt != nil })
	if b.State != consoleapi.BatchDone {
		m.t.Fatalf("%+v", b)
	}
	return &b
}

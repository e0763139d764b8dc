package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// migratedTo gives the task a plan with the steps c, b, a, as change left them.
func migratedTo(h *history, version int, change func([]events.PlanStep) []events.PlanStep) *events.TaskMigrated {
	steps := slices.Clone(h.state.Plan.Steps)
	slices.Reverse(steps)
	if change != nil {
		steps = change(steps)
	}
	return &events.TaskMigrated{By: events.By{RequestID: "request"}, From: h.state.Version, Version: version, Plan: events.NewPlan(events.OnErrorUndo, 2*time.Hour, steps)}
}

func migration(h *history) *events.TaskMigrated { return migratedTo(h, 2, nil) }

// aDone writes a task whose step a is completed, while b runs, and asks for its migration.
func aDone(h *history, version int) *history {
	h.submit().add(do("a", 1)).add(do("b", 1)).completes("a", events.Do)
	return h.control(&events.Control{Command: events.Migrate, Version: version})
}

// retryMigrated writes a task whose step a waits for its second attempt, and is migrated to a version with fewer attempts.
func retryMigrated(h *history, attempts int) *history {
	h.submit().add(do("a", 1)).fails("a", events.Do, 1)
	h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
	h.control(&events.Control{Command: events.Migrate, Version: 2})
	h.add(migratedTo(h, 2, func(steps []events.PlanStep) []events.PlanStep {
		i := slices.IndexFunc(steps, func(s events.PlanStep) bool { return s.ID == "a" })
		steps[i].Attempts.MaxAttempts = attempts
		return steps
	}))
	h.at = h.timer("a", events.Do).Due
	return h.recovery("a", events.Do, events.ActionRetry)
}

// TestMigrations checks P2 and P10 with migrations.
func TestMigrations(t *testing.T) {
	of := func(id string, change func(*events.PlanStep)) func([]events.PlanStep) []events.PlanStep {
		return func(steps []events.PlanStep) []events.PlanStep {
			i := slices.IndexFunc(steps, func(s events.PlanStep) bool { return s.ID == id })
			change(&steps[i])
			return steps
		}
	}
	added := func(steps []events.PlanStep) []events.PlanStep {
		for i := range steps {
			if steps[i].ID == "a" {
				steps[i].Needs = []int{len(steps)}
			}
		}
		return append(steps, events.PlanStep{ID: "new", Agent: "x", Operation: "new", Attempts: rule})
	}
	unfit := func(change func([]events.PlanStep) []events.PlanStep) func(h *history) {
		return func(h *history) { aDone(h, 2).raw(h.event(migratedTo(h, 2, change))) }
	}
	holds(t, Options{Requests: true, Deadletters: true}, []played{
		{"migrated, and processed", "", func(h *history) {
			aDone(h, 2).add(migration(h)).add(do("c", 1)).completes("c", events.Do).completes("b", events.Do).add(processedNow)
		}},
		{"migrated, and another operation of a step that hasn't begun", "", func(h *history) {
			aDone(h, 2).add(migratedTo(h, 2, of("c", func(s *events.PlanStep) { s.Operation = "d" })))
		}},
		{"a retry that waits is made, though the new version allows no other", "", func(h *history) {
			retryMigrated(h, 1).add(do("a", 2)).add(do("b", 1)).add(do("c", 1))
		}},
		{"P5: after it the new version counts", "P5", func(h *history) {
			retryMigrated(h, 1).add(do("a", 2)).fails("a", events.Do, 2)
			h.recovery("a", events.Do, events.ActionWait).add(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 2})
		}},
		{"a failed attempt waits as the new version says", "", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).fails("a", events.Do, 1).control(&events.Control{Command: events.Migrate, Version: 2})
			h.add(migratedTo(h, 2, of("a", func(s *events.PlanStep) { s.Attempts.Backoff = time.Second / 4 }))).add(do("c", 1)).waits("a", 1).add(do("a", 2))
		}},
		{"P5: a failed attempt waits less than the new version says", "P5", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).fails("a", events.Do, 1).control(&events.Control{Command: events.Migrate, Version: 2})
			h.add(migratedTo(h, 2, of("a", func(s *events.PlanStep) { s.Attempts.Backoff = time.Second / 4 }))).add(do("c", 1))
			h.recovery("a", events.Do, events.ActionWait)
			e := h.event(&events.AttemptWaiting{Kind: events.Do, Step: "a", Attempt: 1})
			e.Due = e.Due.Add(-time.Millisecond)
			h.raw(e)
		}},
		{"P2: a step that has begun is dropped", "P2", unfit(func(s []events.PlanStep) []events.PlanStep {
			return slices.DeleteFunc(s, func(s events.PlanStep) bool { return s.ID == "b" })
		})},
		{"P2: a step that has begun is of another kind", "P2", unfit(of("b", func(s *events.PlanStep) { *s = events.PlanStep{ID: "b", StepKind: events.WaitStep} }))},
		{"P2: a running step has another operation", "P2", unfit(of("b", func(s *events.PlanStep) { s.Operation = "d" }))},
		{"P2: a completed step has another agent", "P2", unfit(of("a", func(s *events.PlanStep) { s.Agent = "y" }))},
		{"P2: a completed step needs a new one", "P2", unfit(added)},
		{"P1: another complete-by than the plan's", "P1", func(h *history) {
			e := aDone(h, 2).event(migration(h))
			e.Due = e.Due.Add(time.Second)
			h.raw(e)
		}},
		{"the complete-by of the new version counts from the start, not from what the submission asked for", "", func(h *history) {
			s := &events.Submission{ID: h.id, Workflow: "w", Input: []byte("{}"), CompleteBy: h.at.Add(30 * time.Minute)}
			h.input(s.Record(ns, "test")).receive(s)
			h.add(do("a", 1)).add(do("b", 1)).completes("a", events.Do).control(&events.Control{Command: events.Migrate, Version: 2})
			shorter := migration(h)
			shorter.Plan = events.NewPlan(events.OnErrorUndo, 20*time.Minute, shorter.Plan.Steps)
			h.add(shorter).add(do("c", 1))
		}},
		{"P10: another version than was asked for", "P10", func(h *history) { aDone(h, 3).add(migration(h)).add(do("c", 1)) }},
		{"P10: nobody asked for it", "P10", func(h *history) {
			h.submit().add(do("a", 1)).completes("a", events.Do).add(migration(h)).add(do("b", 1)).add(do("c", 1))
		}},
		{"P10: only a dry run was asked for", "P10", func(h *history) {
			h.submit().add(do("a", 1)).add(do("b", 1)).completes("a", events.Do)
			h.control(&events.Control{Command: events.Migrate, Version: 2, DryRun: true}).add(migration(h))
		}},
		{"a dry run has no effect", "", func(h *history) {
			h.submit().add(do("a", 1)).control(&events.Control{Command: events.Migrate, Version: 2, DryRun: true}).completes("a", events.Do)
		}},
	})
}

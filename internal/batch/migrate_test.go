package batch

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var migrate = events.Control{Command: events.Migrate, Version: 2, By: events.By{Why: "a test"}}

func processing(n int) []Target {
	targets := held(n)
	for i := range targets {
		targets[i].State, targets[i].Step, targets[i].Code = events.StateProcessing, "", ""
	}
	return targets
}

// Tasks that don't fit are no canaries: the batch searches for one that does.
func TestMigrationCanary(t *testing.T) {
	plan := Plan{Canary: 1, CanaryWithin: time.Minute}
	for what, x := range map[string]struct {
		fits     func(n int) bool
		accepted int
		refused  int
	}{
		"the first hundred don't fit": {func(n int) bool { return n >= 100 }, 900, 100},
		"none fits":                   {func(int) bool { return false }, 0, 1000},
	} {
		targets := processing(1000)
		number := map[string]int{}
		for i := range targets {
			number[targets[i].Task] = i
		}
		w := newWorld(func(task string) events.TaskState {
			if x.fits(number[task]) {
				return events.StateProcessing
			}
			return ""
		})
		b := New("m", migrate, plan, targets, nil)
		w.run(t, b)
		n := b.Count()
		if why, _ := b.Stopped(); why != "" || n[Accepted]+n[Passed] != x.accepted || n[Refused] != x.refused {
			t.Errorf("%s: stopped: %q; %v", what, why, n)
		}
	}
}

// TestHeldByMigration stops if the canary is held by its migration.
func TestHeldByMigration(t *testing.T) {
	b := New("m", migrate, Plan{Canary: 1, CanaryWithin: time.Minute}, processing(10), nil)
	do := b.Next(begin)
	b.Answered(begin, do.Send[0].Task, &events.Answer{Accepted: true}, "")
	b.Observed(do.Send[0].Task, &events.TaskView{State: events.StateError, Error: &events.Error{Code: "expression_failed"}})
	if why, _ := b.Stopped(); why == "" || !b.Next(begin).Ended {
		t.Errorf("it goes on: %v", b.Count())
	}
}

// A dry run waits for nothing, and a repeated one continues.
func TestMigrationDryRun(t *testing.T) {
	dry := migrate
	dry.DryRun = true
	w := newWorld(func(string) events.TaskState { return events.StateError })
	b := New("m", dry, Plan{Canary: 1, CanaryWithin: time.Minute}, processing(100), nil)
	w.run(t, b)
	if n := b.Count(); n[Accepted] != 100 {
		t.Errorf("%v", n)
	}
	some := processing(3)
	some[1].Version = 2
	if targets, left := Select(&migrate, some); len(targets) != 2 || left != 1 {
		t.Errorf("selected %v, left %d", targets, left)
	}
}

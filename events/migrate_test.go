package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/internal/suite"
)

// drawVersion draws another version of a plan: steps in another order, some dropped, added or changed.
func drawVersion(t *rapid.T, p *Plan) *Plan {
	if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
		return drawPlan(t)
	}
	var steps []PlanStep
	index := map[string]int{}
	for _, i := range rapid.Permutation(indices(len(p.Steps))).Draw(t, "order") {
		if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
			continue
		}
		s := p.Steps[i]
		needs := s.Needs
		s.Needs = nil
		for _, n := range needs {
			if j, ok := index[p.Steps[n].ID]; ok {
				s.Needs = append(s.Needs, j)
			}
		}
		if s.StepKind == CallStep {
			s.Attempts = drawAttempts(t)
			if s.Undo == nil && rapid.Bool().Draw(t, "undo") {
				s.Undo = &PlanUndo{Agent: "storage", Operation: "release", Attempts: drawAttempts(t)}
			}
		}
		index[s.ID] = len(steps)
		steps = append(steps, s)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "new") {
		if id := fmt.Sprintf("n%d", i); !slices.ContainsFunc(steps, func(s PlanStep) bool { return s.ID == id }) {
			steps = append(steps, PlanStep{ID: id, Agent: "inventory", Operation: "reserve", Attempts: drawAttempts(t)})
		}
	}
	if len(steps) == 0 {
		return p
	}
	return NewPlan(rapid.SampledFrom([]string{OnErrorUndo, OnErrorHold}).Draw(t, "on_error"), rapid.SampledFrom([]time.Duration{time.Hour, 2 * time.Hour}).Draw(t, "within"), steps)
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// migrates draws a migration.
func (w *walker) migrates(by By) Fact {
	return &TaskMigrated{By: by, From: w.live.Version, Version: rapid.IntRange(1, 3).Draw(w.T, "version"), Plan: drawVersion(w.T, w.live.Plan)}
}

// TestMigrateBack checks that a migration and its way back leave a task as it was, but for its last event.
func TestMigrateBack(t *testing.T) {
	backs := 0
	rapid.Check(t, suite.Some(t, func(t *rapid.T) {
		w := &walker{T: t, at: epochStart, states: map[TaskState]int{}}
		w.walk(rapid.IntRange(0, 25).Draw(t, "events"))
		if !migratable(w.live.State) {
			return
		}
		there := &TaskMigrated{From: w.live.Version, Version: w.live.Version + 1, Plan: drawVersion(t, w.live.Plan)}
		back := &TaskMigrated{From: there.Version, Version: there.From, Plan: w.live.Plan}
		before := w.live.Clone()
		trial, err := Evolve(w.live.Clone(), w.event(there), "h")
		if err != nil {
			return
		}
		was := storedForm(trial)
		if trial, err = Evolve(trial, following(trial, w, back), "h"); err != nil {
			t.Fatalf("back from %s to %s: %v", was, storedForm(before), err)
		}
		trial.Seq, trial.Prev, trial.Timer.Seq, trial.UpdatedAt = before.Seq, before.Prev, before.Timer.Seq, before.UpdatedAt
		if got := storedForm(trial); got != storedForm(before) {
			t.Fatalf("there and back\nfrom %s\nto   %s", storedForm(before), got)
		}
		backs++
	}))
	if backs == 0 {
		t.Error("no task was migrated")
	}
}

// following returns the event that follows the last one of a task.
func following(t *Task, w *walker, f Fact) *Event {
	live := w.live
	w.live = t
	defer func() { w.live = live }()
	return w.event(f)
}

func TestCompleteByUnder(t *testing.T) {
	start := epochStart
	plan := func(within time.Duration) *Plan { return NewPlan(OnErrorUndo, within, []PlanStep{{ID: "a"}}) }
	for what, x := range map[string]struct {
		by, asked  time.Duration // after the start; asked 0: none
		from, to   time.Duration
		resumed    time.Duration
		want, back time.Duration
	}{
		"longer":                {by: time.Hour, from: time.Hour, to: 2 * time.Hour, want: 2 * time.Hour, back: time.Hour},
		"shorter":               {by: time.Hour, from: time.Hour, to: time.Minute, want: time.Minute, back: time.Hour},
		"after a resubmit":      {by: 3 * time.Hour, from: time.Hour, to: 2 * time.Hour, want: 4 * time.Hour, back: 3 * time.Hour},
		"as asked":              {by: time.Minute, asked: time.Minute, from: time.Hour, to: 2 * time.Hour, want: time.Minute, back: time.Minute},
		"shorter than asked":    {by: 30 * time.Minute, asked: 30 * time.Minute, from: time.Hour, to: time.Minute, want: time.Minute, back: 30 * time.Minute},
		"longer, asked between": {by: time.Hour, asked: 90 * time.Minute, from: time.Hour, to: 2 * time.Hour, want: 90 * time.Minute, back: time.Hour},
	} {
		task := &Task{SubmittedAt: start, CompleteBy: start.Add(x.by), Plan: plan(x.from)}
		if x.asked > 0 {
			task.Asked = start.Add(x.asked)
		}
		if got := task.CompleteByUnder(plan(x.to)); !got.Equal(start.Add(x.want)) {
			t.Errorf("%s: %s after the start, want %s", what, got.Sub(start), x.want)
		}
		task.CompleteBy, task.Plan = start.Add(x.want), plan(x.to)
		if got := task.CompleteByUnder(plan(x.from)); !got.Equal(start.Add(x.back)) {
			t.Errorf("%s and back: %s after the start, want %s", what, got.Sub(start), x.back)
		}
	}
}

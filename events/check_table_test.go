package events

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCheckTable tries every verb of a check in every combination of the states of task, step and check.
func TestCheckTable(t *testing.T) {
	allowed := 0
	for _, r := range StepTransitions {
		verb, is := strings.CutPrefix(string(r.Verb), checkPrefix)
		if !is {
			continue
		}
		for _, during := range TaskStates {
			for _, step := range StepStates {
				for _, check := range append([]StepState{""}, StepStates...) {
					c, known := row(CheckTransitions, Verb(verb), check)
					ok := known && slices.Contains(r.During, during) && slices.Contains(r.From, step)
					task := after(t)
					task.Plan = NewPlan(OnErrorUndo, task.Plan.CompleteWithin, []PlanStep{{ID: "s0", Agent: "a", Operation: "o", Check: &PlanUndo{Agent: "a", Operation: "c"}}})
					task.State = during
					s := task.OwnStep(0)
					s.State, s.Attempt, s.Unknown, s.Timer = step, 1, true, Timer{Seq: 1, Due: epochStart}
					attempt := 0
					if check != "" {
						attempt, s.Check = 1, &Run{State: check, Attempt: 1, Timer: Timer{Seq: 1, Due: epochStart}}
					}
					if verb == "failed" && check != StepRunning {
						attempt++
					}
					got := try(t, task, factOf(Check, Verb(verb), attempt), ok, string(r.Verb)+" in task "+string(during)+", step "+string(step)+", check "+string(check))
					if got == nil {
						continue
					}
					allowed++
					want := step
					if during == StateProcessing && step != StepError {
						want = StepFailed
					}
					if s := got.Steps[0]; s.State != want || s.Check.State != c.To || s.Timer.Armed() {
						t.Errorf("%s in task %s, step %s, check %q makes %s, %s, with the step's timer armed: %v; want %s, %s", r.Verb, during, step, check, s.State, s.Check.State, s.Timer.Armed(), want, c.To)
					}
				}
			}
		}
	}
	if allowed < 100 {
		t.Errorf("%d allowed: the walk proves too little", allowed)
	}
}

// TestCheckResults folds each result of a check.
func TestCheckResults(t *testing.T) {
	for became, want := range map[Became]StepState{BecameCompleted: StepCompleted, BecameNone: StepFailed, BecameUnknown: StepFailed} {
		task := after(t)
		task.Plan = NewPlan(OnErrorUndo, task.Plan.CompleteWithin, []PlanStep{{ID: "s0", Agent: "a", Operation: "o", Check: &PlanUndo{Agent: "a", Operation: "c"}}})
		task.State = StateProcessing
		s := task.OwnStep(0)
		s.State, s.Attempt, s.Unknown, s.Check = StepFailed, 2, true, &Run{State: StepRunning, Attempt: 1}
		got := try(t, task, &CheckCompleted{Step: "s0", Attempt: 1, Became: became, Output: []byte(`{"a":1}`)}, true, string(became)).Steps[0]
		if got.State != want || got.Unknown != (became == BecameUnknown) || (got.CompletedSeq != 0) != (became == BecameCompleted) || got.KindState().Checked != 2 || got.KindState().Became != became {
			t.Errorf("%s: %+v", became, got)
		}
	}
}

func TestAnswersToChecks(t *testing.T) {
	for body, want := range map[string]Became{`{"outcome":"completed","output":{"a":1}}`: BecameCompleted, `{"outcome":"completed"}`: BecameCompleted,
		`{"outcome":"none"}`: BecameNone, `{"outcome":"unknown","more":[1]}`: BecameUnknown, `{}`: "", `null`: "", `"none"`: "", `{"outcome":"perhaps"}`: "", `{"outcome":3}`: ""} {
		r := &Reply{Body: []byte(body)}
		got, output, err := r.Became()
		if want == "" {
			if got != BecameUnknown || err == nil || err.Code != CodeBadCheck {
				t.Errorf("%s: %s, %v", body, got, err)
			}
			continue
		}
		if got != want || err != nil || (len(output) > 0) != (want == BecameCompleted) {
			t.Errorf("%s: %s %s, %v", body, got, output, err)
		}
	}
}

// TestNothingIsAskedOnceTheUndoHasBegun: a migration can add a check to a step whose undo was in error before its first
// attempt.
func TestNothingIsAskedOnceTheUndoHasBegun(t *testing.T) {
	task := &Task{Plan: NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "a", Check: &PlanUndo{}}}), Steps: []*Step{{Unknown: true, Run: Run{Attempt: 1}}}}
	if !task.NeedsCheck(0) {
		t.Error("nobody asks what became of an attempt with an unknown effect")
	}
	task.Steps[0].Undo = &Run{}
	if task.NeedsCheck(0) {
		t.Error("the undo has begun, and the effect is asked about")
	}
}

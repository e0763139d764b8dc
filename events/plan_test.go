package events

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestPlanSurvivesItsEncoding checks that a plan equals the one decoded from the log, where durations are whole
// milliseconds.
func TestPlanSurvivesItsEncoding(t *testing.T) {
	odd := Attempts{CompleteWithin: 1500*time.Millisecond + 1, MaxAttempts: 9, Backoff: 1900 * time.Microsecond, Factor: 100,
		Max: time.Minute + time.Microsecond, CoolDown: 1001 * time.Microsecond}
	p := NewPlan(OnErrorUndo, time.Minute+999*time.Microsecond, []PlanStep{
		{ID: "a", Agent: "x", Operation: "o", Attempts: odd, Undo: &PlanUndo{Agent: "x", Operation: "u", Attempts: odd}},
		{ID: "b", Needs: []int{0}, Agent: "x", Operation: "o", Attempts: odd},
	})
	read, err := decodePlan(p.raw)
	if err != nil {
		t.Fatal(err)
	}
	if p.CompleteWithin != read.CompleteWithin || !reflect.DeepEqual(p.Steps, read.Steps) {
		t.Errorf("made %+v\nread %+v", p, read)
	}
	if got := p.Steps[1].Attempts.Backoff; got != time.Millisecond {
		t.Errorf("a backoff of 1900us is %s", got)
	}
}

// TestPlanOfNamelessStepsIsNotRead checks that a plan with an unnamed step, or with two steps of one name, is refused,
// since events couldn't be assigned to a step.
func TestPlanOfNamelessStepsIsNotRead(t *testing.T) {
	for _, raw := range []string{
		`{"steps":[{"id":"a"},{"id":"a"}]}`,
		`{"steps":[{"id":""}]}`,
		`{"steps":[{"id":"a"},{}]}`,
	} {
		if p, err := decodePlan([]byte(raw)); err == nil {
			t.Errorf("%s is read as %+v", raw, p.Steps)
		}
	}
}

// TestPlanWhoseNeedsHaveNoEndIsNotRead checks that a plan with a cycle is refused, since following its needs would
// overflow the stack and end the process.
func TestPlanWhoseNeedsHaveNoEndIsNotRead(t *testing.T) {
	for raw, why := range map[string]string{
		`{"steps":[{"id":"a","needs":[0]}]}`: "step a needs itself",
		`{"steps":[{"id":"x"},{"id":"a","needs":[0,2]},{"id":"b","needs":[1]},{"id":"c","needs":[2]}]}`: "step a needs itself",
		`{"steps":[{"id":"a","needs":[1]}]}`:  "step a needs a step that isn't there",
		`{"steps":[{"id":"a","needs":[-1]}]}`: "step a needs a step that isn't there",
	} {
		if p, err := decodePlan([]byte(raw)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s is read as %+v: %v; want %s", raw, p, err, why)
		}
	}
	diamond := `{"steps":[{"id":"d","needs":[1,2,2]},{"id":"b","needs":[3]},{"id":"c","needs":[3]},{"id":"a"}]}`
	if _, err := decodePlan([]byte(diamond)); err != nil {
		t.Errorf("%s isn't read: %v", diamond, err)
	}
}

package scheduler

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// TestDerivedMatchesTheTask checks after each kind of event that the cache equals a new computation.
func TestDerivedMatchesTheTask(t *testing.T) {
	w := workflow.New("fan", 1).CompleteWithin(time.Hour).AttemptWithin(10 * time.Second).
		Step(workflow.Step{ID: "first", Agent: "a", Operation: "work", Input: "${ input }"})
	for i := range 6 {
		s := workflow.Step{ID: fmt.Sprint("step-", i), Agent: "a", Operation: "work", Needs: []string{"first"},
			Input: map[string]any{"of": "${ steps['first'].output }", "n": i}}
		switch i {
		case 1, 4:
			s.When = "${ false }"
		case 3:
			s.Agent = "missing"
		}
		w.Step(s)
	}
	d, err := w.Step(workflow.Step{ID: "last", Agent: "a", Operation: "work", Needs: []string{"step-1", "step-4"}, Input: "${ steps['step-1'].state }"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	c := &CompiledDefinitions{Rejected: func(key string, err error) { t.Fatalf("%s: %v", key, err) }}
	c.Apply(&events.Record{Key: []byte(d.Key()), Value: d.Stored()})
	env := &Env{Token: testToken, Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Namespace: ns, Epoch: 1, Definitions: c, DefinitionsRead: true, Requests: map[string]int32{"a": 4}}

	task := Decide(nil, &events.Submission{ID: "t", Workflow: "fan", Input: []byte(`{"total":7}`)}, events.Cause{}, env).Task
	x := &decider{env: env, now: env.Now, derived: derived{bytes: -1}}
	x.Task = task
	x.evaluationScope()
	x.derived.taskBytes(task)
	x.handleReply(&events.Reply{Task: "t", Ref: events.RequestRef{Step: "first", Kind: events.Do, Attempt: 1}, Token: testToken("t", events.RequestRef{Step: "first", Kind: events.Do, Attempt: 1}), Outcome: events.Completed, Body: []byte(`{"ok":true}`)})

	kinds := map[string]int{}
	for _, e := range x.Events {
		kinds[e.Fact.Type()]++
	}
	if len(kinds) < 4 || !x.derived.hasScope {
		t.Fatalf("the decision made only %v, and carries a scope: %v", kinds, x.derived.hasScope)
	}
	if got, want := x.derived.taskBytes(x.Task), x.Task.Bytes(); got != want {
		t.Errorf("it carries a size of %d bytes; the task holds %d", got, want)
	}
	carried := x.evaluationScope()
	x.derived.hasScope = false
	if computed := x.evaluationScope(); !reflect.DeepEqual(carried, computed) {
		t.Errorf("the cached scope is\n%+v\nwant\n%+v", carried, computed)
	}
}

package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// chainOf is the workflow a -> b -> c. Step b is released before it has run.
const chainOf = `workflow: w
version: 1
complete_within: 1m
on_error: hold
defaults: {complete_within: 10s, retry: {max_attempts: 1}}
steps:
  a: {agent: inventory, operation: o, undo: {operation: u}}
  b: {needs: [a], agent: payments, operation: o}
  c: {needs: [b], agent: shipping, operation: o, when: "WHEN", undo: {operation: u}}
  d: {needs: [c], agent: payments, operation: o}
---
> submit 1
> reply a/do/1 rejected
> release b completed 1
> resubmit
`

func played(t *testing.T, when, commands string) (s *script, out string) {
	s = newScript(t)
	return s, s.run(strings.Replace(chainOf, "WHEN", when, 1) + commands)
}

// TestReleasedStepWaitsForItsAncestors releases a step before it has run. Later steps still wait for earlier ones,
// since their conditions and inputs use the results.
func TestReleasedStepWaitsForItsAncestors(t *testing.T) {
	s, got := played(t, "${ steps.a.output != null }", "> state\n> reply a/do/2 completed 7\n> state\n")
	if !strings.Contains(got, "= processing failures=0 a:running b:completed c:pending d:pending\n") {
		t.Errorf("c starts with a, or is skipped:\n%s", got)
	}
	if !strings.HasSuffix(got, "= processing failures=0 a:completed b:completed c:running d:pending\n") {
		t.Errorf("c doesn't start after a:\n%s", got)
	}
	for _, c := range []string{"reply c/do/1 completed", "reply d/do/1 completed"} {
		s.command("w", strings.Fields(c), c)
	}
	if s.task.State != events.StateProcessed {
		t.Errorf("it ends %s", s.task.State)
	}
}

// TestFlowQueuesReleasedStepAfterItsAncestors checks that a worker queues only the step that waits for its agent. A
// later step is queued when all of its ancestors are done, in any way.
func TestFlowQueuesReleasedStepAfterItsAncestors(t *testing.T) {
	s, _ := played(t, "${ true }", "")
	f := newFlow(Capacity{Agents: map[string]int{"inventory": 1, "payments": 1, "shipping": 1}}, 0, 1)
	f.refreshTask(s.task, s.now, true)
	if n := len(f.agent("shipping").queue); n != 0 {
		t.Fatalf("%d steps wait for shipping before a is done", n)
	}
	env := &Env{Token: testToken, Now: s.now, Namespace: ns, Definitions: s.catalog, DefinitionsRead: true, Requests: s.requests, Epoch: 1, Slots: noSlots{}}
	in := &events.Reply{Task: "t", Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 2}, Token: testToken("t", events.RequestRef{Step: "a", Kind: events.Do, Attempt: 2}), Outcome: events.Completed, Body: []byte("1")}
	d := Decide(s.task.Clone(), in, events.Cause{Inbox: events.Replies, Offset: 99}, env)
	f.update(d.Task, d.Events, s.now)
	if n := len(f.agent("shipping").queue); n != 1 {
		t.Errorf("%d steps wait for shipping when a is done", n)
	}
}

// noSlots implements Slots if all agents are busy.
type noSlots struct{}

func (noSlots) Free(string, string, time.Time) int { return 0 }

func (noSlots) Waits(*events.Task, int, events.Kind) bool { return false }

// queued implements Slots with one step that is queued for an agent.
type queued struct {
	noSlots
	step int
}

func (q queued) Waits(_ *events.Task, step int, _ events.Kind) bool { return step == q.step }

// TestConditionOfAQueuedStep checks that the condition of a queued step isn't evaluated again for each input. With a
// thousand queued steps, each of a thousand replies would evaluate all of them. It is evaluated when the step starts.
func TestConditionOfAQueuedStep(t *testing.T) {
	s, _ := played(t, "${ steps.a.output / 0 == 1 }", "")
	of := map[bool]Slots{true: queued{step: 2}, false: noSlots{}}
	for waits, slots := range of {
		env := &Env{Token: testToken, Now: s.now, Namespace: ns, Definitions: s.catalog, DefinitionsRead: true, Requests: s.requests, Epoch: 1, Slots: slots}
		in := &events.Reply{Task: "t", Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 2}, Token: testToken("t", events.RequestRef{Step: "a", Kind: events.Do, Attempt: 2}), Outcome: events.Completed, Body: []byte("1")}
		d := Decide(s.task.Clone(), in, events.Cause{Inbox: events.Replies, Offset: 99}, env)
		if state := d.Task.Steps[2].State; (state == events.StepPending) != waits {
			t.Errorf("c waits: %v; it is %s", waits, state)
		}
		if !waits {
			continue
		}
		next := Start(d.Task, 2, events.Do, events.Cause{Inbox: events.Replies, Offset: 99}, env)
		if state := next.Task.Steps[2].State; state == events.StepPending || len(next.Records) > 0 && state == events.StepRunning {
			t.Errorf("when it is its turn c is %s", state)
		}
	}
}

// TestTriedStepIsNotSkipped checks that a step with an earlier attempt isn't skipped, whatever its condition is now. A
// skipped step would never be undone.
func TestTriedStepIsNotSkipped(t *testing.T) {
	s, _ := played(t, "${ true }", "")
	s.command("w", strings.Fields("reply a/do/2 completed 1"), "reply a/do/2 completed 1")
	s.command("w", []string{"advance", "11s"}, "")
	s.due() // c times out, and is held
	s.apply(strings.Replace(strings.Split(chainOf, "---")[0], "WHEN", "${ false }", 1))
	s.command("w", []string{"resubmit"}, "resubmit")
	if c := s.task.Steps[2]; c.State != events.StepRunning || c.Attempt != 2 {
		t.Errorf("c is %s after attempt %d", c.State, c.Attempt)
	}
}

// TestConditionIsEvaluatedOnce checks that a decision evaluates a condition once, however many other steps are skipped.
// Otherwise forty queued steps next to a chain of forty skipped ones would take too long.
func TestConditionIsEvaluatedOnce(t *testing.T) {
	const n = 40
	b := workflow.New("w", 1).CompleteWithin(time.Minute).AttemptWithin(time.Second)
	for i := range n {
		b.Step(workflow.Step{ID: fmt.Sprint("waits-", i), Agent: "inventory", Operation: "do", When: "${ input.items.all(i, i > 0) }"})
	}
	for i := range n { // the definition lists the steps in the reverse order of their needs
		s := workflow.Step{ID: fmt.Sprint("skipped-", i), Agent: "inventory", Operation: "do", When: "${ !input.items.all(i, i > 0) }"}
		if i+1 < n {
			s.Needs = []string{fmt.Sprint("skipped-", i+1)}
		}
		b.Step(s)
	}
	def, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := &CompiledDefinitions{Rejected: func(key string, err error) { t.Fatalf("%s: %v", key, err) }}
	c.Apply(&events.Record{Key: []byte(def.Key()), Value: def.Stored()})
	in := &events.Submission{ID: "t", Workflow: "w", Input: []byte(`{"items":[` + strings.Repeat("1,", 5000) + `1]}`)}
	env := &Env{Token: testToken, Now: time.Unix(0, 0), Namespace: ns, Definitions: c, DefinitionsRead: true, Requests: map[string]int32{"inventory": 1}, Epoch: 1, Slots: noSlots{}}
	d := Decide(nil, in, events.Cause{}, env)
	count := map[events.StepState]int{}
	for _, s := range d.Task.Steps {
		count[s.State]++
	}
	if count[events.StepPending] != n || count[events.StepSkipped] != n {
		t.Errorf("the task is %s, its steps %v: %v", d.Task.State, count, d.Task.Error)
	}
}

package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// These are bodies of w/1 that were applied one after another.
const (
	bodyFirst = "workflow: w\nversion: 1\ncomplete_within: 1m\non_error: hold\ndefaults: {complete_within: 1s}\nsteps:\n" +
		"  a: {agent: inventory, operation: o}\n  b: {needs: [a], agent: payments, operation: p, input: {of: b}, undo: {operation: u, input: {of: b}}}\n"
	bodyShort   = "workflow: w\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 1s}\nsteps:\n  a: {agent: inventory, operation: o}\n"
	bodyOrdered = "workflow: w\nversion: 1\ncomplete_within: 1m\ndefaults: {complete_within: 1s}\nsteps:\n" +
		"  b: {needs: [a], agent: payments, operation: p, input: {of: b}, undo: {operation: u}}\n  a: {agent: inventory, operation: o, input: {of: a}}\n"
)

// apply replaces the definitions by one body, as in a scheduler that has just started.
func (s *script) apply(body string) {
	d, err := workflow.ParseYAML("workflow.yaml", []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	s.catalog = &CompiledDefinitions{Rejected: func(key string, err error) { s.t.Fatalf("%s: %v", key, err) }}
	s.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
}

// TestDefinitionWithOtherSteps checks that a task continues only with the definition that it began with. If another
// body has its name and version, the task is held. With fewer steps it would end early. With other steps a step would
// receive the wrong input.
func TestDefinitionWithOtherSteps(t *testing.T) {
	for what, other := range map[string]string{
		"fewer steps":   bodyShort,
		"another order": bodyOrdered,
		"needs":         strings.Replace(bodyFirst, "needs: [a], ", "", 1),
		"agent":         strings.Replace(bodyFirst, "agent: payments", "agent: shipping", 1),
		"operation":     strings.Replace(bodyFirst, "operation: p", "operation: q", 1),
		"undo":          strings.Replace(bodyFirst, "undo: {operation: u", "undo: {operation: v", 1),
		"no undo":       strings.Replace(bodyFirst, ", undo: {operation: u, input: {of: b}}", "", 1),
	} {
		s := newScript(t)
		s.run(bodyFirst + "\n---\n> submit 1\n")
		s.apply(other)
		s.command("w", strings.Fields("reply a/do/1 completed"), "reply a/do/1 completed")
		s.state()
		if got := s.out.String(); !strings.Contains(got, "= error failures=0 a:completed b:error") ||
			!strings.Contains(got, "alert no_such_workflow b: the definition w/1 differs from the one that the task began with") {
			t.Errorf("%s:\n%s", what, got)
		}
		s.apply(bodyFirst)
		s.command("w", []string{"resubmit"}, "resubmit")
		if s.state(); !strings.Contains(s.out.String(), `= processing failures=0 a:completed b:running`) {
			t.Errorf("%s: with the first body again:\n%s", what, s.out.String())
		}
		s.apply(other)
		s.command("w", strings.Fields("reply b/do/1 completed"), "reply b/do/1 completed")
		if s.state(); !strings.Contains(s.out.String(), "= error failures=0 a:completed b:completed") {
			t.Errorf("%s: the task's output:\n%s", what, s.out.String())
		}
	}
}

// TestDefinitionWithTheSameSteps checks that a body that differs only in times and attempts counts as the same, and so
// does one that another build encoded.
func TestDefinitionWithTheSameSteps(t *testing.T) {
	s := newScript(t)
	s.run(bodyFirst + "\n---\n> submit 1\n")
	s.apply(strings.Replace(bodyFirst, "complete_within: 1s", "complete_within: 2s, retry: {max_attempts: 9}", 1))
	s.command("w", strings.Fields("reply a/do/1 completed"), "reply a/do/1 completed")
	s.command("w", strings.Fields("reply b/do/1 completed"), "reply b/do/1 completed")
	if s.state(); !strings.Contains(s.out.String(), "= processed") {
		t.Errorf("got:\n%s", s.out.String())
	}
	if by := s.task.Steps[1].CompleteBy; !by.Equal(s.start.Add(time.Second)) {
		t.Errorf("the attempt was given until %s: not by the plan", by)
	}
}

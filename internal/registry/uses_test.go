package registry

import (
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

func TestUsersOf(t *testing.T) {
	parse := func(text string) Definition {
		t.Helper()
		d, err := workflow.ParseYAML("test", []byte("complete_within: 1h\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return Definition{Workflow: d.Name, Version: d.Version, Definition: d}
	}
	const steps = "\nsteps: {a: {wait: 1m}}"
	list := []Definition{parse("workflow: bill\nversion: 1" + steps), parse("workflow: bill\nversion: 2" + steps), parse("workflow: trip\nversion: 1\nsteps:\n  pay: {workflow: bill, version: 1, complete_within: 1m}\n  tell: {workflow: mail, complete_within: 1m}"),
		parse("workflow: mail\nversion: 1" + steps)}
	named := []Named{{NamedDefinition: events.NamedDefinition{Kind: events.ScheduleDefinition, Name: "nightly", Body: []byte(`{"submit":{"workflow":"bill"}}`)}},
		{NamedDefinition: events.NamedDefinition{Kind: events.IntakeDefinition, Name: "shop", Body: []byte(`{"submit":{"workflow":"bill","version":2}}`)}},
		{NamedDefinition: events.NamedDefinition{Kind: events.IntakeDefinition, Name: "paid", Body: []byte(`{"signal":{"task":"x"}}`)}}}
	uses := append(usesOfSteps(list), usesOfNamed(named)...)
	for what, want := range map[string]string{"bill/1": "step pay of trip/1", "bill/2": "intake shop", "mail/1": "step tell of trip/1", "trip/1": ""} {
		d := Find(list, what)
		if got := strings.Join(UsersOf(uses, list, d.Workflow, d.Version), ", "); got != want {
			t.Errorf("%s is used by %q, want %q", what, got, want)
		}
	}
	if notes := Missing(uses, list); len(notes) > 0 {
		t.Errorf("nothing is missing: %q", notes)
	}
	for _, of := range []struct {
		left []Definition
		want string
	}{{nil, "schedule nightly names bill, which isn't applied: its tasks are refused; intake shop names bill/2, which isn't applied: its tasks are refused"},
		{list[:1], "intake shop names bill/2, which isn't applied: its tasks are refused"}} {
		if got := strings.Join(Missing(usesOfNamed(named), of.left), "; "); got != of.want {
			t.Errorf("missing %q, want %q", got, of.want)
		}
	}
	if notes := Deprecated(uses, list); len(notes) > 0 {
		t.Errorf("nothing is deprecated: %q", notes)
	}
	for i := range list {
		if d := &list[i]; d.Workflow == "bill" {
			d.Deprecated = &events.DeprecationView{Why: "use cash"}
		}
	}
	if got, want := strings.Join(Deprecated(uses, list), "; "), "step pay of trip/1 names bill/1, which is deprecated: use cash; "+
		"schedule nightly names bill, all of whose versions are deprecated: its tasks are refused; intake shop names bill/2, which is deprecated: use cash"; got != want {
		t.Errorf("deprecated %q, want %q", got, want)
	}
	list[1].Deprecated, list[0].Deprecated = nil, nil
	left := list[1:]
	if got := strings.Join(UsersOf(append(usesOfSteps(left), usesOfNamed(named)...), left, "bill", 2), ", "); got != "schedule nightly, intake shop" {
		t.Errorf("the last version is used by %q", got)
	}
}

package registry

import (
	"bytes"
	"errors"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// TestNamed: schedules and intakes are applied, listed, paused, resumed and deleted. A pause outlives a change, and a change
// that keeps the rule keeps the instant since which it holds.
func TestNamed(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	createTopics(t, admin)
	const kind = events.ScheduleDefinition
	body := func(rule, rest string) []byte { return []byte(`{"rule":"` + rule + `","rest":"` + rest + `"}`) }
	rule := func(b []byte) []byte { return bytes.Split(b, []byte(","))[0] }
	same := func(a, b []byte) bool { return bytes.Equal(rule(a), rule(b)) }
	by := events.By{Who: "olga", Why: "a test"}
	apply := func(name string, body []byte, want Result) {
		t.Helper()
		if got, err := ApplyNamed(t.Context(), cfg, events.NamedDefinition{Kind: kind, Name: name, Body: body, By: by}, same); got != want || err != nil {
			t.Fatalf("%s: %s, %v", body, got, err)
		}
	}
	find := func(kind events.DefinitionKind, name string) *Named {
		t.Helper()
		list, err := ListNamed(t.Context(), admin, cfg.Namespace, kind)
		if err != nil {
			t.Fatal(err)
		}
		return FindNamed(list, name)
	}
	apply("b", body("1", "x"), Created)
	apply("a", body("1", "x"), Created)
	apply("a", body("1", "x"), Unchanged)
	first := find(kind, "a")
	if first == nil || first.Fault != "" || first.By != by || first.Since.IsZero() || !first.Since.Equal(first.At) || find(events.IntakeDefinition, "a") != nil {
		t.Fatalf("%+v", first)
	}
	apply("a", body("1", "y"), Changed)
	if d := find(kind, "a"); !d.Since.Equal(first.Since) || string(d.Body) != string(body("1", "y")) {
		t.Errorf("%+v", d)
	}
	for _, want := range []Result{Paused, Unchanged} {
		if got, err := PauseNamed(t.Context(), cfg, kind, "a", by); got != want || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	apply("a", body("2", "y"), Changed)
	if d := find(kind, "a"); d.Paused == nil || *d.Paused != by || !d.Since.Equal(d.At) {
		t.Errorf("%+v", d)
	}
	for _, want := range []Result{Resumed, Unchanged} {
		if got, err := ResumeNamed(t.Context(), cfg, kind, "a", by); got != want || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	if d := find(kind, "a"); d.Paused != nil || !d.Since.Equal(d.At) || string(d.Body) != string(body("2", "y")) {
		t.Errorf("%+v", d)
	}
	if _, err := DeleteNamed(t.Context(), cfg, kind, "a", by); err != nil || find(kind, "a") != nil || find(kind, "b") == nil {
		t.Errorf("%v", err)
	}
	if _, err := PauseNamed(t.Context(), cfg, kind, "a", by); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if list, err := ListAll(t.Context(), admin, cfg.Namespace); err != nil || len(list) > 0 {
		t.Errorf("workflows: %v, %v", list, err)
	}
}

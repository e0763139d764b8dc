package intake

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// A record that couldn't be mapped is mapped by the intake of today.
func TestRedrive(t *testing.T) {
	const first = "intake: orders\ntopic: shop.orders\nsubmit: {workflow: order, id: '${ value.order }', labels: {region: '${ headers.region }'}}\n"
	letter := program(t, first).Map(recordOf(`{"id":"o-1"}`, events.Header{Key: "region", Value: []byte("eu")}), "abc", nil, nil).Record
	redrive := func(yaml string, letter *events.Record) (events.Record, bool, error) {
		p := program(t, yaml)
		return Redrive(t.Context(), map[string]*Program{p.Definition.Name: p}, nil, letter)
	}
	if _, ours, err := redrive(first, &letter); !ours || err == nil || !strings.Contains(err.Error(), "dead letter again: unmappable") {
		t.Errorf("got %v, %v", ours, err)
	}
	fixed := strings.Replace(first, "value.order", "value.id", 1)
	got, ours, err := redrive(fixed, &letter)
	if err != nil || !ours {
		t.Fatal(ours, err)
	}
	want := program(t, fixed).Map(recordOf(`{"id":"o-1"}`, events.Header{Key: "region", Value: []byte("eu")}), "abc", nil, nil).Record
	if string(got.Value) != string(want.Value) || events.IntakeOf(&got).String() != "orders/shop.orders/abc/3/17" {
		t.Errorf("got %s of %s, want %s", got.Value, events.IntakeOf(&got), want.Value)
	}
	if _, _, err := redrive(strings.Replace(fixed, "submit", "when: '${ false }'\nsubmit", 1), &letter); err == nil || !strings.Contains(err.Error(), "condition excludes it") {
		t.Errorf("got %v", err)
	}
	if _, _, err := Redrive(t.Context(), nil, nil, &letter); err == nil || !strings.Contains(err.Error(), "no intake orders") {
		t.Errorf("got %v", err)
	}
	// The dead letter of a submission is the scheduler's.
	refused := events.Deadletter(events.DefaultNamespace, "test", &want, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
	if _, ours, err := redrive(fixed, &refused); ours || err != nil {
		t.Errorf("got %v, %v", ours, err)
	}
	cut := letter
	cut.Value = cut.Value[:3]
	if _, ours, err := redrive(fixed, &cut); !ours || err == nil {
		t.Errorf("got %v, %v", ours, err)
	}
}

// An empty value isn't a missing one: it is decoded, as the intake does, and only a missing one isn't.
func TestRedriveOfAnEmptyAvroValue(t *testing.T) {
	p := program(t, "intake: orders\ntopic: shop.orders\nformat: avro\nsubmit: {workflow: order, id: '${ value.id }'}\n")
	for name, value := range map[string][]byte{"empty": {}, "missing": nil} {
		r := recordOf("")
		r.Value = value
		letter := p.Deadletter(r, "abc", &events.Unusable{Reason: events.ReasonUnmappable})
		decoded := false
		_, ours, err := Redrive(t.Context(), map[string]*Program{"orders": p}, func(context.Context, []byte) (json.RawMessage, *events.Unusable, error) {
			decoded = true
			return nil, &events.Unusable{Reason: events.ReasonUnmappable}, nil
		}, &letter)
		if !ours || err == nil || decoded != (value != nil) {
			t.Errorf("%s: %v, %v; decoded: %v", name, ours, err, decoded)
		}
	}
}

package intake

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
)

// TestSchema: the published schema has exactly the fields that the parser knows, and accepts and refuses what the parser
// does.
func TestSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema, &s); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		schema *jsonschema.Schema
		fields []string
	}{{&s, definitionFields}, {s.Properties["submit"], submitFields}, {s.Properties["signal"], signalFields}} {
		for _, name := range x.fields {
			if x.schema.Properties[name] == nil {
				t.Errorf("the schema lacks %s", name)
			}
		}
		for name := range x.schema.Properties {
			if !slices.Contains(x.fields, name) {
				t.Errorf("the schema has %s, which the parser doesn't know", name)
			}
		}
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../docs/examples/shop-orders/shop-orders.intake.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(example),
		"intake: paid\ntopic: shop.payments\nformat: cloudevents\nstart: latest\nsignal: {task: '${ value.order }', name: paid}",
		"intake: paid\ntopic: shop.payments",
		"intake: paid\ntopic: shop.payments\nformat: xml\nsignal: {task: a, name: paid}",
		"intake: Paid\ntopic: shop.payments\nsignal: {task: a, name: paid}",
		"intake: paid\ntopic: shop.payments\nsignal: {task: a, name: paid, by: me}",
		"intake: paid\ntopic: shop.payments\nsubmit: {workflow: order, id: same}",
		"intake: paid\ntopic: shop.payments\nsubmit: {workflow: order, id: '${ key }'}\nsignal: {task: a, name: paid}",
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		_, parsed := Parse("x.yaml", []byte(text), events.DefaultNamespace)
		if err := resolved.Validate(value); (err == nil) != (parsed == nil) {
			t.Errorf("%s\nthe schema says %v, and the parser %v", text, err, parsed)
		}
	}
}

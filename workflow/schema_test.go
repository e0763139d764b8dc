package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// The published schema has exactly the fields that the decoder knows. Those are the fields of the structs.
func TestSchemaListsTheFields(t *testing.T) {
	type object struct {
		Properties           map[string]json.RawMessage
		AdditionalProperties json.RawMessage
		Defs                 map[string]json.RawMessage `json:"$defs"`
	}
	parse := func(raw []byte) (o object) {
		t.Helper()
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	root := parse(Schema())
	for _, c := range []struct {
		name   string
		schema object
		fields []string
	}{
		{"definition", root, append(fieldsOf[Definition](), "source")},
		{"defaults", parse(root.Properties["defaults"]), fieldsOf[Defaults]()},
		{"step", parse(root.Defs["step"]), fieldsOf[Step]()},
		{"undo", parse(root.Defs["undo"]), fieldsOf[Undo]()},
		{"retry", parse(root.Defs["retry"]), fieldsOf[Retry]()},
		{"check", parse(root.Defs["check"]), fieldsOf[Check]()},
		{"repeat", parse(root.Defs["repeat"]), fieldsOf[Repeat]()},
	} {
		got, want := slices.Sorted(maps.Keys(c.schema.Properties)), slices.Sorted(slices.Values(c.fields))
		if !slices.Equal(got, want) {
			t.Errorf("the schema's %s lists %v, the struct has %v: change the one that is wrong", c.name, got, want)
		}
		if string(c.schema.AdditionalProperties) != "false" {
			t.Errorf("the schema's %s admits unknown fields, the decoder doesn't", c.name)
		}
	}
}

func TestSchemaHasTheBounds(t *testing.T) {
	var bounds struct {
		Properties struct {
			Version struct{ Maximum int }
			Steps   struct{ MaxProperties int }
		}
		Defs struct {
			Name, Operation struct{ Pattern string }
			Step            struct {
				Properties struct{ Needs struct{ MaxItems int } }
			}
			Repeat struct {
				Properties struct{ Max struct{ Maximum int } }
			}
			Retry struct {
				Properties struct {
					Attempts struct{ Maximum int } `json:"max_attempts"`
					Factor   struct{ Maximum int }
				}
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &bounds); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"version", bounds.Properties.Version.Maximum, MaxVersion},
		{"steps", bounds.Properties.Steps.MaxProperties, MaxSteps},
		{"needs", bounds.Defs.Step.Properties.Needs.MaxItems, MaxNeeds},
		{"max_attempts", bounds.Defs.Retry.Properties.Attempts.Maximum, MaxAttempts},
		{"repeat.max", bounds.Defs.Repeat.Properties.Max.Maximum, MaxRepeats},
		{"factor", bounds.Defs.Retry.Properties.Factor.Maximum, MaxFactor},
		{"name", bounds.Defs.Name.Pattern, namePattern.String()},
		{"operation", bounds.Defs.Operation.Pattern, operationPattern.String()},
	} {
		if c.got != c.want {
			t.Errorf("the schema's bound of %s is %v, the package's is %v", c.what, c.got, c.want)
		}
	}
}

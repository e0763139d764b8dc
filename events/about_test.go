package events

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestAbout checks that the About of each fact agrees with its fields and its type.
func TestAbout(t *testing.T) {
	for _, f := range sampleFacts() {
		a, v := f.About(), reflect.ValueOf(f).Elem()
		of := map[bool]string{true: "step", false: "task"}[a.OfStep()]
		if OfPartition(f) {
			of = "partition"
		} else if a.Kind != Do && a.OfStep() {
			of = string(a.Kind)
		} else if a.StepKind != CallStep {
			of = string(a.StepKind)
		}
		if a.OfStep() && a.StepKind == WorkflowStep {
			of = map[Kind]string{Do: "child", Undo: "withdrawal"}[a.Kind]
			a.Verb = Verb(strings.TrimPrefix(string(a.Verb), "child_"))
		}
		if a.OfStep() && a.StepKind == ItemsStep {
			if !strings.HasPrefix(f.Type(), "waybill.item") {
				t.Errorf("%s is about items", f.Type())
			}
		} else if want := "waybill." + of + "." + string(a.Verb) + ".v1"; f.Type() != want {
			t.Errorf("%s is about %s", f.Type(), want)
		}
		if step := v.FieldByName("Step"); step.IsValid() != a.OfStep() || step.IsValid() && step.String() != a.Step {
			t.Errorf("%s is about step %q", f.Type(), a.Step)
		}
		if n := v.FieldByName("Attempt"); n.IsValid() != (a.Phase != PhaseNone) || n.IsValid() && int(n.Int()) != a.Attempt {
			t.Errorf("%s is about attempt %d in phase %d", f.Type(), a.Attempt, a.Phase)
		}
		for i := range v.NumField() {
			switch p := v.Field(i).Addr().Interface().(type) {
			case *json.RawMessage:
				if a.Raw != p {
					t.Errorf("%s doesn't say that it has JSON in %s", f.Type(), v.Type().Field(i).Name)
				}
			case **Error:
				if a.Failure != p {
					t.Errorf("%s doesn't say that it has an error", f.Type())
				}
			case *By:
				if a.By != p {
					t.Errorf("%s doesn't say who asked for it", f.Type())
				}
			}
		}
		if strings.HasPrefix(f.Type(), "waybill.step.") && a.Disarms == DisarmsNone {
			t.Errorf("%s ends no timer", f.Type())
		}
	}
}

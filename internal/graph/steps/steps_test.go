package steps

import (
	"os"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// A definition and the plan that is made from it have the same graph: the same steps, kinds and needs, and the same
// drawing.
func TestPlanAndDefinition(t *testing.T) {
	for _, file := range []string{"../../../workflow/order.yaml", "../../../docs/examples/waits.yaml", "../../../docs/examples/parcel.yaml", "../../../docs/examples/polls.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := workflow.ParseYAML(file, text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := workflow.Compile(d)
		if err != nil {
			t.Fatal(err)
		}
		a, b := OfDefinition(d), OfPlan(scheduler.PlanOf(p))
		for i := range a {
			slices.Sort(a[i].Needs)
			slices.Sort(b[i].Needs)
			if a[i].ID != b[i].ID || a[i].Kind != b[i].Kind || !slices.Equal(a[i].Needs, b[i].Needs) || a[i].Undo != b[i].Undo || a[i].Pivot != b[i].Pivot {
				t.Errorf("%s: %+v of the definition, %+v of the plan", file, a[i], b[i])
			}
			if a[i].What == "" || a[i].Kind == "call" && a[i].What != b[i].What {
				t.Errorf("%s: step %s does %q, by its plan %q", file, a[i].ID, a[i].What, b[i].What)
			}
		}
		if d := graph.Draw(a, false); len(d.Boxes) != len(a) {
			t.Errorf("%s: %d boxes of %d steps", file, len(d.Boxes), len(a))
		}
	}
}

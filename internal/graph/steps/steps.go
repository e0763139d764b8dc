// Package steps describes the steps of a workflow's definition, or of a task's plan, for a drawing.
package steps

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/graph"
	"github.com/waybill-run/waybill/workflow"
)

// OfDefinition returns the steps of a definition.
func OfDefinition(d *workflow.Definition) []graph.Vertex {
	vs := make([]graph.Vertex, len(d.Steps))
	for i := range d.Steps {
		s := &d.Steps[i]
		l := d.Label(i)
		vs[i] = graph.Vertex{ID: s.ID, Kind: s.StepKind().String(), Needs: append([]string{}, s.Needs...), What: l.What, Notes: l.Notes, When: l.When,
			Undo: s.Undo != nil, Pivot: s.Pivot}
	}
	return vs
}

// OfPlan returns the steps of a plan. A plan has no conditions.
func OfPlan(p *events.Plan) []graph.Vertex {
	vs := make([]graph.Vertex, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		v := graph.Vertex{ID: s.ID, Kind: s.StepKind.String(), Needs: []string{}, Undo: s.Undo != nil, Pivot: s.Pivot}
		for _, n := range s.Needs {
			if n >= 0 && n < len(p.Steps) {
				v.Needs = append(v.Needs, p.Steps[n].ID)
			}
		}
		switch {
		case s.Agent != "":
			v.What = s.Agent + "." + s.Operation
		case s.Signal != "":
			v.What = "signal " + s.Signal
		case s.Workflow != "":
			v.What = "workflow " + s.Workflow
		}
		if within := s.Attempts.CompleteWithin; within > 0 {
			v.Notes = append(v.Notes, "within "+within.Round(time.Millisecond).String())
		}
		if n := s.Attempts.MaxAttempts; n > 1 {
			v.Notes = append(v.Notes, fmt.Sprintf("%d attempts", n))
		}
		if s.Check != nil {
			v.Notes = append(v.Notes, "check "+s.Check.Agent+"."+s.Check.Operation)
		}
		if s.Undo != nil && s.Undo.Agent != "" { // the withdrawal of a child has none
			v.Notes = append(v.Notes, "undo "+s.Undo.Agent+"."+s.Undo.Operation)
		}
		vs[i] = v
	}
	return vs
}

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/graph/steps"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// ErrVersionExists is wrapped by errors of Cluster.ApplyDefinition if the version has another body. The error says which version is
// free.
var ErrVersionExists = errors.New("a version never changes")

// draftFile is the name of a text in its faults.
const draftFile = "definition"

type (
	validateRequest struct{ Body consoleapi.DefinitionDraft }
	applyRequest    struct{ Body consoleapi.ApplyCommand }
)

// validate checks a definition as `waybill workflow validate` does, and compares it with the newest version. It writes
// nothing, so a viewer may do it.
func (c *call) validate(in *validateRequest) (*consoleapi.DefinitionCheck, error) {
	d, err := scheduler.ParseDefinition(draftFile, []byte(in.Body.Definition))
	if err != nil {
		return &consoleapi.DefinitionCheck{Faults: describeFaults(err)}, nil
	}
	if err := c.readWorkflows(d.Name); err != nil {
		return nil, err
	}
	v := &consoleapi.DefinitionCheck{Faults: []consoleapi.DefinitionFault{}, Applied: "no",
		Definition: DescribeDefinition(d, false, c.drawings.of(steps.OfDefinition(d), false))}
	newest := 0
	for _, w := range c.cfg.Cluster.Workflows() {
		if w.Name == d.Name {
			newest = max(newest, w.Version)
		}
	}
	v.NextVersion = newest + 1
	if same, _ := c.cfg.Cluster.Definition(d.Name, d.Version); same != nil {
		v.Applied = "other"
		if string(same.JSON()) == string(d.JSON()) {
			v.Applied = "same"
		}
	}
	if before, _ := c.cfg.Cluster.Definition(d.Name, newest); before != nil {
		v.Diff = CompareDefinitions(before, d)
	}
	return v, nil
}

// readWorkflows reads the definitions to their end.
func (c *call) readWorkflows(name string) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.indexed)
	defer cancel()
	if err := c.cfg.Cluster.ReadWorkflows(ctx); err != nil {
		return unavailable("can't read the versions of workflow %q: %v", consoleapi.Printable(name), err)
	}
	return nil
}

// describeFaults lists the faults of a definition.
func describeFaults(err error) []consoleapi.DefinitionFault {
	all, ok := errors.AsType[workflow.Errors](err)
	if !ok {
		return []consoleapi.DefinitionFault{{What: consoleapi.Visible(err.Error())}}
	}
	list := make([]consoleapi.DefinitionFault, len(all))
	for i, f := range all {
		list[i] = consoleapi.DefinitionFault{Line: f.Line, Column: f.Column, Path: consoleapi.Visible(f.Path), What: consoleapi.Visible(f.What), Fix: consoleapi.Visible(f.Fix)}
	}
	return list
}

// apply writes a definition to the log, as `waybill workflow apply` does. Sending it again has no second effect.
func (c *call) apply(in *applyRequest) (*consoleapi.AppliedDefinition, error) {
	if in.Body.Reason == "" || len(in.Body.Reason) > events.MaxWhyBytes {
		return nil, badRequest(`"reason" is missing or has more than %d bytes: it is written to the log`, events.MaxWhyBytes)
	}
	d, err := scheduler.ParseDefinition(draftFile, []byte(in.Body.Definition))
	if err != nil {
		return nil, unprocessable("the definition can't be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.timeouts.control)
	defer cancel()
	existed, err := c.cfg.Cluster.ApplyDefinition(ctx, d, c.operatorOf(&consoleapi.CommandBody{Reason: in.Body.Reason}))
	switch {
	case errors.Is(err, ErrVersionExists):
		return nil, versionExists("%v", err)
	case err != nil:
		return nil, unavailable("%s may not have been applied: %v; send it again: that has no second effect", d.Key(), err)
	}
	done := &consoleapi.AppliedDefinition{Workflow: d.Name, Version: d.Version, Result: consoleapi.ResultUnchanged, Agents: append([]string{}, d.Agents()...)}
	if !existed {
		done.Result, c.status = consoleapi.ResultApplied, http.StatusCreated
	}
	_ = c.readWorkflows(d.Name) // the next list has it; if it fails, a later one has
	return done, nil
}

// compileDraft compiles the definition of a dry run.
func compileDraft(text string) (*workflow.Program, error) {
	d, err := scheduler.ParseDefinition(draftFile, []byte(text))
	if err != nil {
		return nil, unprocessable("the definition can't be used: %v", err)
	}
	program, err := workflow.Compile(d)
	if err != nil {
		return nil, fmt.Errorf("compile %s, which was checked: %w", d.Key(), err)
	}
	return program, nil
}

package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/registry"
)

// usedWorkflow is a version of a workflow that can't be deleted.
type usedWorkflow struct {
	Workflow string   `json:"workflow"`
	Version  int      `json:"version"`
	Open     int64    `json:"open"` // tasks
	Held     int64    `json:"held"` // of them
	UsedBy   []string `json:"used_by"`
}

// runWorkflowsInUse lists the versions that open tasks have, or that something in the log starts tasks of.
func runWorkflowsInUse(cmd *cobra.Command, t *tool, api apiFlags) error {
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	list, uses, err := l.definitionsAndUses(cmd.Context())
	if err != nil {
		return err
	}
	q := queryFlags{api: api}
	return q.query(cmd, t, indexAll, func(c *apiClient) error {
		var all consoleapi.WorkflowList
		if err := c.Get(cmd.Context(), "/workflows", nil, &all); err != nil {
			return err
		}
		return printList(&t.output, cmd.OutOrStdout(), "WORKFLOW VERSION OPEN HELD USED-BY", inUse(&all, list, uses), func(w usedWorkflow) []string {
			return []string{w.Workflow, strconv.Itoa(w.Version), strconv.FormatInt(w.Open, 10), strconv.FormatInt(w.Held, 10), dash(strings.Join(w.UsedBy, ", "))}
		})
	})
}

func inUse(all *consoleapi.WorkflowList, list []registry.Definition, uses []registry.Use) []usedWorkflow {
	used := []usedWorkflow{}
	for i := range all.Workflows {
		w := &all.Workflows[i]
		u := usedWorkflow{Workflow: w.Workflow, Version: w.Version, Held: w.Tasks[events.StateError], UsedBy: append([]string{}, registry.UsersOf(uses, list, w.Workflow, w.Version)...)}
		for state, n := range w.Tasks {
			if !state.Terminal() {
				u.Open += n
			}
		}
		if u.Open > 0 || len(u.UsedBy) > 0 {
			used = append(used, u)
		}
	}
	return used
}

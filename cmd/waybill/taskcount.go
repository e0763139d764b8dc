package main

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// stateCount is the number of tasks in a state.
type stateCount struct {
	State events.TaskState `json:"state"`
	Tasks int64            `json:"tasks"`
}

// askCounts prints the number of tasks that match, by state.
func (o *taskListOptions) askCounts(cmd *cobra.Command, c *apiClient, from time.Time) error {
	count := o.countByList
	counted := consoleapi.Filter{States: o.states, Workflow: o.workflow}
	if c.local == nil && o.filter(from).String() == counted.String() {
		count = o.countByWorkflow
	}
	counts, partial, err := count(cmd, c, from)
	if err != nil {
		return err
	}
	var list []stateCount
	total := int64(0)
	for _, st := range events.TaskStates {
		if len(o.states) == 0 || slices.Contains(o.states, string(st)) {
			list = append(list, stateCount{st, counts[st]})
			total += counts[st]
		}
	}
	if o.format == formatTable {
		list = append(list, stateCount{"total", total})
	}
	err = printList(&o.output, cmd.OutOrStdout(), "STATE TASKS", list, func(n stateCount) []string {
		return []string{stateText(n.State), strconv.FormatInt(n.Tasks, 10)}
	})
	return cmp.Or(err, partial)
}

// countByWorkflow returns the counters of the index, which it has for each workflow and state.
func (o *taskListOptions) countByWorkflow(cmd *cobra.Command, c *apiClient, _ time.Time) (counts map[events.TaskState]int64, partial, err error) {
	// The counters are as of what the index has applied: a list waits for the end of the log.
	atEnd := consoleapi.AtLogEnd()
	atEnd.Set("page_size", "1")
	var page consoleapi.TaskPage
	if err := c.Get(cmd.Context(), "/tasks", atEnd, &page); err != nil {
		return nil, nil, err
	}
	var workflows consoleapi.WorkflowList
	if err := c.Get(cmd.Context(), "/workflows", url.Values{}, &workflows); err != nil {
		return nil, nil, err
	}
	var missing incompletePartitions
	if err := missing.add(c, append(page.Incomplete, workflows.Incomplete...)); err != nil {
		return nil, nil, err
	}
	counts = map[events.TaskState]int64{}
	name, version, _ := strings.Cut(o.workflow, "/")
	for _, w := range workflows.Workflows {
		if name != "" && (name != w.Workflow || version != "" && version != strconv.Itoa(w.Version)) {
			continue
		}
		for state, n := range w.Tasks {
			counts[state] += n
		}
	}
	return counts, missing.partialError(), nil
}

// countByList counts the tasks of a list.
func (o *taskListOptions) countByList(cmd *cobra.Command, c *apiClient, from time.Time) (counts map[events.TaskState]int64, partial, err error) {
	left, err := c.findLeftOut(cmd.Context(), cmd.ErrOrStderr(), func(id string, t *events.Task) bool { return o.mayShow(id, t, from) })
	if err != nil {
		return nil, nil, err
	}
	counts = map[events.TaskState]int64{}
	var missing incompletePartitions
	_, err = c.Tasks(cmd.Context(), o.filter(from), 0, func(page *consoleapi.TaskPage) error {
		for i := range page.Tasks {
			if !left.Contains(page.Tasks[i].ID) {
				counts[page.Tasks[i].State]++
			}
		}
		return missing.add(c, page.Incomplete)
	})
	return counts, cmp.Or(missing.partialError(), leftOutError(left)), err
}

package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
)

// taskLines are the timeline of one task of several.
type taskLines struct {
	Task  string         `json:"task"`
	Lines []timelineLine `json:"lines"`
}

// taskLine is a line of one task of several.
type taskLine struct {
	Task string `json:"task"`
	timelineLine
}

// askTimelines prints the timelines of several tasks.
func askTimelines(cmd *cobra.Command, c *apiClient, o *timelineOptions, ids []string) error {
	var found []*timeline
	missing, err := eachTask(ids, func(id string) error {
		t := &timeline{options: o, id: id, note: cmd.ErrOrStderr()}
		err := t.read(cmd.Context(), c)
		if err == nil {
			found = append(found, t)
		}
		return err
	})
	if err != nil {
		return err
	}
	return cmp.Or(printTimelines(cmd, o, found), missing)
}

func printTimelines(cmd *cobra.Command, o *timelineOptions, found []*timeline) error {
	out := cmd.OutOrStdout()
	switch o.format {
	case formatJSON:
		all := []taskLines{}
		for _, t := range found {
			all = append(all, taskLines{t.id, t.lines})
		}
		return encode(out, all, "  ")
	case formatJSONL:
		var all []taskLine
		for _, t := range found {
			for i := range t.lines {
				all = append(all, taskLine{t.id, t.lines[i]})
			}
		}
		return printList(&o.output, out, "", all, nil)
	}
	for i, t := range found {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "Task %s\n", printable(t.id))
		if err := t.show(out); err != nil {
			return err
		}
	}
	return nil
}

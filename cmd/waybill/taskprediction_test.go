package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// A task shows when it is predicted to be processed, in the table and in JSON.
func TestTaskShowsItsPrediction(t *testing.T) {
	end := "2026-03-01T12:00:00.000Z"
	v := consoleapi.Task{TaskView: events.TaskView{ID: "o-1", Workflow: "order", Version: 1, State: events.StateProcessing},
		Prediction: &consoleapi.Prediction{EndsAt: &end, Misses: true, CriticalPath: []string{"charge", "ship"}, Samples: 40, Unknown: []string{"gift"}}}
	for format, want := range map[string]string{formatTable: "Will probably miss its deadline: predicted end ", formatJSON: `"misses": true`} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		var o tool
		o.format = format
		if err := o.printTask(cmd, v); err != nil || !strings.Contains(out.String(), want) || format == formatTable && !strings.Contains(out.String(), "by charge, ship (40 samples, none of gift)") {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
	}
}

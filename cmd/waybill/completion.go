package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
)

// completions are the values that a shell offers for flags with few values.
var completions = map[string][]string{
	"output":         {formatTable, formatJSON, formatJSONL},
	"state":          words(events.TaskStates),
	"reason":         words(events.Reasons),
	"as":             {string(events.StepCompleted), string(events.StepUndone)},
	"log-level":      {"debug", "info", "warn", "error"},
	"sasl-mechanism": {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
	"api":            {apiAuto, apiOff},
}

// completeValues registers completions in every command that has such a flag.
func completeValues(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
	for name, values := range completions {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // registered twice
		}
	}
}

func words[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

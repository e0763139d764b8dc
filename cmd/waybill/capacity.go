package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/scheduler"
)

// capacityFlags adds --agent-capacity and --observe-capacity.
func capacityFlags(cmd *cobra.Command, into *map[string]int, observe *bool) {
	cmd.Flags().BoolVar(observe, "observe-capacity", true,
		"limit the outstanding requests of agents that --agent-capacity does not name: few at first, more while replies come in time; false: no limit")
	cmd.Flags().Var(capacityPairs(into), "agent-capacity",
		"maximum number of outstanding requests of an agent, as `NAME=N`; further steps wait in the scheduler; each partition has at least one (repeatable)")
}

// maxRunnableFlag adds --max-runnable.
func maxRunnableFlag(cmd *cobra.Command, into *int) {
	cmd.Flags().IntVar(into, "max-runnable", 0, fmt.Sprintf(
		"number of running steps, or steps that wait for a live agent, at which a worker pauses submissions; one agent or workflow counts for a quarter at most (default %d)", scheduler.DefaultMaxRunnable))
}

func checkMaxRunnable(n int) error {
	if n < 0 {
		return usage("--max-runnable %d: must not be negative", n)
	}
	return nil
}

// capacityPairs is the value of --agent-capacity: a limit for each agent. Several may be given at once, with commas.
func capacityPairs(to *map[string]int) pflag.Value {
	return &pairs[int]{to, "NAME=N", ",", func(to map[string]int, text string) error {
		for _, v := range strings.Split(text, ",") {
			name, number, ok := strings.Cut(v, "=")
			n, err := strconv.Atoi(number)
			if !ok || name == "" || err != nil || n < 1 {
				return fmt.Errorf("%q is not NAME=N, with N from 1", v)
			}
			to[name] = n
		}
		return nil
	}}
}

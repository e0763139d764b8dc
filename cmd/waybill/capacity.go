package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/scheduler"
)

// capacityFlags adds --agent-capacity and --observe-capacity.
func capacityFlags(cmd *cobra.Command, into *map[string]int, observe *bool) {
	cmd.Flags().BoolVar(observe, "observe-capacity", true,
		"limit the outstanding requests of agents that --agent-capacity does not name: few at first, more while replies come in time; false: no limit")
	cmd.Flags().Var((*capacities)(into), "agent-capacity",
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

// capacities is the value of --agent-capacity: a limit for each agent.
type capacities map[string]int

// Set implements pflag.Value. Several values may be given at once, with commas.
func (c *capacities) Set(text string) error {
	if *c == nil {
		*c = map[string]int{}
	}
	for _, v := range strings.Split(text, ",") {
		name, number, ok := strings.Cut(v, "=")
		n, err := strconv.Atoi(number)
		if !ok || name == "" || err != nil || n < 1 {
			return fmt.Errorf("%q is not NAME=N, with N from 1", v)
		}
		(*c)[name] = n
	}
	return nil
}

// Append implements pflag.SliceValue: the flag may be given several times.
func (c *capacities) Append(text string) error { return c.Set(text) }

// Replace implements pflag.SliceValue.
func (c *capacities) Replace(texts []string) error {
	*c = nil
	for _, text := range texts {
		if err := c.Set(text); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (c *capacities) GetSlice() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*c)) {
		all = append(all, name+"="+strconv.Itoa((*c)[name]))
	}
	return all
}

// String implements pflag.Value.
func (c *capacities) String() string { return strings.Join(c.GetSlice(), ",") }

// Type implements pflag.Value.
func (c *capacities) Type() string { return "NAME=N" }

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// connectionMark marks the flags that say how to reach a cluster and a console. Help shows them after the others.
const connectionMark = "waybill_connection"

// markConnection marks flags that fn defines.
func markConnection(cmd *cobra.Command, fn func(*pflag.FlagSet)) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	fn(f)
	f.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[connectionMark] = []string{}
	})
	cmd.Flags().AddFlagSet(f)
}

func isConnection(f *pflag.Flag) bool {
	_, is := f.Annotations[connectionMark]
	return is
}

// printUsage prints how a command is used, as cobra does, but with the connection flags in a group of their own, and
// wrapped to the width of the terminal, if there is one.
func printUsage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprint(out, "Usage:")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n  %s [command]", cmd.CommandPath())
	} else {
		fmt.Fprintf(out, "\n  %s", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\n\nExamples:\n%s", cmd.Example)
	}
	printCommands(out, cmd)
	own, connection := splitFlags(cmd)
	printFlags(out, "Flags", own)
	printFlags(out, "Connection flags", connection)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n\n`%s [command] --help` describes a command.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(out)
	return err
}

// printCommands prints the subcommands by their groups.
func printCommands(out io.Writer, cmd *cobra.Command) {
	group := func(title, id string) {
		shown := false
		for _, c := range cmd.Commands() {
			if c.GroupID != id || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if !shown {
				fmt.Fprintf(out, "\n\n%s", title)
				shown = true
			}
			fmt.Fprintf(out, "\n  %-*s %s", cmd.Commands()[0].NamePadding(), c.Name(), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		group(g.Title, g.ID)
	}
	if len(cmd.Groups()) > 0 {
		group("Other:", "")
	} else {
		group("Commands:", "")
	}
}

func splitFlags(cmd *cobra.Command) (own, connection *pflag.FlagSet) {
	own, connection = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if isConnection(f) {
			connection.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	return own, connection
}

func printFlags(out io.Writer, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		fmt.Fprintf(out, "\n\n%s:\n%s", title, strings.TrimRight(flags.FlagUsagesWrapped(terminalWidth(os.Stdout)), "\n"))
	}
}

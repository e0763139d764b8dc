package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// addTools adds the verbs for submitters and operators.
func addTools(root *cobra.Command) {
	root.AddCommand(newSubmit(), newTask(), newReplay(), newExport(), newVerify(), newAlerts(), newErrors(), newBatch(), newSchedule(), newTop(), newDoctor(), newOpen(), newDeadletters(), newWorkflow(), newIntake(), newBench(), newView())
	for _, c := range taskCommands {
		root.AddCommand(c.build(c.belowTask))
	}
	root.InitDefaultCompletionCmd()
	usageArguments(root)
	completeValues(root)
	completeNames(root)
}

// usageArguments makes every fault of arguments a usage error, in every command. A command that only groups
// others refuses unknown subcommands.
func usageArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		usageArguments(c)
	}
	if !cmd.Runnable() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		return
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var coded *exitCode
		if err == nil || errors.As(err, &coded) {
			return err
		}
		return usage("%v; `%s --help` shows how it is used", err, cmd.CommandPath())
	}
}

// noArguments refuses arguments.
func noArguments(cmd *cobra.Command, args []string) error { return arguments()(cmd, args) }

// severalArguments requires one argument of a name, or more.
func severalArguments(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return arguments(name)(cmd, args)
		}
		return nil
	}
}

// arguments requires one argument for each name.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return usage("`%s`: unexpected argument %q; --help shows how it is used", cmd.CommandPath(), args[len(names)])
		case len(args) < len(names):
			return usage("`%s` needs %s; --help shows how it is used", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
		}
		return nil
	}
}

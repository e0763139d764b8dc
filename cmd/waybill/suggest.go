package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
)

// unknownCommand is the error of an unknown subcommand. It names what was probably meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	return usage("unknown command %q%s; `%s --help` lists the commands", name, didYouMean(meantCommand(cmd, name)), cmd.CommandPath())
}

// meantCommand returns the path of the subcommand that was probably meant: one with a near name, else one that another
// group has.
func meantCommand(cmd *cobra.Command, name string) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := text.Nearest(name, names); near != "" {
		return "`" + cmd.CommandPath() + " " + near + "`"
	}
	meant := ""
	for _, c := range cmd.Root().Commands() {
		found, rest, err := c.Find([]string{name})
		if err == nil && found != c && len(rest) == 0 && found.IsAvailableCommand() && (meant == "" || c.Name() == groupOfWorkflows) {
			meant = "`" + found.CommandPath() + "`"
		}
	}
	return meant
}

// groupOfWorkflows is the group that is meant if several have a command.
const groupOfWorkflows = "workflow"

// didYouMean returns a question to append to the error of an unknown name; "" if nothing like it is known.
func didYouMean(meant string) string {
	if meant == "" {
		return ""
	}
	return "; did you mean " + meant + "?"
}

// flagError explains an error of the flags. With an unknown command the flags are those of its group, so
// that the command is what is wrong.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is || unknown.GetSpecifiedShortnames() != "" {
		return usage("%w; `%s --help` lists the flags", flagFault(err), cmd.CommandPath())
	}
	near := text.Nearest(unknown.GetSpecifiedName(), flagNames(cmd))
	if near != "" {
		near = "--" + near
	}
	return usage("%w%s; `%s --help` lists the flags", err, didYouMean(near), cmd.CommandPath())
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// meantWorkflows returns the workflows that were probably meant by unknown ones, as NAME or NAME/VERSION.
func meantWorkflows(unknown, known []string) string {
	var meant []string
	for _, name := range unknown {
		near := text.Nearest(name, known)
		if near != "" && !slices.Contains(meant, near) {
			meant = append(meant, near)
		}
	}
	return didYouMean(strings.Join(meant, ", "))
}

// meantDefinitions returns the definition that was probably meant by an unknown one.
func meantDefinitions(what string, list []registry.Definition) string {
	var known []string
	for i := range list {
		known = append(known, list[i].Workflow, list[i].Key())
	}
	return meantWorkflows([]string{what}, known)
}

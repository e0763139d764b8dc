package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/workflow"
)

// What the commands of schedules and of intakes share: both are definitions with a name and without versions.

// parseNamed parses definition files. The error lists all faults of all files.
func parseNamed[D any](kind events.DefinitionKind, stdin io.Reader, files []string, parse func(name string, src []byte) (d D, id string, err error)) ([]D, error) {
	var list []D
	var names, faults []string
	for _, file := range files {
		name, src, err := readDefinition(stdin, file)
		var d D
		var id string
		if err == nil {
			d, id, err = parse(name, src)
		}
		switch {
		case err != nil:
			faults = append(faults, err.Error())
		case slices.Contains(names, id):
			faults = append(faults, fmt.Sprintf("%s: two files have the %s %s", name, kind, id))
		default:
			list, names = append(list, d), append(names, id)
		}
	}
	if len(faults) > 0 {
		return nil, usage("the %s can't be used:\n%s", kind, strings.Join(faults, "\n"))
	}
	return list, nil
}

// readDefinition reads a definition file; -: standard input. name is for messages.
func readDefinition(stdin io.Reader, file string) (name string, src []byte, err error) {
	if file != "-" {
		src, err = os.ReadFile(file)
		return file, src, err
	}
	if src, err = io.ReadAll(io.LimitReader(stdin, workflow.MaxDefinitionBytes+1)); err != nil {
		err = fmt.Errorf("standard input: %w", err)
	}
	return "stdin", src, err
}

// namedTool is a command about definitions of a kind.
type namedTool struct {
	tool
	kind     events.DefinitionKind
	who, why string
}

// changes adds the flags of a command that changes something.
func (t *namedTool) changes(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.who, "who", "", "who makes the change (default: user and host); recorded as by_claimed, because Kafka doesn't record which principal wrote a record")
	f.StringVar(&t.why, "why", "", "reason, recorded in the log")
	commandLineOnly(f, "who", "why")
}

func (t *namedTool) by() events.By {
	by := events.By{Claimed: t.who, Why: t.why}
	if by.Claimed == "" {
		by.Claimed = currentUser()
	}
	return by
}

// changedNamed is the result of a change as it is printed.
type changedNamed struct {
	kind   events.DefinitionKind
	name   string
	result registry.Result
}

// MarshalJSON writes {"schedule": NAME, "result": RESULT}, with the kind as the first member.
func (c changedNamed) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(c.name)
	return fmt.Appendf(nil, `{%q:%s,"result":%q}`, c.kind, name, c.result), err
}

// apply writes definitions: all or none. It notes those that start tasks of a workflow that isn't
// applied, or of a deprecated version.
func (t *namedTool) apply(cmd *cobra.Command, list []events.NamedDefinition, sameRule func(a, b []byte) bool) error {
	return t.change(cmd, func(ctx context.Context, l *logbook) (changed []changedNamed, err error) {
		workflows, err := registry.List(ctx, l.admin, l.cfg.Namespace)
		if err != nil {
			return nil, err
		}
		var uses []registry.Use
		for i := range list {
			if u, is := registry.UseOf(&list[i]); is {
				uses = append(uses, u)
			}
		}
		for _, note := range append(registry.Missing(uses, workflows), registry.Deprecated(uses, workflows)...) {
			fmt.Fprintf(l.note, "waybill: %s\n", printable(text.Shorten(note, 300)))
		}
		results, err := registry.ApplyAllNamed(ctx, l.cfg, list, sameRule)
		for i := range results {
			changed = append(changed, changedNamed{t.kind, list[i].Name, results[i]})
		}
		return changed, err
	})
}

// change changes definitions, and prints the results.
func (t *namedTool) change(cmd *cobra.Command, change func(ctx context.Context, l *logbook) ([]changedNamed, error)) error {
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	var list []changedNamed
	err = l.askBrokers(cmd.Context(), func(ctx context.Context) (err error) {
		list, err = change(ctx, l)
		return err
	})
	if errors.Is(err, registry.ErrNotFound) {
		return exit(exitNotFound, "%w; `waybill %s list` lists the existing ones", err, t.kind)
	}
	if err != nil {
		return err
	}
	return printList(&t.output, cmd.OutOrStdout(), strings.ToUpper(string(t.kind))+" RESULT", list, func(c changedNamed) []string { return []string{c.name, string(c.result)} })
}

// namedChange is a change of one definition.
type namedChange func(ctx context.Context, cfg kafka.Config, kind events.DefinitionKind, name string, by events.By) (registry.Result, error)

// newNamedChange completes a command that changes one definition.
func newNamedChange(kind events.DefinitionKind, change namedChange, cmd *cobra.Command) *cobra.Command {
	t := namedTool{kind: kind}
	article := "a"
	if strings.HasPrefix(string(kind), "i") {
		article = "an"
	}
	cmd.Args = arguments(fmt.Sprintf("%s %s's name", article, kind))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.change(cmd, func(ctx context.Context, l *logbook) ([]changedNamed, error) {
			result, err := change(ctx, l.cfg, kind, args[0], t.by())
			return []changedNamed{{kind, args[0], result}}, err
		})
	}
	t.flags(cmd)
	t.changes(cmd)
	return cmd
}

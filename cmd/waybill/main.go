// Command waybill runs Waybill: the roles, the demo, and the tools of
// submitters and operators.
//
// Each verb has a file of its name, with a struct of its flags; new<Verb>, which creates the
// command; and run<Verb>, which
//
//	...             // checks its own flags, before it connects to anything
//	o.open(cmd)     // opens a logbook (query.go): the namespace, the brokers, reading to the end
//	o.print...      // prints a table for people, or JSON (output.go)
//
// Before any command runs, applySettings (settings.go) sets the flags: from the command
// line, else the environment, else the file of --config.
//
// Errors with an exit code of their own are created by exit or usage. Every error says what to do next.
//
// A query asks a console (queryFlags.query in api.go): one that runs, or one in this process over an index
// that it builds first (localconsole.go). A verb that replays events reads an eventSource (eventsource.go): the
// log, a file, or a console.
//
// internal/instance wires the roles, from flags in scheduler.go, supervisor.go, agent.go and
// console.go. demo and up run all roles on an embedded broker (internal/local).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// The exit codes.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitError       = 4 // the task is held
	exitUndone      = 5 // the task was undone or cancelled
	exitTimeout     = 6 // a wait timed out
	exitUnreachable = 7 // broker or API
	exitRefused     = 8 // by the task's state
	exitInterrupted = 130
)

// exitCode is an error with its own exit code.
type exitCode struct {
	code int
	err  error
}

func (e *exitCode) Error() string { return e.err.Error() }
func (e *exitCode) Unwrap() error { return e.err }

func exit(code int, format string, args ...any) error {
	return &exitCode{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return exit(exitUsage, format, args...) }

// gcPercent is the GOGC of processes with small heaps and many short-lived objects. Collecting less often saves
// a tenth of the processor time per order. GOGC overrides it.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(os.Args[1:]))
}

// run runs a command and returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(&interruptibleReader{ctx: ctx, in: os.Stdin})
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSilent):
		return codeOf(err)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	}
	fmt.Fprintln(os.Stderr, "waybill: "+kafkaadmin.WithAdvice(err).Error())
	return codeOf(err)
}

// ending is held from the first failure of a disk until the process has ended, so that only one is reported.
var ending sync.Mutex

// endProcess ends the process because a disk failed.
func endProcess(err error) {
	ending.Lock()
	fmt.Fprintln(os.Stderr, "waybill: "+err.Error())
	os.Exit(exitOther)
}

// errSilent is wrapped by errors that were already printed.
var errSilent = errors.New("already reported")

func codeOf(err error) int {
	var coded *exitCode
	if errors.As(err, &coded) {
		return coded.code
	}
	switch {
	case addressTaken(err):
		return exitUsage // a fault of the flag that gives the address
	case unreachable(err):
		return exitUnreachable
	case errors.Is(err, registry.ErrConflict):
		return exitRefused
	}
	return exitOther
}

// orInterrupted returns err, or context.Canceled if the process was interrupted: then whatever was in progress
// failed for that reason.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// newRoot builds the command tree. Every verb has a file of its own.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "waybill",
		Short:         "Run multi-step tasks through services that fail, event-sourced on Apache Kafka",
		Long:          rootHelp,
		Version:       versionLine(), // of --version, which people try first
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return applySettings(cmd) },
	}
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(newDemo(), newUp(), newScheduler(), newSupervisor(), newAgent(), newConsole(), newTopics(), newVersion())
	addTools(root)
	groupCommands(root)
	decimalFlags(root)
	return root
}

const rootHelp = `Waybill runs multi-step tasks (an order: reserve, charge, ship) through services that fail. It is
the Scheduler-Agent-Supervisor pattern, event-sourced on Apache Kafka: every state transition is an
event on a topic, every state is folded from those events, and every role is a consumer group.

Try it:            waybill demo
Keep it running:   waybill up --demo
On your cluster:   waybill topics create --brokers HOST:9092, then run one or more
                   'waybill scheduler', 'waybill supervisor', agents and 'waybill console'

Each setting comes from its flag, else from the environment (WAYBILL_BROKERS for --brokers), else from
the YAML file that --config names, else from the profile that --profile names. Flags that narrow a list
are taken from the command line only.

Times are UTC. On a terminal, states have colours (not with NO_COLOR), and tables are fitted to the width:
times are shortened, long texts are cut, some columns are left out. Piped output and json are complete.

Exit codes: 0 ok, 1 other failure, 2 usage, 3 not found, 4 task held, 5 task undone or cancelled,
6 wait timed out, 7 broker or API unreachable or answer incomplete, 8 refused, 130 interrupted.`

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/workflow"
)

// viewOptions are the flags of view.
type viewOptions struct {
	listen    string
	workflows []string
}

func newView() *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:   "view FILE",
		Short: "Serve the web console of an exported file",
		Long: `Serve the web console and the HTTP API of a file that 'waybill export' wrote (-: standard input), until it is
interrupted. It needs no broker, is read-only, and listens on loopback only. It indexes the file first, in a
temporary directory.

A file has the events of tasks, and nothing else: there are no agents, no alerts of definitions and no dead
letters. The graph of a task comes from its first event. --workflow adds the source of a definition.`,
		Example: `  waybill export order-7 > order-7.jsonl
  waybill view order-7.jsonl --workflow docs/examples/notice.yaml`,
		Args: arguments("a file that `waybill export` wrote"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", defaultConsole, "loopback address of the web console; another port if the default one is in use")
	f.String("config", "", "YAML file of settings; its keys are flag names")
	f.StringArrayVar(&o.workflows, "workflow", nil, "file of a definition to show (repeatable)")
	return cmd
}

func (o *viewOptions) run(cmd *cobra.Command, file string) error {
	if err := checkListen("listen", o.listen); err != nil {
		return err
	}
	if !isLoopback(o.listen) {
		return usage("--listen %s is reachable from other machines: a file is served on loopback only (%s)", o.listen, defaultConsole)
	}
	definitions, err := parseFiles(cmd.InOrStdin(), o.workflows)
	if err != nil {
		return err
	}
	if info, err := os.Stat(file); file != "-" && (err != nil || info.IsDir()) {
		return exit(exitUsage, "%s: not a file that can be read", file)
	}
	s, err := openFileSource(file, cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer s.close()
	s.definitions, s.served = definitions, true
	ctx := cmd.Context()
	listener, err := listenConsole(ctx, o.listen, !cmd.Flags().Changed("listen"), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // Serve has closed it, unless it wasn't reached
	return askLocalConsole(ctx, s, indexAll, "", func(c *apiClient) error {
		fmt.Fprintf(cmd.OutOrStdout(), "console  http://%s\n", reachableAddr(listener.Addr()))
		return c.local.console.Serve(ctx, listener)
	})
}

// idleStreamPoll is how long a stream of a file waits for events that don't come.
const idleStreamPoll = 5 * time.Second

// idleStream is a stream of a file, which doesn't grow.
type idleStream struct{}

func (idleStream) Poll(ctx context.Context) ([]events.Record, error) {
	beat := time.NewTimer(idleStreamPoll)
	defer beat.Stop()
	select {
	case <-beat.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (idleStream) Close() {}

// Workflows lists the definitions that were given with the file.
func (c fileCluster) Workflows() []console.Workflow {
	var list []console.Workflow
	for _, d := range c.definitions {
		list = append(list, console.WorkflowOf(d))
	}
	return list
}

func (c fileCluster) Definition(name string, version int) (d *workflow.Definition, deleted bool) {
	for _, d := range c.definitions {
		if d.Name == name && d.Version == version {
			return d, false
		}
	}
	return nil, false
}

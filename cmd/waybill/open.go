package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

type openOptions struct {
	connection
	api   apiFlags
	print bool
}

func newOpen() *cobra.Command {
	var o openOptions
	cmd := &cobra.Command{
		Use:   "open [ID]",
		Short: "Open the web page of a task, or of the console, in a browser",
		Long: `Print the address of a task's page in the web console, and open it in a browser if there is one and standard
output is a terminal. Without an id, the address is that of the console's first page. The console is the one that
--api names, or this cluster's console on this machine. The address has no token.`,
		Example: `  waybill open order-7
  waybill open order-7 --print`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return arguments("a task's id")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runOpen(cmd, &o, args) },
	}
	o.connection.flags(cmd)
	o.api.flags(cmd)
	cmd.Flags().BoolVar(&o.print, "print", false, "only print the address")
	return cmd
}

func runOpen(cmd *cobra.Command, o *openOptions, args []string) error {
	c, err := o.console(cmd)
	if err != nil {
		return err
	}
	address := c.URL() + "/"
	if len(args) > 0 {
		id, err := idArgument(args)
		if err != nil {
			return err
		}
		if _, err := c.Task(cmd.Context(), id); err != nil {
			return err
		}
		address += "#/tasks/" + pageID(id)
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), address); err != nil {
		return err
	}
	if o.print || !isTerminal(cmd.OutOrStdout()) {
		return nil
	}
	if err := startBrowser(cmd.Context(), address); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "waybill: no browser was opened: %v\n", err)
	}
	return nil
}

// pageID encodes an id as encodeURIComponent does.
func pageID(id string) string { return strings.ReplaceAll(url.QueryEscape(id), "+", "%20") }

// console returns the console that --api names, else the one on this machine.
func (o *openOptions) console(cmd *cobra.Command) (*apiClient, error) {
	c, err := o.api.namedConsole()
	if err != nil {
		return nil, err
	}
	if c != nil {
		o.expectSystem(cmd, c)
		return c, nil
	}
	t := tool{connection: o.connection}
	l, err := t.open(cmd)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if c = o.api.findLocalConsole(cmd.Context(), l); c == nil {
		return nil, exit(exitUnreachable, "no console of this cluster runs at %s; `waybill console` starts one, --api URL names another", defaultConsole)
	}
	return c, nil
}

// startBrowser starts the program that opens addresses, and doesn't wait for it.
func startBrowser(ctx context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch {
	case runtime.GOOS == "darwin":
		name = "open"
	case runtime.GOOS == "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return fmt.Errorf("there is no display")
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

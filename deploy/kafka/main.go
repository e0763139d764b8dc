// Command kafka runs Apache Kafka on loopback, one node or three, until it is
// interrupted: a real broker to try Waybill on.
//
//	go run ./deploy/kafka [--nodes 3] [--dir DIR] [--port 9092]
//
// It prints the bootstrap servers on standard output once they serve clients,
// and everything else on standard error. See package node for what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/waybill-run/waybill/deploy/kafka/node"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := endWithGoRun(); err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
	}
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("kafka", flag.ContinueOnError)
	flags.SetOutput(stderr)
	nodes := flags.Int("nodes", 1, "how many nodes, 1 or 3, on 127.0.0.1, .2 and .3")
	dir := flags.String("dir", "", "`folder` of the data, kept and reused (default: a temporary one, removed at the end)")
	port := flags.Int("port", 9092, "the brokers' `port`; the controllers' is the next one; 0: free ones")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errors.Join(errUsage, err)
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "unexpected argument %q\n", flags.Arg(0))
		flags.Usage()
		return errUsage
	}
	if *nodes != 1 && *nodes != 3 {
		fmt.Fprintf(stderr, "--nodes %d: a cluster has 1 or 3\n", *nodes)
		return errUsage
	}
	fmt.Fprintf(stderr, "Starting Apache Kafka %s (the first time its jars are fetched from Maven Central) ...\n", node.Version)
	cluster, err := node.Start(ctx, node.Options{Nodes: *nodes, Dir: *dir, Port: *port})
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while starting: %w", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	fmt.Fprintf(stderr, "Data and logs: %s\nBootstrap servers:\n", cluster.Dir())
	fmt.Fprintln(stdout, strings.Join(cluster.Brokers(), ","))
	fmt.Fprintln(stderr, "Stop with Ctrl-C.")
	select {
	case <-ctx.Done():
		fmt.Fprintln(stderr, "Stopping ...")
		return nil
	case err := <-cluster.Failed():
		return err
	}
}

// endWithGoRun has the kernel send this process SIGTERM when a `go run` that
// started it ends: go run doesn't forward SIGTERM and SIGKILL. A program that
// was built first and started by itself has no such parent.
func endWithGoRun() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if !strings.Contains(filepath.Dir(exe), string(filepath.Separator)+"go-build") {
		return nil
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0); errno != 0 {
		return fmt.Errorf("ask to end with go run: %w", errno)
	}
	return nil
}

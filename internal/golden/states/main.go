// Command states reads a log as lines of JSON and prints what this build folds
// it to. Built at an old commit, it is that commit's own word on its log.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/golden"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "states:", err)
		os.Exit(1)
	}
}

func run() error {
	records, err := golden.ReadLog(os.Stdin)
	if err != nil {
		return fmt.Errorf("read the log from stdin: %w", err)
	}
	states, err := golden.Fold(records, events.DefaultNamespace)
	if err != nil {
		return fmt.Errorf("fold the log: %w", err)
	}
	out := bufio.NewWriter(os.Stdout)
	if err := golden.WriteStates(out, states); err != nil {
		return err
	}
	return out.Flush()
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestBatchKilled kills a batch in the middle, and continues it: each task has its result, and got one command.
func TestBatchKilled(t *testing.T) {
	suite.NeedAll(t, "a process that is killed")
	t.Parallel()
	const tasks = 300
	sys := startUp(t)
	waybill, dir := filepath.Join(binary(t), "waybill"), t.TempDir()
	definition, orders := filepath.Join(dir, "hold.yaml"), filepath.Join(dir, "orders.jsonl")
	var lines bytes.Buffer
	for i := range tasks {
		fmt.Fprintf(&lines, `{"id":"k-%d","workflow":"killed","input":{"card":"tok_declined"}}`+"\n", i)
	}
	hold := "workflow: killed\nversion: 1\non_error: hold\ncomplete_within: 1h\nsteps:\n  charge: {agent: payments, operation: charge, complete_within: 10s, input: {amount: 1, card: \"${ input.card }\"}}\n"
	for name, text := range map[string]string{definition: hold, orders: lines.String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(waybill, append(args, "--brokers", sys.Broker.Addr())...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, _ := cmd.Output() // the exit code is checked
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, got, code, errs.String())
		}
		return string(out)
	}
	run(exitOK, "workflow", "apply", definition)
	run(exitError, "submit", "-f", orders, "--wait")

	results := filepath.Join(dir, "results.jsonl")
	command := []string{"undo", "--filter", "workflow:killed", "--rate", "100", "--results", results, "--why", "a test", "--yes", "--api", sys.Console, "-o", "json"}
	first := exec.Command(waybill, append(command, "--brokers", sys.Broker.Addr())...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	written := func() int {
		text, _ := os.ReadFile(results) // it may not exist yet
		return strings.Count(string(text), "\n")
	}
	for written() < tasks/5 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil || written() > tasks {
		t.Fatalf("it wasn't killed in the middle: %v, %d lines", err, written())
	}
	var ended []batch.Result
	if err := json.Unmarshal([]byte(run(exitOK, command...)), &ended); err != nil {
		t.Fatal(err)
	}
	for _, r := range ended {
		if r.Status != batch.Passed && r.Status != batch.Accepted {
			t.Errorf("%+v", r)
		}
	}
	if len(ended) != tasks {
		t.Errorf("%d results", len(ended))
	}
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("k-%d", i)
	}
	if n := strings.Count(run(exitOK, append([]string{"timeline", "-o", "jsonl"}, ids...)...), `"type":"waybill.task.undoing.`); n != tasks {
		t.Errorf("%d commands had an effect, of %d tasks", n, tasks)
	}
}

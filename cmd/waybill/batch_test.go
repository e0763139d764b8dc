package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
)

// heldSystem is a system with held tasks, k-0, k-1 and so on. Each of them is held again when it is resubmitted.
type heldSystem struct {
	*apiClient
	waybill func(code int, args ...string) string
}

const heldDefinition = "workflow: held\nversion: 1\non_error: hold\ncomplete_within: 1h\nsteps:\n" +
	"  charge: {agent: payments, operation: charge, complete_within: 10s, input: {amount: 1, card: \"${ input.card }\"}}\n"

func startHeld(t *testing.T, tasks int) *heldSystem {
	t.Helper()
	sys := startUp(t)
	program, dir := filepath.Join(binary(t), "waybill"), t.TempDir()
	definition, orders := filepath.Join(dir, "held.yaml"), filepath.Join(dir, "orders.jsonl")
	var lines bytes.Buffer
	for i := range tasks {
		fmt.Fprintf(&lines, `{"id":"k-%d","workflow":"held","input":{"card":"tok_declined"}}`+"\n", i)
	}
	for name, text := range map[string]string{definition: heldDefinition, orders: lines.String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, err := consoleapi.New(consoleapi.Config{URL: sys.Console})
	if err != nil {
		t.Fatal(err)
	}
	h := &heldSystem{&apiClient{Client: client}, func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, append(args, "--brokers", sys.Broker.Addr())...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, _ := cmd.Output() // the exit code is checked
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, got, code, errs.String())
		}
		return string(out)
	}}
	h.waybill(exitOK, "workflow", "apply", definition)
	h.waybill(exitError, "submit", "-f", orders, "--wait")
	return h
}

// ended waits for the end of a batch.
func (h *heldSystem) ended(t *testing.T, id string) consoleapi.Batch {
	t.Helper()
	return awaitBatch(t, h.Client, id, func(b *consoleapi.Batch) bool { return b.EndedAt != nil })
}

// awaitBatch waits until a batch is as it is wanted. It looks at the batch whenever the console's stream of changes has
// something new, which is at least a beat each few seconds.
func awaitBatch(t *testing.T, c *consoleapi.Client, id string, wanted func(*consoleapi.Batch) bool) (b consoleapi.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+consoleapi.Prefix+"/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); ; {
		if b, err = c.Batch(ctx, id); err == nil && wanted(&b) {
			return b
		}
		if !lines.Scan() {
			t.Fatalf("the stream of changes has ended (%v): %+v, %v", lines.Err(), b, err)
		}
	}
}

// TestBatches: a batch stops when the fault recurs, and when it is asked to; another one undoes all tasks, each once.
func TestBatches(t *testing.T) {
	suite.NeedAll(t, "a batch that waits for recurring holds")
	t.Parallel()
	const tasks = 60
	h := startHeld(t, tasks)
	canary := 2
	a, err := h.OrderBatch(t.Context(), &consoleapi.BatchCommand{ID: "again", Command: "resubmit", Filter: "workflow:held", Reason: "a test", Canary: &canary})
	if err != nil || a.Selected != tasks {
		t.Fatalf("%+v, %v", a, err)
	}
	if b := h.ended(t, "again"); b.State != consoleapi.BatchStopped || b.Counts[batch.Recurred] == 0 || b.Counts[batch.Waiting] != tasks-canary || !strings.Contains(b.Why, "the fault recurred") {
		t.Errorf("%+v", b)
	}

	slow, none := 0.5, 0
	if _, err := h.OrderBatch(t.Context(), &consoleapi.BatchCommand{ID: "slow", Command: "cancel", Filter: "workflow:held", Reason: "a test", Rate: &slow, Canary: &none}); err != nil {
		t.Fatal(err)
	}
	awaitBatch(t, h.Client, "slow", func(b *consoleapi.Batch) bool { return b.Counts[batch.Waiting] < tasks })
	if _, err := h.StopBatch(t.Context(), "slow", "enough"); err != nil {
		t.Fatal(err)
	}
	cancelled := 0
	if b := h.ended(t, "slow"); b.State != consoleapi.BatchStopped || b.Counts[batch.Waiting] == 0 || !strings.HasSuffix(b.Why, "stopped it: enough") {
		t.Errorf("%+v", b)
	} else {
		cancelled = tasks - b.Counts[batch.Waiting]
	}

	// A command that follows a batch may be killed: the console runs it.
	follower := exec.Command(filepath.Join(binary(t), "waybill"), "cancel", "--filter", "workflow:held", "--rate", "0.5", "--canary", "0", "--batch", "followed", "--why", "a test", "--yes", "--api", h.URL())
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	begun := awaitBatch(t, h.Client, "followed", func(b *consoleapi.Batch) bool { return b.Counts[batch.Waiting] < b.Tasks })
	_ = follower.Process.Kill() // it follows still
	_ = follower.Wait()
	awaitBatch(t, h.Client, "followed", func(b *consoleapi.Batch) bool { return b.Counts[batch.Waiting] < begun.Counts[batch.Waiting]-1 })
	if _, err := h.StopBatch(t.Context(), "followed", "enough"); err != nil {
		t.Fatal(err)
	}
	cancelled += tasks - cancelled - h.ended(t, "followed").Counts[batch.Waiting]

	fast := 0.0
	if a, err = h.OrderBatch(t.Context(), &consoleapi.BatchCommand{ID: "rest", Command: "undo", Filter: "workflow:held", Reason: "a test", Rate: &fast}); err != nil || a.Selected != tasks-cancelled {
		t.Fatalf("%+v, %v", a, err)
	}
	if b := h.ended(t, "rest"); b.State != consoleapi.BatchDone || b.Counts[batch.Passed]+b.Counts[batch.Accepted] != tasks-cancelled {
		t.Errorf("%+v", b)
	}
	results, err := h.BatchResults(t.Context(), "rest")
	if err != nil || len(results) != tasks-cancelled {
		t.Errorf("%d results, %v", len(results), err)
	}
	ids := []string{"timeline", "-o", "jsonl"}
	for i := range results {
		ids = append(ids, results[i].Task)
	}
	if n := strings.Count(h.waybill(exitOK, ids...), `"type":"waybill.task.undoing.`); n != len(results) {
		t.Errorf("%d commands had an effect, of %d tasks", n, len(results))
	}
	if _, err := h.StopBatch(t.Context(), "rest", "late"); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusConflict)) && !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a batch that has ended is stopped: %v", err)
	}
}

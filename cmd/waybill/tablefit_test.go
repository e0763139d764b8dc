package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func TestFitTable(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	rows := [][]string{
		strings.Fields(taskHead),
		{"order-" + strings.Repeat("7", 40), "order/1", "held", "3", "2026-11-26 04:58:28Z", "2026-11-26 04:58:30Z", "tries_exhausted"},
		{"order-8", "order/1", "processed", "0", "2026-11-26 04:58:28Z", "-", ""},
	}
	for _, width := range []int{200, 130, 110, 80, 60} {
		fitted := fitTable(rows, width, now)
		if got := tableWidth(fitted); got > width {
			t.Errorf("%d columns: %d wide", width, got)
		}
		if len(fitted) != len(rows) || fitted[2][0] != "order-8" {
			t.Errorf("%d columns: %q", width, fitted)
		}
	}
	if got := fitTable(rows, 80, now); got[1][3] != "04:58:28Z" || strings.Join(got[0], " ") != "ID WORKFLOW STATE SUBMITTED UPDATED ERROR" || !strings.Contains(got[1][0], "…7") {
		t.Errorf("%q", got)
	}
	letters := [][]string{strings.Fields("DEADLETTER AT REASON ORIGIN KEY SIZE DETAIL"),
		{"11/1234567", "2026-11-26 04:58:28Z", "unknown_workflow", "waybill.tasks/7/0", "order-7", "68", "no workflow \"checkout\"; apply it"}}
	if got := fitTable(letters, 80, now); tableWidth(got) > 80 || got[1][0] != "11/1234567" {
		t.Errorf("what a redrive takes is cut: %q", got)
	}
	if rows[1][4] != "2026-11-26 04:58:28Z" || len(rows[0]) != 7 {
		t.Errorf("the rows were changed: %q", rows)
	}
	old := fitTable(rows, 100, now.Add(24*time.Hour))
	if old[1][4] != "11-26 04:58Z" && old[1][3] != "11-26 04:58Z" {
		t.Errorf("of another day: %q", old)
	}
}

// TestTerminal shows tables on a terminal of 80 columns, by the tool itself. Piped, they stay as they are.
func TestTerminal(t *testing.T) {
	sys := startUp(t)
	waybill := filepath.Join(binary(t), "waybill")
	const id = "order-with-a-long-id-0123456789-0123456789"
	order := []string{"submit", "--wait", "--brokers", sys.Broker.Addr(), "--workflow", "order", "--id", id, "--input", `{"items":[],"total":1,"card":"tok","address":"x"}`}
	if out, err := exec.Command(waybill, order...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) *exec.Cmd { return exec.Command(waybill, append(args, "--api", sys.Console)...) }
	onScreen := func(columns uint16, env []string, args ...string) string {
		terminal, keyboard := pseudoTerminal(t)
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
			t.Fatal(err)
		}
		cmd := run(args...)
		cmd.Env, cmd.Stdout = append(cmd.Environ(), append(env, "TERM=xterm")...), terminal
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if _, err := terminal.WriteString("\nEND\n"); err != nil {
			t.Fatal(err)
		}
		shown := ""
		for lines := bufio.NewScanner(keyboard); lines.Scan() && lines.Text() != "END"; {
			shown += strings.TrimSuffix(lines.Text(), "\r") + "\n"
		}
		return shown
	}
	piped, err := run("task", "list").Output()
	if err != nil || strings.Contains(string(piped), "\x1b") || !strings.Contains(string(piped), id) {
		t.Fatalf("%v\n%s", err, piped)
	}
	for _, args := range [][]string{{"task", "list"}, {"timeline", id}, {"task", "get", id}} {
		plain := onScreen(80, []string{"NO_COLOR=1"}, args...)
		for line := range strings.Lines(plain) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 && args[1] != "get" /* its input is a line of any length */ {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
		if strings.Contains(plain, "\x1b") {
			t.Errorf("%v: NO_COLOR, but colours: %q", args, plain)
		}
		if shown := onScreen(80, nil, args...); !strings.Contains(shown, "\x1b[32m") {
			t.Errorf("%v: no colour on a terminal: %q", args, shown)
		}
	}
	if wide := onScreen(300, []string{"NO_COLOR=1"}, "task", "list"); strings.TrimSpace(wide) != strings.TrimSpace(string(piped)) {
		t.Errorf("there is room, but the table differs:\n%s\n%s", wide, piped)
	}
}

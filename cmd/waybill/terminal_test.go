package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pseudoTerminal returns a terminal and its controlling end, which stands for the keyboard.
func pseudoTerminal(t *testing.T) (terminal, keyboard *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return terminal, keyboard
}

// TestAsksOnATerminal: commands that change a task or a definition ask for confirmation on a terminal before they
// connect. With --yes they don't ask. Without a terminal a command is sent, but a definition isn't deleted.
func TestAsksOnATerminal(t *testing.T) {
	const question, opened = "? [y/N] ", "--kafka-config: "
	waybill := func(in *os.File, args ...string) (int, string) {
		cmd := exec.Command(filepath.Join(binary(t), "waybill"), append(args, "--kafka-config", filepath.Join(t.TempDir(), "absent"))...)
		if in != nil {
			cmd.Stdin = in
		}
		out, _ := cmd.CombinedOutput() // the exit code is checked instead
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, args := range [][]string{
		{"undo", "order-1", "--why", "a test"},
		{"task", "cancel", "order-1", "--why", "a test"},
		{"resubmit", "order-1", "--why", "a test"},
		{"release", "order-1", "charge", "--as", "undone", "--why", "a test"},
		{"workflow", "delete", "order/1"},
	} {
		terminal, keyboard := pseudoTerminal(t)
		if _, err := keyboard.WriteString("n\n"); err != nil {
			t.Fatal(err)
		}
		if code, out := waybill(terminal, args...); code != exitOther || !strings.Contains(out, question) || !strings.Contains(out, "nothing was done") {
			t.Errorf("%v, answered n: exit code %d, %s", args, code, out)
		}
		if _, err := keyboard.WriteString("y\n"); err != nil {
			t.Fatal(err)
		}
		if code, out := waybill(terminal, args...); code != exitUsage || !strings.Contains(out, question) || !strings.Contains(out, opened) {
			t.Errorf("%v, answered y: exit code %d, %s", args, code, out)
		}
		if code, out := waybill(terminal, append(args, "--yes")...); code != exitUsage || strings.Contains(out, question) || !strings.Contains(out, opened) {
			t.Errorf("%v --yes: exit code %d, %s", args, code, out)
		}
		says := opened
		if args[0] == "workflow" {
			says = "isn't a terminal; confirm with --yes"
		}
		if code, out := waybill(nil, args...); code != exitUsage || strings.Contains(out, question) || !strings.Contains(out, says) {
			t.Errorf("%v without a terminal: exit code %d, want %q: %s", args, code, says, out)
		}
	}
}

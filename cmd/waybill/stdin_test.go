package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterruptedStandardInput: a command that reads standard input ends at an interrupt, even if the other end stays
// open and writes nothing, as a terminal does. It prints nothing.
func TestInterruptedStandardInput(t *testing.T) {
	bin := filepath.Join(binary(t), "waybill")
	for _, args := range []string{"submit -f -", "workflow validate -", "workflow apply -", "replay o-1 --file -", "timeline o-1 --file -"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), bin, strings.Fields(args)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var note bytes.Buffer
			cmd.Stderr = &note
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// The input exceeds a pipe's buffer: once it is written, the command is reading.
			if _, err := in.Write(bytes.Repeat([]byte{'\n'}, 1<<17)); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			var ended *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitInterrupted || note.Len() > 0 {
				t.Errorf("ended with %v and %q, want exit code %d and nothing said", err, &note, exitInterrupted)
			}
		})
	}
}

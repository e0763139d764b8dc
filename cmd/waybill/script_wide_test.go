package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdWide writes a definition with a number of parallel steps, whose names have a number of bytes: wide FILE STEPS
// NAMEBYTES.
func cmdWide(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: wide FILE STEPS NAMEBYTES")
	}
	steps, err := strconv.Atoi(args[1])
	ts.Check(err)
	bytes, err := strconv.Atoi(args[2])
	ts.Check(err)
	var b strings.Builder
	b.WriteString("workflow: wf-wide\nversion: 1\ncomplete_within: 1m\nsteps:\n")
	for i := range steps {
		fmt.Fprintf(&b, "  s%0*d: {agent: payments, operation: charge, complete_within: 10s}\n", bytes-1, i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}

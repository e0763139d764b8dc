package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCount makes the last line of an exported file name the number of its records, after lines were deleted:
// count FILE
func cmdCount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: count FILE")
	}
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b = bytes.TrimSpace(regexp.MustCompile(`,"count":\d+`).ReplaceAll(b, nil))
	b = fmt.Appendf(bytes.TrimSuffix(b, []byte("}")), `,"count":%d}`+"\n", bytes.Count(b, []byte("\n")))
	ts.Check(os.WriteFile(path, b, 0o600))
}

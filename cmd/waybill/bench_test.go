package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/bench"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestBenchScript runs benchmarks as users do.
func TestBenchScript(t *testing.T) {
	suite.NeedAll(t, "whole benchmarks")
	runScripts(t, "testdata/bench", nil)
}

// TestNoResultOfABrokenLog: a log that doesn't verify gives no result: nothing on stdout, and exit code 1.
func TestNoResultOfABrokenLog(t *testing.T) {
	for _, format := range []string{formatTable, formatJSON} {
		cmd, o := newBench(), &benchOptions{output: output{format}}
		cmd.SetContext(t.Context())
		var out bytes.Buffer
		cmd.SetOut(&out)
		broken := func(context.Context, bench.Options) (*bench.Result, error) {
			return nil, &bench.BrokenError{Faults: []string{"P2: a fault"}}
		}
		err := runBench(cmd, o, bench.Options{}, broken, benchTable)
		if err == nil || codeOf(err) != exitOther || !strings.Contains(err.Error(), "P2: a fault") || out.Len() > 0 {
			t.Errorf("-o %s: ended with %v, code %d, and printed %q; want the fault, code %d and nothing", format, err, codeOf(err), &out, exitOther)
		}
	}
}

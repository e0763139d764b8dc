package main

import (
	"strings"
	"testing"
)

// TestFlagFault: an invalid value of a flag gives a readable error, whether it comes from the command line or from
// settings.
func TestFlagFault(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"task list --limit x", `--limit "x": must be a whole number; `},
		{"task list --limit 99999999999999999999", `--limit "99999999999999999999": out of range: must be a whole number; `},
		{"task list --due-within soon", `--due-within "soon": must be a duration such as 500ms, 10s, 30m or 1h30m; `},
		{"agent http --breaker-failures -1", `--breaker-failures "-1": must be a whole number of 0 or more; `},
		{"up --observe-capacity=perhaps", `--observe-capacity "perhaps": must be true or false; `},
		{"up --agent-capacity x", `--agent-capacity "x": `},
		{"release o-1 s --output {", `-o "{": must be table, json or jsonl`},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.args))
		if err := root.Execute(); codeOf(err) != exitUsage || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	t.Setenv("WAYBILL_LIMIT", "x")
	root := newRoot()
	root.SetArgs([]string{"task", "list", "--config", writeFile(t, "settings.yaml", []byte("session-timeout: soon\nlimitt: 1\n"))})
	err := root.Execute()
	for _, want := range []string{"environment WAYBILL_LIMIT: --limit \"x\": must be a whole number", "settings.yaml: there is no setting \"limitt\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

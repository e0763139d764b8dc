package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exchange is a command of README's session, and what it prints.
type exchange struct {
	command string
	words   []string
	lines   []string // "..." stands for any
	line    int
}

// session reads the blocks of README in which commands stand behind a dollar.
func session(t *testing.T) (list []exchange) {
	t.Helper()
	for _, b := range readPage(t, "README.md").blocks {
		if b.language != "console" {
			continue
		}
		for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case is:
				words := shellCommands(command)
				if len(words) != 1 || words[0][0] != "waybill" {
					t.Fatalf("README.md, line %d: %q is not one command of waybill's", b.line+i, command)
				}
				list = append(list, exchange{command: command, words: words[0][1:], line: b.line + i})
			case len(list) == 0:
				t.Fatalf("README.md, line %d: output before the first command", b.line+i)
			default:
				last := &list[len(list)-1]
				last.lines = append(last.lines, line)
			}
		}
	}
	return list
}

// varying is what differs from run to run, and its stand-in.
var varying = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "CLOCK"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+/\d+\b`), "PLACE"},
	{regexp.MustCompile(`^(c-\d+ )\d+ \d+ `), "${1}P O "},
	{regexp.MustCompile(` +`), " "},
}

func steady(line string) string {
	line = regexp.MustCompile(` +`).ReplaceAllString(strings.TrimSpace(line), " ")
	for _, v := range varying {
		line = v.pattern.ReplaceAllString(line, v.as)
	}
	return line
}

// matches reports whether what was printed is what is shown.
func matches(shown, printed []string) bool {
	switch {
	case len(shown) == 0:
		return len(printed) == 0
	case shown[0] == "...":
		return matches(shown[1:], printed) || len(printed) > 0 && matches(shown, printed[1:])
	}
	return len(printed) > 0 && steady(shown[0]) == steady(printed[0]) && matches(shown[1:], printed[1:])
}

// README's session, command by command, on what `waybill up --demo` runs: each prints
// what is shown, times, durations and places aside.
func TestReadmeSession(t *testing.T) {
	sys, bin, list := startUp(t), binary(t), session(t)
	if len(list) < 10 {
		t.Fatalf("%d commands found: the test proves nothing", len(list))
	}
	for _, s := range list {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "waybill"), s.words...)
		cmd.Dir = repository
		cmd.Env = append(cmd.Environ(), "WAYBILL_BROKERS="+sys.broker.Addr())
		out, err := cmd.Output() // the order in error makes exit codes that aren't 0
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		printed := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
		if !matches(s.lines, printed) {
			t.Fatalf("README.md, line %d: $ %s\nprints\n%s\nand not\n%s", s.line, s.command, out, strings.Join(s.lines, "\n"))
		}
		wantsError := slices.Contains(s.words, "submit")
		if code := cmd.ProcessState.ExitCode(); code != exitOK && !(wantsError && code == exitError) {
			t.Fatalf("README.md, line %d: $ %s: exit code %d", s.line, s.command, code)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		shown, printed string
		want           bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a\n...", "a\nb\nc", true},
		{"...\nc", "a\nb\nc", true},
		{"...\nb", "a\nb\nc", false},
		{"a  11:28:42.520  25ms", "a 12:00:00.000 3.5s", true},
		{"charge 3", "charge 4", false},
		{"seq 1 at 9/3", "seq 1 at 2/117", true},
	} {
		if got := matches(strings.Split(tt.shown, "\n"), strings.Split(tt.printed, "\n")); got != tt.want {
			t.Errorf("%q shows %q: %v", tt.shown, tt.printed, got)
		}
	}
}

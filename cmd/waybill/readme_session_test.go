package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/local"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

var updatePages = flag.Bool("update-pages", false, "write what commands print into the sessions of the pages")

// exchange is a command in a page's session, and its output.
type exchange struct {
	command string   // as typed, with continued lines
	lines   []string // output; "..." stands for any lines
	line    int      // line of the command in the page
	printed int      // line of the first line of output in the page
}

// sessionBlock has the commands of one block. All blocks of a page run in one shell.
type sessionBlock []exchange

// session returns the blocks of a page whose commands follow a dollar sign.
func session(t *testing.T, p page) (blocks []sessionBlock) {
	t.Helper()
	for _, b := range p.blocks {
		if b.language != "console" {
			continue
		}
		var of sessionBlock
		continued := false
		for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
			command, begins := strings.CutPrefix(line, "$ ")
			switch {
			case begins:
				of = append(of, exchange{command: command, line: b.line + i, printed: b.line + i + 1})
			case len(of) == 0:
				t.Fatalf("%s, line %d: output before the first command", p.name, b.line+i)
			case continued:
				last := &of[len(of)-1]
				last.command, last.printed = last.command+"\n"+line, last.printed+1
			default:
				of[len(of)-1].lines = append(of[len(of)-1].lines, line)
				continue
			}
			continued = continues(line)
		}
		blocks = append(blocks, of)
	}
	return blocks
}

// submittedID is the id of a task in a command that submits it, as a flag or in JSON.
var submittedID = regexp.MustCompile(`(?:\bwaybill submit .*--id |\{"id":")([^\s"]+)`)

// submittedIDs returns the ids of the tasks that a command submits.
func submittedIDs(command string) (ids []string) {
	for _, m := range submittedID.FindAllStringSubmatch(command, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// continues reports whether a command continues in the next line.
func continues(line string) bool { return strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|") }

// goAlone lists programs that plain `go test` may run: Waybill, and those that every machine has.
var goAlone = []string{"waybill", "cd", "cp", "cat", "echo", "rm", "sed", "head"}

// needsMore reports whether a block runs another program: Python, kcat, curl, the Go command.
func (b sessionBlock) needsMore() bool {
	return slices.ContainsFunc(b, func(x exchange) bool {
		return slices.ContainsFunc(shellCommands(x.command), func(words []string) bool { return !slices.Contains(goAlone, words[0]) })
	})
}

// varying maps output that differs between runs to placeholders.
var varying = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}`), "CLOCK"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|s|µs)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+/\d+\b`), "PLACE"},
	{regexp.MustCompile(`^([a-z]+-\d+ )\d+ \d+ `), "${1}P O "},
	{regexp.MustCompile(`\bprocess \d+\b`), "PROCESS"},
	{regexp.MustCompile(`\bevent \d+ of the task\b`), "event N of the task"}, // if the supervisor is late, it starts an attempt at once, without step.waiting
	{regexp.MustCompile(`": `), `":`},                                        // white space in JSON that is shown as received
	{regexp.MustCompile(`\bcreate-[0-9a-f]{8}\b`), "TRACKING"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH"},
	{regexp.MustCompile(`\bpartition \d+, offset \d+`), "PLACE"},
	{regexp.MustCompile(`-{3,}`), "-"},
	{regexp.MustCompile(` +`), " "},
}

func steady(line string) string {
	line = regexp.MustCompile(` +`).ReplaceAllString(strings.TrimSpace(line), " ")
	for _, v := range varying {
		line = v.pattern.ReplaceAllString(line, v.as)
	}
	return line
}

// matches reports whether the output is what the page shows.
func matches(shown, printed []string) bool {
	switch {
	case len(shown) == 0:
		return len(printed) == 0
	case shown[0] == "...":
		return matches(shown[1:], printed) || len(printed) > 0 && matches(shown, printed[1:])
	}
	return len(printed) > 0 && steady(shown[0]) == steady(printed[0]) && matches(shown[1:], printed[1:])
}

// shell runs the commands of one page in one shell, so that later commands see variables and processes of earlier ones.
type shell struct {
	in      io.Writer
	out     *bufio.Scanner
	toRun   *strings.Replacer // addresses in the page, to those in this test
	toShow  *strings.Replacer
	endMark string
}

// newShell starts a shell in a directory with the directories of the repository that pages name.
func newShell(t *testing.T, sys *local.System) *shell {
	t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"docs", "workflow"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	program, begin, path := "sh", ":", binary(t)
	if suite.All(t) {
		program, begin = "bash", "set -P"                                                      // job numbers are shown; `go run` needs the physical path
		if err := os.Symlink("/usr/bin/python3", filepath.Join(path, "python3")); err != nil { // Debian's Python, which has confluent_kafka
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"), "WAYBILL_BROKERS="+sys.Broker.Addr())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and all processes that it started
		_ = cmd.Wait()
	})
	console, service := strings.TrimPrefix(sys.Console, "http://"), freeAddress(t)
	_, port, err := net.SplitHostPort(service)
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{in: in, out: bufio.NewScanner(out), endMark: "END OF " + strconv.Itoa(cmd.Process.Pid),
		toRun: strings.NewReplacer("localhost:9092", sys.Broker.Addr(), "127.0.0.1:9092", sys.Broker.Addr(),
			"127.0.0.1:8080", console, "127.0.0.1:9001", service, "service.py 9001", "service.py "+port),
		toShow: strings.NewReplacer(console, "127.0.0.1:8080", service, "127.0.0.1:9001")}
	s.out.Buffer(nil, 16<<20)
	_, _ = s.run(t, begin)
	return s
}

// run runs a command, and returns its standard output and exit code.
func (s *shell) run(t *testing.T, command string) (printed []string, code int) {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s $?\"\n", s.toRun.Replace(command), s.endMark); err != nil {
		t.Fatal(err)
	}
	for s.out.Scan() {
		line := s.out.Text()
		before, end, ended := strings.Cut(line, s.endMark+" ")
		if !ended {
			printed = append(printed, s.toShow.Replace(line))
			continue
		}
		if before != "" { // the last line had no newline
			printed = append(printed, s.toShow.Replace(before))
		}
		code, err := strconv.Atoi(end)
		if err != nil {
			t.Fatal(err)
		}
		return printed, code
	}
	t.Fatalf("the shell ended: %v", s.out.Err())
	return nil, 0
}

// isReader reports whether a command reads a topic with kcat, which fails until the topic exists.
func isReader(command string) bool {
	return strings.HasPrefix(command, "kcat ") && strings.Contains(command, " -C ")
}

// saysWhatWaits reports whether a command says what a task waits for, which may still change.
func saysWhatWaits(command string) bool { return strings.HasPrefix(command, "waybill task why ") }

// saysHowOrdersEnded reports whether a command's exit code depends on how orders ended, and so may differ from 0.
func saysHowOrdersEnded(command string) bool {
	return slices.ContainsFunc(shellCommands(command), func(words []string) bool {
		return len(words) > 2 && words[0] == "waybill" && (words[1] == "submit" || words[1] == "task" && words[2] == "wait")
	})
}

// quickPages are the pages whose sessions run in plain `go test`.
var quickPages = []string{"README.md", "docs/tutorials/quickstart.md"}

// TestSessions runs the sessions of the pages, each page on a system of its own as `waybill up --demo` runs it. Each
// command prints what the page shows, except for varying output. Plain `go test` runs README and the first tutorial,
// without blocks that need more than Go.
func TestSessions(t *testing.T) {
	var commands atomic.Int32
	t.Cleanup(func() { // after the subtests of the pages
		if commands.Load() < 10 {
			t.Errorf("%d commands found: the test proves nothing", commands.Load())
		}
	})
	submittedBy := map[string]string{} // the page that submits a task, by its id
	for _, name := range pages(t) {
		p := readPage(t, name)
		blocks := session(t, p)
		for _, x := range slices.Concat(blocks...) {
			for _, id := range submittedIDs(x.command) {
				if other := submittedBy[id]; other != "" && other != name {
					t.Errorf("%s:%d submits %s, as %s does: a reader may follow both on one system", name, x.line, id, other)
				}
				submittedBy[id] = name
			}
		}
		if !suite.All(t) {
			if !slices.Contains(quickPages, name) {
				continue
			}
			blocks = slices.DeleteFunc(blocks, sessionBlock.needsMore)
		}
		if len(blocks) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			sh := newShell(t, startUpWith(t, events.DefaultPartitions, workflow.Order()))
			var fixes []fix
			for _, x := range slices.Concat(blocks...) {
				commands.Add(1)
				printed, code := sh.run(t, x.command)
				again := func() bool {
					return code != exitOK && (isReader(x.command) || saysWhatWaits(x.command)) || saysWhatWaits(x.command) && !*updatePages && !matches(x.lines, printed)
				}
				for deadline := time.Now().Add(suite.Patience); again() && time.Now().Before(deadline); {
					printed, code = sh.run(t, x.command)
				}
				if !matches(x.lines, printed) {
					if !*updatePages {
						t.Fatalf("%s:%d: $ %s\nprints\n%s\nand not\n%s", name, x.line, x.command, strings.Join(printed, "\n"), strings.Join(x.lines, "\n"))
					}
					fixes = append(fixes, fix{from: x.printed, to: x.printed + len(x.lines), lines: printed})
				}
				if code != exitOK && !(code == exitOther && strings.HasPrefix(x.command, "waybill workflow test ")) && !(saysHowOrdersEnded(x.command) && (code == exitError || code == exitUndone || code == exitRefused)) {
					t.Fatalf("%s:%d: $ %s: exit code %d", name, x.line, x.command, code)
				}
			}
			writeFixes(t, name, fixes)
		})
	}
}

// fix replaces the lines from..to-1 of a page.
type fix struct {
	from, to int
	lines    []string
}

// writeFixes writes the output of commands into a page.
func writeFixes(t *testing.T, name string, fixes []fix) {
	t.Helper()
	if len(fixes) == 0 {
		return
	}
	path := filepath.Join(repository, name)
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(src), "\n")
	for _, f := range slices.Backward(fixes) {
		for i := range f.lines {
			f.lines[i] = strings.TrimRight(f.lines[i], " ")
		}
		lines = slices.Replace(lines, f.from-1, f.to-1, f.lines...)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
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

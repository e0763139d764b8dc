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
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

var updatePages = flag.Bool("update-pages", false, "write what commands print into the sessions of the pages")

// exchange is a command of a page's session, and what it prints.
type exchange struct {
	command string   // as it is typed, continued lines included
	lines   []string // what it prints; "..." stands for any lines
	line    int      // in the page, of the command
	printed int      // in the page, of the first line of output
}

// sessionBlock are the commands of one block. They run in the shell that the page's other blocks run in.
type sessionBlock []exchange

// session reads the blocks of a page in which commands stand behind a dollar.
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

// continues reports whether a command goes on in the next line.
func continues(line string) bool { return strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|") }

// goAlone are the programs that plain `go test` may run: Waybill and what every machine has.
var goAlone = []string{"waybill", "cd", "cp", "cat", "echo", "rm", "sed", "head"}

// needsMore reports whether a block runs another program: Python, kcat, curl, the Go command.
func (b sessionBlock) needsMore() bool {
	return slices.ContainsFunc(b, func(x exchange) bool {
		return slices.ContainsFunc(shellCommands(x.command), func(words []string) bool { return !slices.Contains(goAlone, words[0]) })
	})
}

// varying is what differs from run to run, and its stand-in.
var varying = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "CLOCK"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|µs)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+/\d+\b`), "PLACE"},
	{regexp.MustCompile(`^([a-z]+-\d+ )\d+ \d+ `), "${1}P O "},
	{regexp.MustCompile(`\bprocess \d+\b`), "PROCESS"},
	{regexp.MustCompile(`\bevent \d+ of the task\b`), "event N of the task"}, // late, a supervisor starts an attempt at once: no step.waiting
	{regexp.MustCompile(`": `), `":`},                                        // of JSON that is shown as it came
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

// shell runs the commands of one page, as a reader's terminal does: what one command sets or starts, the next one finds.
type shell struct {
	in      io.Writer
	out     *bufio.Scanner
	toRun   *strings.Replacer // addresses of the page, as they are in this test
	toShow  *strings.Replacer
	endMark string
}

// newShell starts a shell in a folder with the folders of the repository that pages name.
func newShell(t *testing.T, sys *local) *shell {
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
	if suite.All() {
		program, begin = "bash", "set -P"                                                      // its jobs have numbers; `go run` wants the folder's real name
		if err := os.Symlink("/usr/bin/python3", filepath.Join(path, "python3")); err != nil { // Debian's, with confluent_kafka
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"), "WAYBILL_BROKERS="+sys.broker.Addr())
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
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with all that it started
		_ = cmd.Wait()
	})
	console, service := strings.TrimPrefix(sys.console, "http://"), freeAddress(t)
	_, port, err := net.SplitHostPort(service)
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{in: in, out: bufio.NewScanner(out), endMark: "END OF " + strconv.Itoa(cmd.Process.Pid),
		toRun: strings.NewReplacer("localhost:9092", sys.broker.Addr(), "127.0.0.1:9092", sys.broker.Addr(),
			"127.0.0.1:8080", console, "127.0.0.1:9001", service, "service.py 9001", "service.py "+port),
		toShow: strings.NewReplacer(console, "127.0.0.1:8080", service, "127.0.0.1:9001")}
	s.out.Buffer(nil, 16<<20)
	_, _ = s.run(t, begin)
	return s
}

// run runs a command and returns what it printed to standard output, and its exit code.
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
		if before != "" { // the last line had no end
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

// isReader reports whether a command reads a topic with kcat, which fails until there is one.
func isReader(command string) bool {
	return strings.HasPrefix(command, "kcat ") && strings.Contains(command, " -C ")
}

// saysHowOrdersEnded reports whether a command's exit code says how orders ended, which needn't be 0.
func saysHowOrdersEnded(command string) bool {
	return slices.ContainsFunc(shellCommands(command), func(words []string) bool {
		return len(words) > 2 && words[0] == "waybill" && (words[1] == "submit" || words[1] == "task" && words[2] == "wait")
	})
}

// The sessions of the pages, command by command, each page on a system of its own as `waybill up --demo` runs it:
// each command prints what is shown, times and places aside. Plain `go test` leaves out the blocks that need more than Go.
func TestSessions(t *testing.T) {
	var commands atomic.Int32
	t.Cleanup(func() { // when the pages' tests have ended
		if commands.Load() < 10 {
			t.Errorf("%d commands found: the test proves nothing", commands.Load())
		}
	})
	for _, name := range pages(t) {
		p := readPage(t, name)
		blocks := session(t, p)
		if !suite.All() {
			blocks = slices.DeleteFunc(blocks, sessionBlock.needsMore)
		}
		if len(blocks) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly it waits
			sh := newShell(t, startUpWith(t, events.DefaultPartitions, workflow.Order()))
			var fixes []fix
			for _, x := range slices.Concat(blocks...) {
				commands.Add(1)
				printed, code := sh.run(t, x.command)
				for deadline := time.Now().Add(patience); code != exitOK && isReader(x.command) && time.Now().Before(deadline); {
					printed, code = sh.run(t, x.command)
				}
				if !matches(x.lines, printed) {
					if !*updatePages {
						t.Fatalf("%s:%d: $ %s\nprints\n%s\nand not\n%s", name, x.line, x.command, strings.Join(printed, "\n"), strings.Join(x.lines, "\n"))
					}
					fixes = append(fixes, fix{from: x.printed, to: x.printed + len(x.lines), lines: printed})
				}
				if code != exitOK && !(saysHowOrdersEnded(x.command) && (code == exitError || code == exitUndone || code == exitRefused)) {
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

// writeFixes writes what commands print into a page.
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

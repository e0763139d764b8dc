package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// The tests in system_*_test.go test Waybill as a whole, through its public interfaces: the binary, in processes that
// are killed by signals. They observe it from outside: kcat on the raw log, the services' own ledger, the metrics page.

// product is the path of the binary, built once per test process. The file is unlinked after it is opened, so nothing
// is left however this process ends. In plain `go test` it is this test binary, which runs the same program: linking
// another one takes longer than all tests that start processes there.
var product = sync.OnceValues(func() (path string, err error) {
	if suite.Flag(0, 1) == 0 {
		return os.Executable()
	}
	dir, err := os.MkdirTemp("", "waybill-product-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path = filepath.Join(dir, "waybill")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	if productFile, err = os.Open(path); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), productFile.Fd()), nil
})

var productFile *os.File // keeps the unlinked file open; the garbage collector would close it

func productCommand(t *testing.T, ctx context.Context, env []string, args []string) *exec.Cmd {
	t.Helper()
	path, err := product()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Args[0] = "waybill"
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	// The kernel kills it if this process ends without its cleanup.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// process is a running waybill.
type process struct {
	name  string
	cmd   *exec.Cmd
	out   said // stdout and stderr
	ended chan struct{}
	err   error // valid once ended is closed
}

// startProcess starts a role, or up. It is killed at the end of the test. If the test failed, its last output is
// logged.
func startProcess(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{name: strings.Join(args, " "), ended: make(chan struct{})}
	p.out.more = make(chan struct{})
	p.cmd = productCommand(t, context.Background(), env, args)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("waybill %s (pid %d) said at last:\n%s", p.name, p.cmd.Process.Pid, p.out.tail(40))
		}
	})
	return p
}

// startRole starts a role and returns once it reports that it has started. As a platform does, it starts one again that no
// broker has answered.
func startRole(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		p := startProcess(t, env, args...)
		_, err := p.said("msg=started")
		switch {
		case err == nil:
			return p
		case !p.foundNoBroker() || time.Now().After(deadline):
			t.Fatal(err)
		}
	}
}

// foundNoBroker reports whether the process has ended because no broker answered.
func (p *process) foundNoBroker() bool {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode() == exitUnreachable
	default:
		return false
	}
}

// kill sends SIGKILL and waits until the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// stop sends SIGTERM and waits, as a platform does first. The process must exit with 0 or 130.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(suite.Patience):
		t.Fatalf("waybill %s didn't end on SIGTERM", p.name)
	}
	var ended *exec.ExitError
	if p.err != nil && !(errors.As(p.err, &ended) && ended.ExitCode() == exitInterrupted) {
		t.Errorf("waybill %s ended with %v", p.name, p.err)
	}
}

// await waits for the first line of output that contains text, and returns it.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	line, err := p.said(text)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// said is await with an error: the process has ended, or goes on without saying it.
func (p *process) said(text string) (string, error) {
	deadline := time.After(suite.Patience)
	for {
		line, more := p.out.find(text)
		if line != "" {
			return line, nil
		}
		select {
		case <-more:
		case <-p.ended:
			if line, _ := p.out.find(text); line != "" {
				return line, nil
			}
			return "", fmt.Errorf("waybill %s ended (%w) before it said %q", p.name, p.err, text)
		case <-deadline:
			return "", fmt.Errorf("waybill %s doesn't say %q", p.name, text)
		}
	}
}

var metricsPage = regexp.MustCompile(`http://[0-9.:]+/metrics`)

// metricsURL returns the URL of the metrics page that the process prints.
func (p *process) metricsURL(t *testing.T) string {
	t.Helper()
	line := p.await(t, "/metrics")
	url := metricsPage.FindString(line)
	if url == "" {
		t.Fatalf("waybill %s names no page of metrics: %s", p.name, line)
	}
	return url
}

// said collects the output of a process, by line.
type said struct {
	mu    sync.Mutex
	lines []string
	rest  []byte
	more  chan struct{} // closed and replaced when a line arrives
}

// saidLinesMax bounds the lines kept per process.
const saidLinesMax = 10_000

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		if s.lines = append(s.lines, string(s.rest[:i])); len(s.lines) > saidLinesMax {
			s.lines = s.lines[saidLinesMax/2:]
		}
		s.rest = s.rest[i+1:]
		close(s.more)
		s.more = make(chan struct{})
	}
}

func (s *said) find(text string) (line string, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if strings.Contains(line, text) {
			return line, s.more
		}
	}
	return "", s.more
}

func (s *said) tail(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines[max(0, len(s.lines)-n):], "\n")
}

// endsWith runs a command that is to end with a code, again while no broker answers it: a busy machine may keep a broker from
// that for longer than a command waits.
func endsWith(t *testing.T, code int, env []string, args ...string) (stdout, stderr string, got int) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		stdout, stderr, got = runWaybill(t, env, args...)
		if got != exitUnreachable || code == exitUnreachable || time.Now().After(deadline) {
			return stdout, stderr, got
		}
		t.Logf("again: waybill %s: %s", strings.Join(args, " "), stderr)
	}
}

// runWaybill runs a command to its end.
func runWaybill(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	cmd := productCommand(t, ctx, env, args)
	var out, note bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &note
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("waybill %s: no end within %s\n%s", strings.Join(args, " "), suite.Patience, &note)
	case err != nil && !errors.As(err, &ended):
		t.Fatal(err)
	}
	return out.String(), note.String(), cmd.ProcessState.ExitCode()
}

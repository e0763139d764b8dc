package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// logBytesMost bounds the part of a process's log that a failed test shows.
	logBytesMost = 6000
)

// process is a child process. Its methods may be called concurrently.
type process struct {
	spec  childSpec
	ready string // its output when it was ready: its name, or a broker's address
	began time.Time
	log   string // the file of its standard error

	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when the process has ended
	err   error         // its exit error; read it only after ended is closed

	mu    sync.Mutex
	lines []string      // lines that were not awaited yet
	more  chan struct{} // closed and replaced with each line
}

// startProcess starts a child and returns when it is ready. The child is killed at the end of the test. A failed test
// shows its log. dir has the log.
func startProcess(t *testing.T, dir string, spec childSpec) *process {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		p, err := spawn(dir, spec)
		if err != nil {
			t.Fatalf("start %s: %v", spec.Name, err)
		}
		t.Cleanup(func() {
			p.kill()
			if t.Failed() {
				t.Logf("--- %s (%v)\n%s", spec.Name, p.err, p.tail())
			}
		})
		p.ready, err = p.next("ready ", suite.Patience)
		switch {
		case err == nil:
			return p
		case !p.foundNoBroker() || time.Now().After(deadline):
			t.Fatalf("%s: %v", spec.Name, err)
		}
	}
}

// foundNoBroker reports whether no broker answered a process that has ended. A platform starts it again: the brokers are down,
// or a busy machine keeps them from it.
func (p *process) foundNoBroker() bool {
	return strings.Contains(p.tail(), "unreachable: no Kafka broker answers")
}

func spawn(dir string, spec childSpec) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.log", spec.Name, time.Now().UnixNano())))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{spec: spec, log: log.Name(), cmd: exec.Command(exe), ended: make(chan struct{}), more: make(chan struct{}), began: time.Now()}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	p.cmd.Stderr = log
	// The kernel kills it when its parent dies, even if it is stopped.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(stdout)
	return p, nil
}

// read reads the child's lines until it ends.
func (p *process) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// await returns the rest of the next line that begins with prefix.
func (p *process) await(t *testing.T, prefix string, within time.Duration) string {
	t.Helper()
	rest, err := p.next(prefix, within)
	if err != nil {
		t.Fatalf("%s: %v", p.spec.Name, err)
	}
	return rest
}

func (p *process) next(prefix string, within time.Duration) (string, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		p.mu.Lock()
		for i, line := range p.lines {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				p.lines = p.lines[i+1:]
				p.mu.Unlock()
				return rest, nil
			}
		}
		more := p.more
		p.mu.Unlock()
		select {
		case <-more:
		case <-p.ended:
			return "", fmt.Errorf("it ended (%w) without saying %q", p.err, prefix)
		case <-timer.C:
			return "", fmt.Errorf("it didn't say %q within %s", prefix, within)
		}
	}
}

// stopAt makes the child stop at the n-th pass of a point from now.
func (p *process) stopAt(t *testing.T, at point.Point, n int) {
	t.Helper()
	if _, err := fmt.Fprintf(p.stdin, "stop %s %d\n", at, n); err != nil {
		t.Fatalf("%s: %v", p.spec.Name, err)
	}
}

// awaitStop waits until the child has stopped itself at a point, with all its threads.
func (p *process) awaitStop(t *testing.T, at point.Point, within time.Duration) {
	t.Helper()
	p.await(t, "at "+string(at), within)
	p.awaitStopped(t)
}

// awaitStopped waits until every thread of the child is stopped. A signal reaches the threads one after another.
func (p *process) awaitStopped(t *testing.T) {
	t.Helper()
	if err := p.stoppedWithin(suite.Patience); err != nil {
		t.Fatalf("%s: %v", p.spec.Name, err)
	}
}

// stoppedWithin waits until the child is stopped, and checks each thread.
func (p *process) stoppedWithin(d time.Duration) error {
	if err := awaitStop(p.cmd.Process.Pid, d); err != nil {
		return err
	}
	running, err := p.runningThread()
	if err == nil && running != "" {
		err = fmt.Errorf("it was said to be stopped, and %s", running)
	}
	return err
}

// runningThread returns a thread that isn't stopped; empty: all are stopped.
func (p *process) runningThread() (string, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("it has no threads: %w", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		// The state follows the command, which is in parentheses.
		after := b[strings.LastIndexByte(string(b), ')')+1:]
		if state := strings.Fields(string(after))[0]; state != "T" {
			return fmt.Sprintf("%s is %s", name, state), nil
		}
	}
	return "", nil
}

// freeze sends SIGSTOP and returns when every thread is stopped.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	p.awaitStopped(t)
}

// thaw sends SIGCONT.
func (p *process) thaw(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v: %v", p.spec.Name, s, err)
	}
}

// kill sends SIGKILL and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// end terminates the child as a platform does, and waits for its end.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("%s ended with %v", p.spec.Name, p.err)
		}
	case <-time.After(suite.Patience):
		t.Fatalf("%s doesn't end within %s", p.spec.Name, suite.Patience)
	}
}

// hasEnded reports whether the child has ended, and its exit error.
func (p *process) hasEnded() (bool, error) {
	select {
	case <-p.ended:
		return true, p.err
	default:
		return false, nil
	}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > logBytesMost {
		b = append([]byte("..."), b[len(b)-logBytesMost:]...)
	}
	return string(b)
}

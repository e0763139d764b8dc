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
)

const (
	readyWithin = 30 * time.Second
	endWithin   = 30 * time.Second
	// logBytesMost is what a failing test shows of a process's log.
	logBytesMost = 6000
)

// process is a child, seen by its parent. Its methods may be called by many
// goroutines.
type process struct {
	spec  childSpec
	ready string // what it said when it was: its name, or a broker's address
	began time.Time
	log   string // file of its standard error

	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when it has
	err   error         // how; read after ended

	mu    sync.Mutex
	lines []string      // not awaited yet
	more  chan struct{} // closed and replaced with each line
}

// startProcess starts a child and returns when it is ready; it is killed with the
// test, whose failure shows its log. dir keeps the log.
func startProcess(t *testing.T, dir string, spec childSpec) *process {
	t.Helper()
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
	p.ready = p.await(t, "ready ", readyWithin)
	return p
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
	// It dies with its parent, stopped or not.
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

// read takes the child's lines until it ends.
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

// await returns what follows prefix in the next line that begins with it.
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

// stopAt has the child stop at the n-th pass of a point from now.
func (p *process) stopAt(t *testing.T, at point.Point, n int) {
	t.Helper()
	if _, err := fmt.Fprintf(p.stdin, "stop %s %d\n", at, n); err != nil {
		t.Fatalf("%s: %v", p.spec.Name, err)
	}
}

// awaitStop waits until the child has stopped itself at a point, and really has.
func (p *process) awaitStop(t *testing.T, at point.Point, within time.Duration) {
	t.Helper()
	p.await(t, "at "+string(at), within)
	p.awaitStopped(t)
}

// awaitStopped waits until every thread of the child is stopped: a signal takes
// its time to reach the last.
func (p *process) awaitStopped(t *testing.T) {
	t.Helper()
	if err := p.stoppedWithin(5 * time.Second); err != nil {
		t.Fatalf("%s: %v", p.spec.Name, err)
	}
}

// stoppedWithin waits until the child stands still, and looks whether it really
// does.
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

// runningThread names a thread that isn't stopped; empty: all are.
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

// freeze is SIGSTOP, and returns when every thread has.
func (p *process) freeze(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	p.awaitStopped(t)
}

// thaw is SIGCONT.
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

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.ended
}

// end asks the child to end, as a platform does, and waits.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("%s ended with %v", p.spec.Name, p.err)
		}
	case <-time.After(endWithin):
		t.Fatalf("%s doesn't end within %s", p.spec.Name, endWithin)
	}
}

// hasEnded reports whether the child has, and how.
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

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopDurationMax bounds the wait until a process is stopped after SIGSTOP.
const stopDurationMax = 5 * time.Second

// process is one child process. A goroutine waits for it to end and reaps it.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	ready chan struct{} // closed when the log shows readyLine
	done  chan struct{} // closed once it is reaped
}

// onSpawnThread runs start on the one thread that starts children. The kernel sends a child its parent-death signal
// when the thread that started it ends, even if the process lives on. The Go runtime may end any thread except one to
// which a goroutine is locked, and that goroutine never returns.
var onSpawnThread = sync.OnceValue(func() func(start func() error) error {
	type request struct {
		start func() error
		done  chan error
	}
	requests := make(chan request)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.done <- r.start()
		}
	}()
	return func(start func() error) error {
		r := request{start, make(chan error)}
		requests <- r
		return <-r.done
	}
})

// startProcess starts path, appends its output to the file logPath, and closes ready at the first line that contains
// readyLine.
func startProcess(dir, logPath, readyLine, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), log: log, ready: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Dir = dir
	out := &lineWatch{to: log, want: []byte(readyLine), seen: p.ready}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := onSpawnThread()(p.cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), log.Close())
	}
	go func() {
		// ProcessState has the exit status. A close error of the log can't be reported to anyone.
		_ = p.cmd.Wait()
		_ = log.Close()
		close(p.done)
	}()
	return p, nil
}

// signal sends sig to the process group of the process. It returns nil if the process has ended.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// terminate sends SIGTERM, and kills the process if it hasn't ended after grace.
func (p *process) terminate(grace time.Duration) error {
	// A stopped process handles SIGTERM only after SIGCONT.
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return p.kill()
	}
}

// pause sends SIGSTOP and returns once all threads of the process are stopped: they don't stop at the moment of the
// signal.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(stopDurationMax); ; {
		still, err := stopped(p.cmd.Process.Pid)
		if err != nil || still {
			return err
		}
		select {
		case <-p.done:
			return fmt.Errorf("process %d ended while it was being stopped", p.cmd.Process.Pid)
		case <-late:
			return fmt.Errorf("process %d runs on %v after SIGSTOP", p.cmd.Process.Pid, stopDurationMax)
		case <-tick.C:
		}
	}
}

// stopped reports whether all threads of pid are in state T.
func stopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// The format is "pid (name) S ...". The name may contain any character, so search from the end.
		if i := bytes.LastIndexByte(b, ')'); i < 0 || !bytes.HasPrefix(b[i+1:], []byte(" T")) {
			return false, nil
		}
	}
	return len(stats) > 0, nil
}

// lineWatch copies its input to another writer, and closes seen at the first line that contains want.
type lineWatch struct {
	to   io.Writer
	want []byte
	seen chan struct{}
	line []byte // the incomplete last line, until want is seen
}

func (w *lineWatch) Write(b []byte) (int, error) {
	if w.want != nil {
		w.line = append(w.line, b...)
		if bytes.Contains(w.line, w.want) {
			close(w.seen)
			w.want, w.line = nil, nil
		} else if i := bytes.LastIndexByte(w.line, '\n'); i >= 0 {
			w.line = append(w.line[:0], w.line[i+1:]...)
		}
	}
	return w.to.Write(b)
}

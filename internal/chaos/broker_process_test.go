package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// brokerEnv has the brokerSpec of a process that is a broker.
	brokerEnv   = "WAYBILL_CHAOS_BROKER"
	brokerReady = "the broker is ready"

	brokerSaidMax = 16 << 10 // bytes
)

// brokerSpec has the options of the embedded broker.
type brokerSpec struct{ DataDir, Listen, Advertise string }

// A process that has brokerEnv runs only the broker.
func init() {
	text := os.Getenv(brokerEnv)
	if text == "" {
		return
	}
	if err := runBrokerProcess(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runBrokerProcess(text string) error {
	var spec brokerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the parent ends
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return serveEmbedded(ctx, spec, func() { fmt.Println(brokerReady) })
}

// brokerProcess is the embedded broker as a child process of the test.
type brokerProcess struct {
	spec brokerSpec

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	log   brokerLog
}

// brokerLog keeps the last output of the broker's processes.
type brokerLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *brokerLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
	if over := l.text.Len() - brokerSaidMax; over > 0 {
		l.text.Next(over)
	}
}

func (b *brokerProcess) logged() string {
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	return strings.TrimSpace(b.log.text.String())
}

// Restart starts the broker unless it runs. It returns when the broker serves.
func (b *brokerProcess) Restart(ctx context.Context, _ int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running() {
		return nil
	}
	text, err := json.Marshal(b.spec)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), brokerEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil { // the parent holds the other end
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go b.listen(cmd, out, ready, ended)
	b.cmd, b.ended = cmd, ended
	select {
	case <-ready:
		return nil
	case <-ended:
		return fmt.Errorf("the embedded broker ended while starting (%v): %s", cmd.ProcessState, b.logged())
	case <-time.After(suite.Patience):
		return fmt.Errorf("the embedded broker doesn't serve after %v: %s", suite.Patience, b.logged())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen reads the output of a broker until it ends, and reaps it.
func (b *brokerProcess) listen(cmd *exec.Cmd, out io.Reader, ready, ended chan struct{}) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == brokerReady {
			close(ready)
		}
		b.log.add(lines.Text())
	}
	_ = cmd.Wait() // the result is in its ProcessState
	close(ended)
}

// running must be called with mu held.
func (b *brokerProcess) running() bool {
	if b.cmd == nil {
		return false
	}
	select {
	case <-b.ended:
		return false
	default:
		return true
	}
}

// signal sends a signal to the broker if it runs. If last is set, the signal ends the broker, and signal waits for its
// end.
func (b *brokerProcess) signal(sig syscall.Signal, last bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running() {
		return nil
	}
	if err := b.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to the embedded broker: %w", sig, err)
	}
	if !last {
		return nil
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(suite.Patience):
		return fmt.Errorf("the embedded broker goes on %v after %v: %s", suite.Patience, sig, b.logged())
	}
}

func (b *brokerProcess) Kill(int) error      { return b.signal(syscall.SIGKILL, true) }
func (b *brokerProcess) Terminate(int) error { return b.signal(syscall.SIGTERM, true) }
func (b *brokerProcess) Continue(int) error  { return b.signal(syscall.SIGCONT, false) }

// Pause returns when the process is stopped.
func (b *brokerProcess) Pause(int) error {
	if err := b.signal(syscall.SIGSTOP, false); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running() {
		return nil
	}
	return awaitStop(b.cmd.Process.Pid, suite.Patience)
}

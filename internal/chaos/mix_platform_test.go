package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	// The timeouts of all roles. With these a takeover takes seconds.
	mixSession, mixTransaction = 3 * time.Second, 5 * time.Second
	// slotAgain is the pause before the platform restarts an ended process. If processes end soon, it doubles up to
	// slotAgainMost.
	slotAgain     = 500 * time.Millisecond
	slotAgainMost = 2 * time.Second
	slotSoon      = 3 * time.Second
	slotLook      = 100 * time.Millisecond
	// slotStopMax bounds the time until a signal has stopped a process.
	slotStopMax = 5 * time.Second
)

// platform keeps processes running, as Kubernetes or systemd does: it restarts ended processes.
type platform struct {
	dir   string // of the logs
	slots []*slot
	note  func(format string, args ...any)

	mu      sync.Mutex
	extras  []*process // temporary members that aren't restarted
	crashes []string   // logs with a panic, and their text
	ended   int        // number of processes that ended without being killed
}

// slot holds one process at a time.
type slot struct {
	spec childSpec

	mu    sync.Mutex // held while the process is started, signalled or killed
	p     *process
	down  bool // it must not be restarted
	ours  bool // the test killed it
	since time.Time
	again time.Duration // pause before the next start
}

func newPlatform(dir string, specs []childSpec, note func(string, ...any)) *platform {
	f := &platform{dir: dir, note: note}
	for _, s := range specs {
		f.slots = append(f.slots, &slot{spec: s})
	}
	return f
}

// superviseSlots restarts ended processes until ctx ends.
func (f *platform) superviseSlots(ctx context.Context) {
	tick := time.NewTicker(slotLook)
	defer tick.Stop()
	for {
		for _, s := range f.slots {
			if s.mu.TryLock() {
				f.startIfNeeded(s)
				s.mu.Unlock()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// startIfNeeded starts a slot's process if it should run and doesn't. The caller holds the slot.
func (f *platform) startIfNeeded(s *slot) {
	if s.p != nil {
		gone, err := s.p.hasEnded()
		if !gone {
			return
		}
		if !s.ours {
			f.reportDeath(s.p, err)
		}
		if s.again = min(2*s.again, slotAgainMost); s.again == 0 || time.Since(s.p.began) > slotSoon {
			s.again = slotAgain
		}
		f.checkLog(s.p)
		s.p, s.ours, s.since = nil, false, time.Now()
	}
	if s.down || time.Since(s.since) < s.again {
		return
	}
	p, err := spawn(f.dir, s.spec)
	if err != nil { // an error of the machine, such as too little memory
		f.note("start %s: %v", s.spec.Name, err)
		s.since = time.Now()
		return
	}
	s.p = p
}

// reportDeath records a process that ended on its own. A role ends if it can't recover, and relies on the platform to
// restart it.
func (f *platform) reportDeath(p *process, err error) {
	said := strings.TrimSpace(p.tail())
	f.mu.Lock()
	f.ended++
	f.mu.Unlock()
	if p.foundNoBroker() {
		return
	}
	f.note("%s ended by itself after %s (%v): %s", p.spec.Name, time.Since(p.began).Round(time.Millisecond), err, said[strings.LastIndexByte(said, '\n')+1:])
}

// checkLog looks for forbidden text in a log. It deletes the log if there is none.
func (f *platform) checkLog(p *process) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
		if i := bytes.Index(text, []byte(bad)); i >= 0 {
			f.mu.Lock()
			f.crashes = append(f.crashes, fmt.Sprintf("%s: %s", p.spec.Name, text[i:min(len(text), i+logBytesMost)]))
			f.mu.Unlock()
			return
		}
	}
	_ = os.Remove(p.log) // a long run has thousands of logs
}

// kill kills the process of a slot with SIGKILL. hold prevents its restart. The caller holds the slot.
func (s *slot) kill(hold bool) {
	s.down = hold
	if s.p != nil {
		s.ours = true
		s.p.kill()
	}
}

// freeze stops the process. It returns false if the process has ended.
func (s *slot) freeze() bool {
	if s.p == nil {
		return false
	}
	if err := s.p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return false
	}
	return s.p.stoppedWithin(slotStopMax) == nil
}

func (s *slot) thaw() {
	if s.p != nil {
		_ = s.p.cmd.Process.Signal(syscall.SIGCONT) // it may have been killed
	}
}

// order makes the process stop or die at the n-th pass of a point.
func (s *slot) order(what string, at point.Point, n int) bool {
	if s.p == nil {
		return false
	}
	_, err := fmt.Fprintf(s.p.stdin, "%s %s %d\n", what, at, n)
	return err == nil
}

// startExtra starts a member that superviseSlots doesn't restart.
func (f *platform) startExtra(spec childSpec) (*process, error) {
	p, err := spawn(f.dir, spec)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extras = append(f.extras, p)
	return p, nil
}

// removeExtra kills an extra member and deletes its data.
func (f *platform) removeExtra(p *process) {
	p.kill()
	f.checkLog(p)
	_ = os.RemoveAll(p.spec.DataDir) // it isn't restarted
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range f.extras {
		if e == p {
			f.extras = append(f.extras[:i], f.extras[i+1:]...)
			return
		}
	}
}

// running returns when the processes of all slots have reported that they are ready.
func (f *platform) running(ctx context.Context) error {
	for _, s := range f.slots {
		if err := f.awaitReady(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (f *platform) awaitReady(ctx context.Context, s *slot) error {
	for {
		s.mu.Lock()
		p := s.p
		s.mu.Unlock()
		if p != nil && p.hasSaidReady() {
			return nil
		}
		select { // an ended process is replaced
		case <-ctx.Done():
			said := "it doesn't run"
			if p != nil {
				said = p.tail()
			}
			return fmt.Errorf("%s isn't ready: %s", s.spec.Name, said)
		case <-time.After(slotLook):
		}
	}
}

// hasSaidReady reports whether the process runs and has reported that it is ready.
func (p *process) hasSaidReady() bool {
	if gone, _ := p.hasEnded(); gone {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready != "" {
		return true
	}
	for _, line := range p.lines {
		if rest, ok := strings.CutPrefix(line, "ready "); ok {
			p.ready = rest
		}
	}
	return p.ready != ""
}

// killAll kills all processes.
func (f *platform) killAll() {
	f.mu.Lock()
	extras := f.extras
	f.mu.Unlock()
	for _, p := range extras {
		p.kill()
	}
	for _, s := range f.slots {
		s.mu.Lock()
		s.kill(true)
		s.mu.Unlock()
	}
}

// endAll terminates the processes of all slots in order. Its error names those that didn't end.
func (f *platform) endAll() error {
	var errs []error
	running := make([]*process, len(f.slots)) // superviseSlots clears the process of a slot when it ended
	for i, s := range f.slots {
		s.mu.Lock()
		if s.down, s.ours = true, true; s.p != nil {
			_ = s.p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
		running[i] = s.p
		s.mu.Unlock()
	}
	for i, p := range running {
		if p == nil {
			continue
		}
		name := f.slots[i].spec.Name
		select {
		case <-p.ended:
			if p.err != nil {
				errs = append(errs, fmt.Errorf("%s ended with %w: %s", name, p.err, p.tail()))
			}
		case <-time.After(suite.Patience):
			errs = append(errs, fmt.Errorf("%s doesn't end within %s:\n%s", name, suite.Patience, p.stacks()))
		}
	}
	return errors.Join(errs...)
}

// stacksMost bounds the bytes of a process's stacks that are shown.
const stacksMost = 60 << 10

// stacks ends a hanging process and returns its stacks.
func (p *process) stacks() string {
	from := int64(0)
	if info, err := os.Stat(p.log); err == nil {
		from = info.Size()
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended meanwhile
	select {
	case <-p.ended:
	case <-time.After(suite.Patience):
		p.kill()
		return "not even SIGQUIT ends it"
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[min(from, int64(len(text))):][:min(stacksMost, int64(len(text))-from)])
}

// clearState deletes a role's state.
func clearState(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// The system under test consists of processes of the product's binary, so that another build can be measured too.
const (
	rollNamespace  = "roll."
	rollAgent      = "shop"
	rollPartitions = events.DefaultPartitions
	rollSchedulers = 3
	rollWorkers    = "2"
	rollWorkflow   = `
workflow: shop
version: 1
complete_within: 2h
on_error: undo
defaults:
  complete_within: 20s
  retry: {max_attempts: 1000, backoff: 100ms, factor: 1.5, max: 1s}
steps:
  reserve: {agent: shop, operation: reserve, input: "${ input }", undo: {operation: release}}
  charge: {needs: [reserve], agent: shop, operation: charge, input: "${ input }", undo: {operation: refund}}
`
)

// rollSystem holds the processes of a system and their settings.
type rollSystem struct {
	t       *testing.T
	binary  string
	dir     string // for logs and stores
	access  rollAccess
	cfg     kafka.Config // of the test's own clients
	service *httptest.Server
	seen    *eventTimes
	load    *steadyLoad

	mu      sync.Mutex
	running map[string]*rollResult
}

// rollResult is one process of the binary.
type rollResult struct {
	args  []string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // set when it has ended
}

// newRollSystem creates topics, applies the workflow and starts every role.
func newRollSystem(t *testing.T, binary, dir string, access rollAccess, brokers []string) *rollSystem {
	t.Helper()
	s := &rollSystem{t: t, binary: binary, dir: dir, access: access, running: map[string]*rollResult{},
		cfg: kafka.Config{Brokers: brokers, Namespace: rollNamespace, ClientID: "roll"}}
	s.service = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a terminated agent may have closed it
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(s.service.Close)
	definition := filepath.Join(dir, "shop.yaml")
	if err := os.WriteFile(definition, []byte(rollWorkflow), 0o600); err != nil {
		t.Fatal(err)
	}
	s.command("topics", "create", "--partitions", fmt.Sprint(rollPartitions), "--agent", rollAgent)
	s.command("workflow", "apply", definition)
	s.seen = &eventTimes{next: map[int32]int64{}, at: map[int32][]time.Time{}, ended: map[string]bool{}, more: make(chan struct{})}
	for p := range int32(rollPartitions) {
		s.seen.next[p], s.seen.at[p] = 0, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { s.seen.follow(ctx, s.cfg) })
	t.Cleanup(func() { cancel(); following.Wait() })
	for i := range rollSchedulers {
		s.start(schedulerName(i))
	}
	for _, name := range []string{"supervisor-0", "supervisor-1", "agent-0", "agent-1"} {
		s.start(name)
	}
	return s
}

func schedulerName(i int) string { return fmt.Sprintf("scheduler-%d", i) }

// common adds the flags that every command needs.
func (s *rollSystem) common(args ...string) []string {
	args = append(args, "--brokers", strings.Join(s.access.brokers, ","), "--namespace", rollNamespace)
	return append(args, s.access.flags...)
}

// command runs one of the tools to its end. It retries, because a cluster that has just started may refuse the first
// requests.
func (s *rollSystem) command(args ...string) {
	s.t.Helper()
	var said []byte
	var err error
	for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		cmd := exec.Command(s.binary, s.common(args...)...)
		cmd.Env = rollEnvironment()
		if said, err = cmd.CombinedOutput(); err == nil {
			return
		}
	}
	s.t.Fatalf("waybill %s: %v\n%s", strings.Join(args, " "), err, said)
}

// start starts a process. Its name begins with its role.
func (s *rollSystem) start(name string) {
	s.t.Helper()
	var args []string
	switch role, _, _ := strings.Cut(name, "-"); role {
	case "scheduler":
		args = []string{"scheduler", "--instance", name, "--data-dir", filepath.Join(s.dir, name), "--workers", rollWorkers}
	case "supervisor":
		args = []string{"supervisor", "--instance", name, "--data-dir", filepath.Join(s.dir, name)}
	case "agent":
		args = []string{"agent", "http", "--agent", rollAgent, "--url", s.service.URL + "/{operation}"}
	}
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	p := &rollResult{args: s.common(args...), ended: make(chan struct{})}
	p.cmd = exec.Command(s.binary, p.args...)
	p.cmd.Env = rollEnvironment()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	s.mu.Lock()
	s.running[name] = p
	s.mu.Unlock()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
}

// end sends a signal to the named process and waits for its end.
func (s *rollSystem) end(name string, signal syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	p := s.running[name]
	s.mu.Unlock()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatalf("%s: %v", name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(suite.Patience):
		s.t.Fatalf("%s goes on %s after %v", name, suite.Patience, signal)
	}
}

// warnings returns the last warnings and errors of each process.
func (s *rollSystem) warnings() string {
	var b strings.Builder
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			continue
		}
		var lines [][]byte
		for _, line := range bytes.Split(text, []byte("\n")) {
			if bytes.Contains(line, []byte("level=WARN")) || bytes.Contains(line, []byte("level=ERROR")) {
				lines = append(lines, line)
			}
		}
		lines = lines[max(0, len(lines)-20):]
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(log), bytes.Join(lines, []byte("\n")))
	}
	return b.String()
}

// steadyLoad submits tasks at a rate, to each partition in turn. So a partition without events is one without a working
// scheduler.
type steadyLoad struct {
	producer *kafka.Producer
	ns       events.Namespace
	stop     context.CancelFunc
	done     chan struct{}

	sent   atomic.Int64
	failed atomic.Int64
	mu     sync.Mutex
	acked  map[string]time.Time // submission times by id
}

// steadily begins to submit tasks at the given rate per second.
func (s *rollSystem) steadily(rate int) {
	s.t.Helper()
	producer, err := kafka.OpenProducer(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(producer.Close)
	l := &steadyLoad{producer: producer, ns: s.cfg.Namespace, done: make(chan struct{}), acked: map[string]time.Time{}}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	s.load = l
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.submit(n)
			}
		}
	}()
	s.t.Cleanup(func() { l.stop(); <-l.done })
}

// submit sends task number n. Its id belongs to the partition with the number n modulo the partition count.
func (l *steadyLoad) submit(n int) {
	id := ""
	for salt := 0; ; salt++ {
		if id = fmt.Sprintf("r-%06d-%d", n, salt); int(events.Partition([]byte(id), rollPartitions)) == n%rollPartitions {
			break
		}
	}
	at := time.Now()
	r := events.Record{Topic: l.ns.Inbox(events.Tasks), Partition: -1, Key: []byte(id),
		Value: fmt.Appendf(nil, `{"id":%q,"workflow":"shop","input":{"order":%d}}`, id, n)}
	l.sent.Add(1)
	l.producer.SendAsync(context.Background(), r, func(_ events.Record, err error) {
		if err != nil {
			l.failed.Add(1)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.acked[id] = at
	})
}

// drained ends the load and waits until all acknowledged tasks have ended.
func (s *rollSystem) drained() {
	s.t.Helper()
	s.load.stop()
	<-s.load.done
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	if err := s.load.producer.Flush(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.load.mu.Lock()
	defer s.load.mu.Unlock()
	s.seen.await(s.t, "all tasks that were acknowledged end", suite.Patience, func() bool {
		for id := range s.load.acked {
			if !s.seen.ended[id] {
				return false
			}
		}
		return true
	})
}

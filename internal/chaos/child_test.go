package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
)

// childEnv has the childSpec, as JSON, of a test binary that is a child.
const childEnv = "WAYBILL_CHAOS_CHILD"

// The kinds of child.
const (
	brokerChild     = "broker" // the embedded one
	schedulerChild  = "scheduler"
	supervisorChild = "supervisor"
	agentChild      = "agent"
)

// childSpec configures a child.
type childSpec struct {
	Kind string
	// Name distinguishes the processes of a test. It is in their output and is their client id.
	Name string
	// Brokers and Namespace are for roles. DataDir is the data directory; empty: a temporary one (for a broker:
	// memory). Listen is a broker's address; empty: any port.
	Brokers   []string
	Namespace events.Namespace
	DataDir   string
	Listen    string
	// Instance is the id of a static member; empty: a dynamic one. OwnClock is for roles on the embedded broker.
	Instance             string
	OwnClock             bool
	Session, Transaction time.Duration // 0: the defaults
	Workers, MaxRunnable int           // of a scheduler
	// AnyNumber is for a scheduler. If it is set, the scheduler sends any number of requests to an agent, even if the
	// agent isn't running. Otherwise it observes the agent's capacity.
	AnyNumber bool
	// Agent is the name of the agent that the child serves. Service is the directory of its service (see service), or
	// its URL.
	Agent, Service string
	// FullDisk names a file. While the file exists, the disk of the stores is full.
	FullDisk string
	// Stop and Die map points to a number n. At the n-th pass from the start, the process stops or kills itself.
	Stop, Die map[point.Point]int
}

// runChild is the main of a child. It prints these lines on standard output
//
//	ready NAME    a role is about to run, under that name; a broker: its address
//	at POINT      printed just before the child stops or dies
//
// and obeys these lines on standard input
//
//	stop POINT N  at the N-th pass from now
//	die POINT N
//
// SIGTERM ends it cleanly.
func runChild(raw string) error {
	var s childSpec
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if s.Kind == brokerChild {
		return runBroker(ctx, s)
	}
	p := &pauses{out: os.Stdout, stop: s.Stop, die: s.Die}
	go p.readOrders(os.Stdin)
	return runRole(ctx, s, p)
}

func runBroker(ctx context.Context, s childSpec) error {
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	b, err := embedded.Start(embedded.Options{DataDir: s.DataDir, Listen: s.Listen})
	if err != nil {
		return err
	}
	b.Open()
	fmt.Println("ready", b.Addr())
	<-ctx.Done()
	return b.Close()
}

func runRole(ctx context.Context, s childSpec, p *pauses) error {
	cfg := kafka.Config{Brokers: s.Brokers, Namespace: s.Namespace, ClientID: s.Name, Dial: point.Dial(nil, p.pass)}
	seams := point.Seams(p.pass)
	seams.FS = s.disk()
	n, err := instance.Open(ctx, cfg, instance.Config{
		EndProcess: func(err error) { fmt.Fprintln(os.Stderr, err); os.Exit(1) },
		Name:       s.Instance, DataDir: s.DataDir, Metrics: instance.NewMetrics(), Session: s.Session, Transaction: s.Transaction,
		OwnClock: s.OwnClock, Seams: seams,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println("ready", n.Name)
	return n.Run(ctx, func(ctx context.Context) error {
		switch s.Kind {
		case schedulerChild:
			return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: s.Workers, MaxRunnable: s.MaxRunnable, ObserveCapacity: !s.AnyNumber})
		case supervisorChild:
			return n.StartSupervisor(ctx, 0)
		case agentChild:
			h, err := s.handler()
			if err != nil {
				return err
			}
			// The service isn't down when it fails as its input asks, so the circuit must not open.
			n.StartAgent(ctx, s.Agent, agent.DefaultConcurrency, agent.Breaker{Failures: math.MaxUint32}, h)
			return nil
		case indexChild:
			_, err := n.StartIndex(ctx, nil)
			return err
		}
		return fmt.Errorf("no kind of child: %q", s.Kind)
	})
}

// pauses holds the points at which a child stops or dies.
type pauses struct {
	out io.Writer

	mu        sync.Mutex
	stop, die map[point.Point]int // remaining passes
}

// pass is called at every point.
func (p *pauses) pass(at point.Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case count(p.die, at):
		p.reportStop(at)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case count(p.stop, at):
		p.reportStop(at)
		stopSelf()
	}
}

// count decrements the remaining passes and reports whether this was the last.
func count(left map[point.Point]int, at point.Point) bool {
	n, ok := left[at]
	if !ok {
		return false
	}
	left[at] = n - 1
	if n > 1 {
		return false
	}
	delete(left, at)
	return true
}

func (p *pauses) reportStop(at point.Point) {
	if _, err := fmt.Fprintln(p.out, "at", at); err != nil {
		fmt.Fprintln(os.Stderr, "the parent can't be told:", err)
	}
}

// stopSelf stops the process. It sends the signal to its own thread. If it were sent to the process, another thread
// might receive it, and this thread would continue for a moment, beyond the point.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP); err != nil {
		fmt.Fprintln(os.Stderr, "can't stop:", err)
	}
}

func (p *pauses) readOrders(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := p.order(lines.Text()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func (p *pauses) order(line string) error {
	words := strings.Fields(line)
	if len(words) != 3 {
		return fmt.Errorf("no order: %q", line)
	}
	n, err := strconv.Atoi(words[2])
	if err != nil {
		return fmt.Errorf("order %q: %w", line, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var to *map[point.Point]int
	switch words[0] {
	case "stop":
		to = &p.stop
	case "die":
		to = &p.die
	default:
		return fmt.Errorf("no order: %q", line)
	}
	if *to == nil {
		*to = map[point.Point]int{}
	}
	(*to)[point.Point(words[1])] = n
	return nil
}

// childMain runs a child if this process is one, and ends it.
func childMain() {
	raw, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	if err := runChild(raw); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

var (
	_ agent.Session         = (*agentsession.Session)(nil)
	_ agent.PartitionHolder = (*agentsession.Session)(nil)
)

// childEnv makes this binary an agent. Its value is "<brokers> <namespace>".
const childEnv = "WAYBILL_TEST_AGENT"

func TestMain(m *testing.M) {
	if where := os.Getenv(childEnv); where != "" {
		if err := runChild(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	kafkatest.Main(m)
}

// kafkaConfig returns the configuration of an agent with a real session.
func kafkaConfig(brokers []string, ns events.Namespace) agent.Config {
	clock := brokerclock.NewClock()
	return agent.Config{Source: "test", Namespace: ns, Clock: clock.Now,
		Open: func(ctx context.Context) (agent.Session, error) {
			return agentsession.Open(ctx, agentsession.Config{Config: kafka.Config{Brokers: brokers, Namespace: ns, Clock: clock},
				Group: ns.AgentGroup("payments"), Topic: ns.Requests("payments")})
		}}
}

// runChild serves until SIGTERM. Its handler prints "handling <task>" and waits for a line that names the task. The
// line names it because a request may be delivered twice. The handler that continues must not depend on which one reads
// first.
func runChild(where string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	brokers, ns, _ := strings.Cut(where, " ")
	may := childOutput{tasks: map[string]chan struct{}{}}
	go may.read(os.Stdin)
	return agent.Run(ctx, kafkaConfig(strings.Split(brokers, ","), events.Namespace(ns)),
		agent.HandlerFunc(func(_ context.Context, r agent.Request) (any, error) {
			fmt.Println("handling " + r.Task)
			<-may.waiterOf(r.Task)
			return "done", nil
		}))
}

// childOutput holds the tasks whose handlers may return.
type childOutput struct {
	mu    sync.Mutex
	tasks map[string]chan struct{} // closed when the task's line was read
}

func (d *childOutput) waiterOf(task string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks[task] == nil {
		d.tasks[task] = make(chan struct{})
	}
	return d.tasks[task]
}

func (d *childOutput) read(in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		close(d.waiterOf(lines.Text()))
	}
}

func TestRunOnARealSession(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		c := newContract(t, b)
		const requests = 200
		var calls atomic.Int32
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(c.ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- agent.Run(ctx, kafkaConfig(b.Addrs, c.ns), agent.HandlerFunc(func(context.Context, agent.Request) (any, error) {
					if calls.Add(1)%7 == 0 {
						return nil, agent.Transient(io.ErrUnexpectedEOF)
					}
					return 1, nil
				}))
			}()
			return func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		var asked []events.Record
		for i := range requests {
			asked = append(asked, c.request(fmt.Sprintf("o-%d", i), events.Do, 1, "charge", "{}", suite.Patience))
		}
		c.ask(asked...)
		stop := run()
		c.awaitReplies(requests)
		stop()
		// The next instance handles only new requests.
		before := calls.Load()
		stop = run()
		c.ask(c.request("new", events.Do, 1, "charge", "{}", suite.Patience))
		said := c.awaitReplies(requests + 1)
		stop()
		if len(said) != requests+1 || said["new/charge/do/1"] != "completed 1" || calls.Load() > before+2 {
			t.Errorf("%d replies, %d calls after the restart; new: %q", len(said), calls.Load()-before, said["new/charge/do/1"])
		}
	})
}

// An agent's process is stopped in its handler, beyond the request's complete-by, and continued. The handler returns,
// and nothing is sent.
func TestStoppedProcessRepliesNothingLate(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		c := newContract(t, b)
		c.mayRepeat = true // the group may remove the stopped process, and a slow one
		cmd := exec.CommandContext(c.ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(b.Addrs, ",")+" "+string(c.ns))
		cmd.Stderr = os.Stderr
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
		lines := bufio.NewReader(out)
		await := func(task string) {
			t.Helper()
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("the agent said %q: %v", line, err)
				}
				if line == "handling "+task+"\n" {
					return
				}
				t.Logf("before it handles %s, the agent says %q: a request came again", task, line)
			}
		}
		send := func(s syscall.Signal) {
			t.Helper()
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		// The agent owns its partition when it has replied to a first request.
		c.ask(c.request("o-1", events.Do, 1, "charge", "{}", suite.Patience))
		await("o-1")
		fmt.Fprintln(in, "o-1")
		c.awaitReplies(1)

		late := c.request("o-2", events.Do, 1, "charge", "{}", 15*time.Second) // a busy machine may need as long until it is handled
		completeBy, _ := late.Header(events.HeaderCompleteBy)
		by, err := time.Parse(time.RFC3339, completeBy)
		if err != nil {
			t.Fatal(err)
		}
		c.ask(late)
		await("o-2")
		send(syscall.SIGSTOP)
		awaitStopped(t, cmd.Process.Pid)
		fmt.Fprintln(in, "o-2") // the handler returns as soon as the process continues
		// Its estimate of the broker's clock is late by up to one round trip.
		<-time.After(time.Until(by) + 2*time.Second)
		send(syscall.SIGCONT)

		c.ask(c.request("o-3", events.Do, 1, "charge", "{}", suite.Patience))
		await("o-3")
		fmt.Fprintln(in, "o-3")
		said := c.awaitReplies(2)
		for n := 3; said["o-3/charge/do/1"] == ""; n++ {
			said = c.awaitReplies(n)
		}
		send(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, ok := said["o-2/charge/do/1"]; ok || said["o-3/charge/do/1"] == "" {
			t.Errorf("replied: %v", said)
		}
	})
}

// awaitStopped returns when all threads of the process are stopped.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "T") {
			return
		}
		<-tick.C
	}
	t.Fatal("the process doesn't stop")
}

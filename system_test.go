package waybill_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/sources"
	"github.com/waybill-run/waybill/internal/suite"
)

// system is Waybill in separate processes.
type system struct {
	*kafkatest.Broker
	ns      events.Namespace
	waybill string          // the binary
	console waybill.Console // the one that clients ask; no URL: none
	address string          // of the system's console
}

// TestSystem runs the public API, the example programs and the session of the docs as their readers would. It runs them
// against the roles of `waybill up`, and against separate processes on a cluster.
func TestSystem(t *testing.T) {
	suite.NeedAll(t, "the program, built")
	binary := goBuild(t, ".", "./cmd/waybill")
	t.Run(kafkatest.EmbeddedKind, func(t *testing.T) {
		t.Parallel()
		startUp(t, binary).test(t)
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		testKill(t, binary)
	})
	t.Run(kafkatest.KafkaKind, func(t *testing.T) {
		t.Parallel()
		startRoles(t, binary, kafkatest.Kafka(t)).test(t)
	})
}

// testKill kills all processes except the application's while tasks run. Acknowledged tasks are processed, and the
// application's calls continue.
func testKill(t *testing.T, binary string) {
	suite.NeedAll(t, "a process that is killed")
	const tasks = 400
	dir := t.TempDir()
	s, up := upAt(t, binary, dir, "127.0.0.1:0")
	ctx, c := within(t), s.open(t)
	stop := s.serve(t, "guide", agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return nil, nil }))
	orders := make([]waybill.Order, tasks)
	for i := range orders {
		orders[i] = waybill.Order{ID: fmt.Sprintf("kill-%d", i), Workflow: "tour"}
	}
	if err := c.Submit(ctx, orders...); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, tasks)
	for _, o := range orders {
		go func() {
			task, err := c.Wait(ctx, o.ID)
			if err == nil && task.State != waybill.Processed {
				err = fmt.Errorf("task %s is %s", o.ID, task.State)
			}
			ended <- err
		}()
	}
	for i := range orders {
		if i == 1 {
			up.end(syscall.SIGKILL)
			upAt(t, binary, dir, s.brokers())
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	stop() // while there is a broker, so that it can leave its group
}

func (s *system) test(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *system){
		"client": testClients, "many": testMany, "go program": testGoProgram, "python": testPython, "python killed": testPythonKilled, "python stopped": testPythonStopped, "kcat": testKcat,
		"circuit": testCircuit, "circuit of undos": testUndoCircuit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// definitions are the definitions of the tests and the examples.
var definitions = []string{"docs/examples/go/hello.yaml", "testdata/trip.yaml", "testdata/tour.yaml", "testdata/pay.yaml",
	"testdata/pay_python.yaml", "testdata/pay_stopped.yaml", "testdata/byhand.yaml",
	"testdata/beside.yaml", "testdata/broken.yaml", "testdata/undoing.yaml"}

// startUp starts a system on the embedded broker.
func startUp(t *testing.T, binary string) *system {
	t.Helper()
	s, _ := upAt(t, binary, t.TempDir(), "127.0.0.1:0")
	return s
}

// upAt starts `waybill up` and returns when clients can connect.
func upAt(t *testing.T, binary, dataDir, listen string) (*system, *process) {
	t.Helper()
	args := []string{"up", "--data-dir", dataDir, "--kafka-listen", listen}
	for _, d := range definitions {
		args = append(args, "--workflow", d)
	}
	up := start(t, binary, args...)
	said := up.listens(t, "Kafka", "console")
	return &system{Broker: &kafkatest.Broker{Kind: kafkatest.EmbeddedKind, Addrs: []string{said["Kafka"]}}, ns: events.DefaultNamespace, waybill: binary, address: said["console"]}, up
}

// startRoles starts a system of separate processes on a cluster.
func startRoles(t *testing.T, binary string, b *kafkatest.Broker) *system {
	s := &system{Broker: b, ns: b.Namespace(t), waybill: binary}
	where := []string{"--brokers", s.brokers(), "--namespace", string(s.ns)}
	s.run(t, binary, append([]string{"topics", "create"}, where...)...)
	start(t, binary, append([]string{"scheduler", "--log-level", "warn"}, where...)...)
	start(t, binary, append([]string{"supervisor", "--log-level", "warn"}, where...)...)
	console := start(t, binary, append([]string{"console", "--log-level", "warn", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, where...)...)
	s.address = console.listens(t, "console")["console"]
	// Apply the workflows while the roles run. Then the first tasks find their workflow and their agent.
	s.run(t, binary, append(append([]string{"workflow", "apply"}, definitions...), where...)...)
	return s
}

func (s *system) brokers() string { return strings.Join(s.Addrs, ",") }

func (s *system) config() waybill.Config {
	return waybill.Config{Brokers: s.Addrs, Namespace: string(s.ns), ClientID: "test", Console: s.console}
}

func (s *system) open(t *testing.T) *waybill.Client {
	t.Helper()
	c, err := waybill.Open(t.Context(), s.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	return ctx
}

// run runs a program to its end and returns its output. The program must succeed.
func (s *system) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(within(t), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", program, args, err, &out, &complaints)
	}
	return out.String()
}

// process is a program that the test started. Reading from it returns its standard output.
type process struct {
	*os.File
	cmd *exec.Cmd
}

// start runs a program until the end of the test. If the test fails, it shows the program's standard error.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = theirs, &complaints
	// The kernel kills it if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	p := &process{out, cmd}
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		out.Close()
		if t.Failed() {
			t.Logf("%s %q:\n%s", filepath.Base(program), args, &complaints)
		}
	})
	return p
}

// listens returns where a process says that it listens, by what.
func (p *process) listens(t *testing.T, what ...string) map[string]string {
	t.Helper()
	said := map[string]string{}
	for lines := bufio.NewScanner(p); len(said) < len(what) && lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && slices.Contains(what, words[0]) {
			said[words[0]] = words[1]
		}
	}
	if len(said) < len(what) {
		t.Fatalf("it did not say where it listens: %v", said)
	}
	return said
}

// end sends a signal and waits until the process has ended. It does nothing if the process has already ended.
func (p *process) end(sig os.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended
	stuck := time.AfterFunc(suite.Patience, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	_ = p.cmd.Wait() // the exit status isn't tested
}

// goBuild builds a program of the module in dir.
func goBuild(t *testing.T, dir, pkg string) string {
	t.Helper()
	if err := sources.Open("."); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", out, pkg) // takes minutes if nothing is in the build cache
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s in %s: %v\n%s", pkg, dir, err, said)
	}
	return out
}

package waybill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

// debianPython is the interpreter that has Debian's python3-confluent-kafka.
const debianPython = "/usr/bin/python3"

// testGoProgram builds the example program, a separate module, and runs it. The program must process the task.
func testGoProgram(t *testing.T, s *system) {
	suite.NeedAll(t, "a program that is built")
	const source = "docs/examples/go/main.go"
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 40 {
		t.Errorf("%s has %d lines: it is to be under 40", source, n)
	}
	program := goBuild(t, filepath.Dir(source), ".")
	var out bytes.Buffer
	cmd := exec.CommandContext(within(t), program)
	cmd.Env = append(os.Environ(), s.environment()...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	want := fmt.Sprintf("processed \"Hello, world! (said by process %d, key %shello-1/greet/do/1)\" <nil>\n", cmd.Process.Pid, s.ns)
	if err != nil || out.String() != want {
		t.Errorf("the program ended with %v and printed %q, want %q", err, &out, want)
	}
}

// environment returns the settings that waybill and the examples read from the environment.
func (s *system) environment() []string {
	return []string{"WAYBILL_BROKERS=" + s.brokers(), "WAYBILL_NAMESPACE=" + string(s.ns)}
}

// needPython skips the test in plain go test, which needs only Go. Otherwise it fails the test if the example can't
// run.
func needPython(t *testing.T) {
	t.Helper()
	suite.NeedAll(t, "Python")
	if out, err := exec.Command(debianPython, "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		t.Fatalf("%s has no confluent_kafka: apt-get install python3-confluent-kafka\n%s", debianPython, out)
	}
}

func pay(t *testing.T, c *waybill.Client, workflow, id string) {
	t.Helper()
	if err := c.Submit(within(t), waybill.Order{ID: id, Workflow: workflow, Input: map[string]int{"amount": 100}}); err != nil {
		t.Fatal(err)
	}
}

func processed(t *testing.T, c *waybill.Client, id, output string) waybill.Task {
	t.Helper()
	task, err := c.Wait(within(t), id)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Compact(&got, task.Output); err != nil || task.State != waybill.Processed || got.String() != output {
		t.Fatalf("task %s is %s with %s (error %v), want processed with %s", id, task.State, task.Output, task.Error, output)
	}
	return task
}

// testPython lets docs/examples/agent.py handle a step. The agent uses no code of Waybill.
func testPython(t *testing.T, s *system) {
	needPython(t)
	c := s.open(t)
	start(t, "/usr/bin/env", append(s.environment(), debianPython, "docs/examples/agent.py", "--agent", "cashier")...)
	pay(t, c, "pay-python", "py-1")
	processed(t, c, "py-1", `{"charge":"ch_1"}`)
}

// testPythonKilled kills the agent during a charge and restarts it. The step completes with the original idempotency
// key.
func testPythonKilled(t *testing.T, s *system) {
	needPython(t)
	c := s.open(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	slow := ledger + ".slow"
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		return start(t, debianPython, "testdata/slow_agent.py", "docs/examples/agent.py", ledger,
			"--brokers", s.brokers(), "--namespace", string(s.ns), "--agent", "payments")
	}
	key := string(s.ns) + "py-2/charge/do/1"
	first := run()
	pay(t, c, "pay", "py-2")
	awaitLine(t, ledger, fmt.Sprintf("begun %d %s", first.cmd.Process.Pid, key))
	first.end(syscall.SIGKILL)
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	second := run()
	task := processed(t, c, "py-2", `{"charge":"ch_1"}`)
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("begun %d %s\nbegun %d %s\ndone %[3]d %[4]s\n", first.cmd.Process.Pid, key, second.cmd.Process.Pid, key)
	if string(text) != want {
		t.Errorf("the ledger holds\n%swant\n%s", text, want)
	}
	if n := task.Steps[0].Attempt; n != 1 {
		t.Errorf("the step completed in attempt %d: the request was not delivered again", n)
	}
}

// testPythonStopped stops the agent during a charge for longer than its session. Then the group has removed it and
// rejects the commit of that charge. The agent must continue nevertheless.
func testPythonStopped(t *testing.T, s *system) {
	needPython(t)
	c := s.open(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	slow := ledger + ".slow"
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, debianPython, "testdata/slow_agent.py", "docs/examples/agent.py", ledger,
		"--brokers", s.brokers(), "--namespace", string(s.ns), "--agent", "stoppable")
	pay(t, c, "pay-stopped", "py-3")
	awaitLine(t, ledger, fmt.Sprintf("begun %d %spy-3/charge/do/1", p.cmd.Process.Pid, s.ns))
	signal := func(sig syscall.Signal) {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	s.awaitMembers(t, s.ns.AgentGroup("stoppable"), 0)
	if err := os.Remove(slow); err != nil {
		t.Fatal(err)
	}
	signal(syscall.SIGCONT)
	processed(t, c, "py-3", `{"charge":"ch_1"}`)
	pay(t, c, "pay-stopped", "py-4")
	processed(t, c, "py-4", `{"charge":"ch_2"}`)
}

// awaitMembers waits until a group has n members.
func (s *system) awaitMembers(t *testing.T, group string, n int) {
	t.Helper()
	admin, err := kafkaadmin.Open(kafka.Config{Brokers: s.Addrs, Namespace: s.ns})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for again := time.NewTicker(100 * time.Millisecond); ; <-again.C {
		switch g, err := admin.DescribeGroup(ctx, group); {
		case err != nil:
			t.Fatal(err)
		case len(g.Members) == n:
			return
		}
	}
}

// awaitLine waits until another process has written a line to a file.
func awaitLine(t *testing.T, file, line string) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if strings.Contains(string(text), line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s holds %q, no line %q", file, text, line)
		}
	}
}

// testKcat runs the session of docs/guides/agents.md. It runs once unchanged, and once without the partitioner that
// librdkafka needs to choose the right partition.
func testKcat(t *testing.T, s *system) {
	s.Kcat(t, "", "-V") // skips the test in plain go test, and fails it where there is no kcat
	look, answer, replies, take := kcatSession(t)
	c := s.open(t)
	type answered struct {
		id      string
		typed   func(string) string
		forward bool
	}
	for _, a := range []answered{
		{"kcat-1", func(line string) string { return line }, false},
		{misplacedID(t), func(line string) string { return strings.ReplaceAll(line, " -X partitioner=murmur2_random", "") }, true},
	} {
		pay(t, c, "byhand", a.id)
		shell := func(line string) string {
			t.Helper()
			line = strings.NewReplacer("localhost:9092", s.brokers(), "waybill.", string(s.ns), "payments", "teller", "o-1", a.id).Replace(a.typed(line))
			return s.run(t, "sh", "-c", line)
		}
		asked := ""
		for deadline := time.Now().Add(suite.Patience); !strings.Contains(asked, "key: "+a.id+"\n"); asked = shell(look) {
			if time.Now().After(deadline) {
				t.Fatalf("no request is shown:\n%s", asked)
			}
		}
		request := a.id + "/charge/do/1"
		for _, want := range []string{"ce_operation=charge", "ce_idempotencykey=" + string(s.ns) + request, "ce_request=" + request, "value: {\"amount\":100}"} {
			if !strings.Contains(asked, want) {
				t.Errorf("the request lacks %q:\n%s", want, asked)
			}
		}
		token := regexp.MustCompile("ce_request=" + regexp.QuoteMeta(request) + "/([A-Z0-9]+)").FindStringSubmatch(asked)
		if token == nil {
			t.Fatalf("the request has no token:\n%s", asked)
		}
		shell(strings.ReplaceAll(answer, "K5QW2MZT7C4NAXJ6RB3LDY5GHE", token[1]))
		processed(t, c, a.id, `{"charge":"ch_1"}`)
		said := ""
		for deadline := time.Now().Add(suite.Patience); !strings.Contains(said, a.id+" ") || !strings.Contains(said, "ce_outcome=completed"); said = shell(replies) {
			if time.Now().After(deadline) {
				t.Fatalf("the reply isn't shown:\n%s", said)
			}
		}
		if forwarded := s.forwarded(t, a.id); forwarded != a.forward {
			t.Errorf("the reply to %s was forwarded: %v, want %v", a.id, forwarded, a.forward)
		}
		if taken := shell(take); !strings.Contains(taken, `{"amount":100}`) {
			t.Errorf("the group's consumer printed %q", taken)
		}
	}
}

// kcatSession returns the commands of the page.
func kcatSession(t *testing.T) (look, answer, replies, take string) {
	t.Helper()
	page, err := os.ReadFile("docs/guides/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, session, ok := strings.Cut(string(page), "\n## By hand, with kcat\n")
	session, _, _ = strings.Cut(session, "\n## ")
	typed := regexp.MustCompile("(?s)```sh\n(.*?)\n```").FindAllStringSubmatch(session, -1)
	group := regexp.MustCompile("(?s)`(kcat [^`]*? -G [^`]*)`").FindStringSubmatch(session)
	if !ok || len(typed) != 3 || group == nil {
		t.Fatalf("docs/guides/agents.md: the session with kcat has %d commands and -G %v; this test types three and one", len(typed), group != nil)
	}
	return typed[0][1], typed[1][1], typed[2][1], strings.ReplaceAll(group[1], "\n", " ")
}

// misplacedID returns an id for which librdkafka's default partitioner (CRC-32) chooses another partition than
// Waybill's.
func misplacedID(t *testing.T) string {
	t.Helper()
	for i := 2; ; i++ {
		id := fmt.Sprintf("kcat-%d", i)
		if int32(crc32.ChecksumIEEE([]byte(id))%events.DefaultPartitions) != events.Partition([]byte(id), events.DefaultPartitions) {
			return id
		}
	}
}

// forwarded reports whether a reply for a task was forwarded.
func (s *system) forwarded(t *testing.T, task string) bool {
	t.Helper()
	for _, r := range s.ReadTopic(t, s.ns.Inbox(events.Replies)) {
		if _, hop := r.Header(events.HeaderHop); hop && string(r.Key) == task {
			return true
		}
	}
	return false
}

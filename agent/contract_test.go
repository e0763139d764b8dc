package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

const (
	pythonPath        = "/usr/bin/python3" // Debian's, which has the package confluent_kafka
	repliesPartitions = 12
)

// contract has the topics of one agent on a broker.
type contract struct {
	*testing.T
	broker *kafkatest.Broker
	ns     events.Namespace
	ctx    context.Context
	// mayRepeat: an agent may handle a request again, because it lost its partition before it committed that it had replied.
	mayRepeat bool
}

func newContract(t *testing.T, b *kafkatest.Broker) *contract {
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	c := &contract{T: t, broker: b, ns: b.Namespace(t), ctx: ctx}
	b.CreateTopics(t, 1, c.ns.Requests("payments"))
	b.CreateTopics(t, repliesPartitions, c.ns.Inbox(events.Replies))
	return c
}

// ask writes requests as a scheduler does.
func (c *contract) ask(records ...events.Record) {
	c.Helper()
	p, err := kafka.OpenProducer(kafka.Config{Brokers: c.broker.Addrs, Namespace: c.ns})
	if err != nil {
		c.Fatal(err)
	}
	defer p.Close()
	if err := p.Send(c.ctx, records...); err != nil {
		c.Fatal(err)
	}
}

func (c *contract) request(task string, kind events.Kind, attempt int, operation, value string, completeIn time.Duration) events.Record {
	q := events.Request{Task: task, Ref: events.RequestRef{Step: "charge", Kind: kind, Attempt: attempt}, Token: docToken, Operation: operation,
		CompleteBy: time.Now().Add(completeIn), IdempotencyKey: events.IdempotencyKey(c.ns, task, "charge", kind, 0), Value: []byte(value)}
	return q.Record(c.ns, "test", "payments", 0)
}

// check asks what became of a task's charge.
func (c *contract) check(task string) events.Record {
	of := events.CheckOf{IdempotencyKey: events.IdempotencyKey(c.ns, task, "charge", events.Do, 0), Input: json.RawMessage(`{"amount":5}`)}
	return c.request(task, events.Check, 1, "status", string(events.CheckValue(of)), suite.Patience)
}

// docToken is the token of the examples in docs/guides/agents.md.
const docToken = "K5QW2MZT7C4NAXJ6RB3LDY5GHE"

// awaitReplies waits for n replies and returns the outcome of each by its ce_request. Each reply must be decodable,
// must occur once unless it may repeat, and must be in the partition of its key.
func (c *contract) awaitReplies(n int) map[string]string {
	c.Helper()
	topic := c.ns.Inbox(events.Replies)
	c.broker.Kcat(c, "", "-C", "-t", topic, "-o", "beginning", "-c", fmt.Sprint(n), "-X", "isolation.level=read_committed")
	said := map[string]string{}
	for _, r := range c.broker.ReadTopic(c, topic) {
		task, in, err := events.DecodeInput(events.Replies, &r)
		if err != nil {
			c.Errorf("reply at %d/%d: %v", r.Partition, r.Offset, err)
			continue
		}
		rep := in.(*events.Reply)
		id := events.RequestID(task, rep.Ref)
		if rep.Token != docToken {
			c.Errorf("%s: replied with the token %q; it was asked with %q", id, rep.Token, docToken)
		}
		if said[id] != "" && !c.mayRepeat {
			c.Errorf("%s: replied twice", id)
		}
		said[id] = string(rep.Outcome) + " " + string(rep.Body)
		if rep.Ref.Kind == events.Check {
			if _, _, err := rep.Became(); err != nil {
				c.Errorf("%s: the answer %s can't be used: %v", id, rep.Body, err)
			}
		}
		if want := events.Partition(r.Key, repliesPartitions); string(r.Key) != task || r.Partition != want {
			c.Errorf("%s: key %q in partition %d; want the task's id in %d", id, r.Key, r.Partition, want)
		}
	}
	return said
}

// need fails the test if a program is missing.
func need(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s is missing: %v", what, err)
	}
}

// startPython runs the example agent. stop ends it with the signal that a platform sends.
func (c *contract) startPython() (stop func()) {
	c.Helper()
	need(c.T, "python3-confluent-kafka", exec.Command(pythonPath, "-c", "import confluent_kafka").Run())
	var said bytes.Buffer
	cmd := exec.CommandContext(c.ctx, pythonPath, filepath.Join("..", "docs", "examples", "agent.py"),
		"--brokers", strings.Join(c.broker.Addrs, ","), "--agent", "payments", "--namespace", string(c.ns))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	return func() {
		c.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			c.Errorf("stop the Python agent: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			c.Errorf("the Python agent: %v\n%s", err, &said)
		}
		c.Logf("the Python agent said:\n%s", &said)
	}
}

func TestPythonAgentKeepsTheContract(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		c := newContract(t, b)
		undo, err := events.UndoValue(events.UndoOf{IdempotencyKey: events.IdempotencyKey(c.ns, "o-1", "charge", events.Do, 0),
			Outcome: "completed", Input: json.RawMessage(`{"amount":5}`), Output: json.RawMessage(`{"charge":"ch_1"}`)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		never := `{"undo_of":{"idempotency_key":"never seen","outcome":"unknown","input":{"amount":5}}}`
		c.ask(
			c.request("o-late", events.Do, 1, "charge", `{"amount":5}`, -time.Second),
			events.Record{Topic: c.ns.Requests("payments"), Key: []byte("x"), Value: []byte("no request")},
			c.request("o-1", events.Do, 1, "charge", `{"amount":5}`, suite.Patience),
			c.request("o-1", events.Do, 2, "charge", `{"amount":5}`, suite.Patience),
			c.request("o-2", events.Do, 1, "charge", `{"amount":0}`, suite.Patience),
			c.request("o-3", events.Do, 1, "teleport", `{}`, suite.Patience),
			c.request("o-4", events.Do, 1, "charge", `{"amount":"five"}`, suite.Patience),
			c.check("o-1"),
			c.check("o-2"),
			c.check("o-7"),
			c.request("o-1", events.Undo, 1, "refund", string(undo), suite.Patience),
			c.request("o-1", events.Do, 3, "charge", `{"amount":5}`, suite.Patience),
			c.request("o-5", events.Undo, 1, "refund", never, suite.Patience),
		)
		stop := c.startPython()
		want := map[string]string{
			"o-1/charge/do/1":    `completed {"charge": "ch_1"}`,
			"o-1/charge/do/2":    `completed {"charge": "ch_1"}`,
			"o-1/charge/do/3":    `rejected {"code": "rejected", "message": "it was undone before it arrived"}`,
			"o-2/charge/do/1":    `rejected {"code": "rejected", "message": "the amount must be positive"}`,
			"o-3/charge/do/1":    `rejected {"code": "rejected", "message": "no operation teleport"}`,
			"o-4/charge/do/1":    `failed `,
			"o-1/charge/check/1": `completed {"outcome": "completed", "output": {"charge": "ch_1"}}`,
			"o-2/charge/check/1": `completed {"outcome": "none"}`,
			"o-7/charge/check/1": `completed {"outcome": "none"}`,
			"o-1/charge/undo/1":  `completed {"refunded": true}`,
			"o-5/charge/undo/1":  `completed {"refunded": false}`,
		}
		c.awaitReplies(len(want))
		stop()

		// Committed requests are not handled again: a second instance adds one reply.
		stop = c.startPython()
		c.ask(c.request("o-6", events.Do, 1, "charge", `{"amount":5}`, suite.Patience))
		want["o-6/charge/do/1"] = `completed {"charge": "ch_1"}`
		said := c.awaitReplies(len(want))
		stop()
		for id, w := range want {
			if !strings.HasPrefix(said[id], w) {
				t.Errorf("%s: %q; want %q", id, said[id], w)
			}
			delete(said, id)
		}
		for id, s := range said {
			t.Errorf("%s: nobody asked, or too late: %s", id, s)
		}
	})
}

// The commands of the page run unchanged, except for the broker's address and the namespace.
func TestKcatSessionOfThePage(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		_, err := exec.LookPath("kcat")
		need(t, "kcat", err)
		c := newContract(t, b)
		page, err := os.ReadFile(filepath.Join("..", "docs", "guides", "agents.md"))
		if err != nil {
			t.Fatal(err)
		}
		var commands []string
		for _, part := range strings.Split(string(page), "```sh\n")[1:] {
			command, _, _ := strings.Cut(part, "```")
			commands = append(commands, command)
		}
		if len(commands) != 3 {
			t.Fatalf("the page has %d commands; this test knows 3", len(commands))
		}
		c.ask(c.request("o-1", events.Do, 1, "charge", `{"amount":100}`, suite.Patience))
		sh := func(command string) string {
			t.Helper()
			command = strings.NewReplacer("localhost:9092", strings.Join(b.Addrs, ","), "waybill.", string(c.ns)).Replace(command)
			cmd := exec.CommandContext(c.ctx, "sh", "-c", command)
			var complaints bytes.Buffer
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v\n%s", command, err, &complaints)
			}
			return string(out)
		}
		if asked := sh(commands[0]); !strings.Contains(asked, "key: o-1\n") || !strings.Contains(asked, "ce_request=o-1/charge/do/1/"+docToken) ||
			!strings.Contains(asked, `value: {"amount":100}`) {
			t.Errorf("what is asked:\n%s", asked)
		}
		sh(commands[1])
		if said := c.awaitReplies(1); said["o-1/charge/do/1"] != `completed {"charge":"ch_1"}` {
			t.Errorf("%v", said)
		}
		if shown := sh(commands[2]); !strings.Contains(shown, "ce_outcome=completed") || !strings.Contains(shown, `{"charge":"ch_1"}`) {
			t.Errorf("what became of it:\n%s", shown)
		}
	})
}

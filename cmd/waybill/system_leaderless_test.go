package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// loneWorkflow has one step, of the simulated payments.
const loneWorkflow = `workflow: lone
version: 1
complete_within: 10m
steps:
  charge: {agent: payments, operation: charge, complete_within: 3s, retry: {max_attempts: 20}, input: {amount: 1, card: tok}}
`

// The node with the only copies of some partitions goes, and then every role is started again.
// Tasks of the other numbers go on, a console answers for them, and the doctor says what is
// wrong. When the node is back, so are the rest. Then it goes while all roles run, with requests
// on their way to it.
func TestNodeWithTheOnlyCopyGone(t *testing.T) {
	t.Parallel() // mostly it waits
	nodes := kafkatest.KafkaNodes(t, 3, nil)
	b := kafkatest.Of(nodes)
	s := &system{broker: b, ns: b.Namespace(t), partitions: 6}
	s.waybill(t, exitOK, "topics", "create", "--partitions", "6", "--replication", "1")
	s.waybill(t, exitOK, "workflow", "apply", writeFile(t, "lone.yaml", []byte(loneWorkflow)))
	const gone = 2 // it leads partitions 2 and 5
	b.Place(t, s.ns, func(topic string, p int32) int32 {
		switch {
		case slices.Contains(s.ns.InboxTopics(), topic) || topic == s.ns.Events():
			return p % 3
		case topic == s.ns.Requests("payments"):
			return (p + 1) % 3 // by the node that goes those of tasks that go on
		}
		return p % 2
	})
	led, unled := s.lone("lone", gone)
	shop := openShop(t, nil)
	s.start(t, "agent", "http", "--agent", "payments", "--url", shop.url+"/payments/{operation}", "--session-timeout", shortSession)
	dir := t.TempDir()
	running := s.stateful(t, dir)
	console := consoleAt(t, running[0])
	console.processes(t, s, led[0], unled[0])
	for _, p := range running {
		p.stop(t)
	}
	if err := nodes.Kill(gone); err != nil {
		t.Fatal(err)
	}
	console = consoleAt(t, s.stateful(t, dir)[0])
	console.processes(t, s, led...)
	console.await(t, "the agents", "/agents", func(body string) bool { return strings.Contains(body, "payments") })
	console.await(t, "the alerts", "/alerts", func(body string) bool { return strings.Contains(body, `"alerts":[]`) })
	console.await(t, "the partitions", "/partitions", func(body string) bool { return strings.Contains(body, `"missing_partitions":[2,5]`) })
	s.waybill(t, exitOK, "task", "why", led[0])
	if out := s.waybill(t, exitOther, "doctor"); !strings.Contains(out, "none leads partitions [2 5] of "+s.ns.Events()) {
		t.Errorf("the doctor: %s", out)
	}

	if err := nodes.Restart(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	console.await(t, "all partitions", "/partitions", func(body string) bool { return strings.Contains(body, `"missing_partitions":[]`) })
	console.processes(t, s, unled...)

	led, unled = s.lone("running", gone)
	s.waybill(t, exitOK, "submit", "--workflow", "lone", "--id", unled[0])
	if err := nodes.Kill(gone); err != nil {
		t.Fatal(err)
	}
	console.processes(t, s, led...)
	if err := nodes.Restart(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	console.processes(t, s, unled[1:]...)
	console.ended(t, unled[0])
	shop.end(t)
}

// lone are ids of tasks whose partitions a node leads, and some of others.
func (s *system) lone(name string, node int32) (others, its []string) {
	for i := 0; len(others) < 6 || len(its) < 2; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); events.Partition([]byte(id), s.partitions)%3 == node {
			its = append(its, id)
		} else {
			others = append(others, id)
		}
	}
	return others, its
}

// stateful starts a console, a scheduler and a supervisor.
func (s *system) stateful(t *testing.T, dir string) (started []*process) {
	t.Helper()
	for _, args := range [][]string{{"console", "--listen", "127.0.0.1:0"}, {"scheduler"}, {"supervisor"}} {
		started = append(started, s.start(t, append(args, "--data-dir", filepath.Join(dir, args[0]), "--session-timeout", shortSession)...))
	}
	return started
}

// processes submits orders, and waits for their ends.
func (c *consoleClient) processes(t *testing.T, s *system, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.waybill(t, exitOK, "submit", "--workflow", "lone", "--id", id)
	}
	for _, id := range ids {
		c.ended(t, id)
	}
}

func (c *consoleClient) ended(t *testing.T, id string) {
	t.Helper()
	c.await(t, "the end of "+id, "/tasks/"+id+"?min_offset=end", func(body string) bool { return strings.Contains(body, `"state":"processed"`) })
}

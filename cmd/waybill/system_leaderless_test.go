package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// loneWorkflow has one step, on the simulated payments service.
const loneWorkflow = `workflow: lone
version: 1
complete_within: 2h
steps:
  charge: {agent: payments, operation: charge, complete_within: 3s, retry: {max_attempts: 1000}, input: {amount: 1, card: tok}}
`

// TestNodeWithTheOnlyCopyGone stops the node with the only replicas of some partitions, and then restarts every role.
// Tasks in other partitions continue, a console serves them, and the doctor says what is wrong. Once the node is back,
// the other tasks continue. Then the node is stopped while all roles run and requests to it are in flight.
func TestNodeWithTheOnlyCopyGone(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel() // it mostly waits
	nodes := kafkatest.KafkaNodes(t, 3, nil)
	b := kafkatest.FromCluster(nodes)
	const gone = 2 // leads partitions 2 and 5, and coordinates the supervisors' group
	s := &system{broker: b, partitions: 6}
	s.ns = b.NamespaceCoordinatedBy(t, gone+1, events.Namespace.SupervisorGroup)
	s.waybill(t, exitOK, "topics", "create", "--partitions", "6", "--replication", "1")
	s.waybill(t, exitOK, "workflow", "apply", writeFile(t, "lone.yaml", []byte(loneWorkflow)))
	b.AssignPartitions(t, s.ns, func(topic string, p int32) int32 {
		switch {
		case slices.Contains(append(s.ns.InboxTopics(), s.ns.Events(), s.ns.Alerts(), s.ns.Deadletters()), topic):
			return p % 3
		case topic == s.ns.Requests("payments"):
			return (p + 1) % 3 // the killed node leads request partitions 1 and 4, whose tasks must continue
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
	for _, p := range running[1:] {
		p.stop(t)
	}
	if err := nodes.Kill(gone); err != nil {
		t.Fatal(err)
	}
	console.saysWhoIsMissing(t, unled[0], events.Partition([]byte(unled[0]), s.partitions))
	_, written := s.lone("written", gone)
	console.saysWhatMayNotBeWritten(t, unled[0], written[0])
	running[0].stop(t)
	console = consoleAt(t, s.stateful(t, dir)[0])
	console.processes(t, s, led...)
	s.listsTheRest(t, console, led, unled[0])
	console.await(t, "the agents", "/agents", func(body string) bool { return strings.Contains(body, "payments") })
	console.await(t, "the alerts", "/alerts?min_offset=end", func(body string) bool {
		return strings.Contains(body, `"alerts":[]`) && lacksLeaders(body)
	})
	console.await(t, "the dead letters", "/deadletters", lacksLeaders)
	console.await(t, "the partitions", "/partitions", lacksLeaders)
	s.waybill(t, exitOK, "task", "why", led[0])
	out := s.waybill(t, exitOther, "doctor")
	if !strings.Contains(out, "partitions [2 5] of "+s.ns.Events()+" have no leader") || !strings.Contains(out, "2; [3] are unavailable") {
		t.Errorf("the doctor: %s", out)
	}

	if err := nodes.Restart(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	console.await(t, "all partitions", "/partitions", func(body string) bool { return strings.Contains(body, `"incomplete":[]`) })
	console.processes(t, s, unled...)

	led, unled = s.lone("running", gone)
	s.waybill(t, exitOK, "submit", "--workflow", "lone", "--id", unled[0])
	if err := nodes.Kill(gone); err != nil {
		t.Fatal(err)
	}
	console.processes(t, s, led...)
	console.await(t, "the tasks, by a console that had read all partitions", "/tasks", lacksLeaders)
	if err := nodes.Restart(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	console.await(t, "the tasks", "/tasks", func(body string) bool { return strings.Contains(body, `"incomplete":[]`) })
	console.processes(t, s, unled[1:]...)
	console.ended(t, unled[0])
	shop.end(t)
}

// lacksLeaders reports whether a response lacks exactly partitions 2 and 5, with the reason that they have no leader.
func lacksLeaders(body string) bool {
	return regexp.MustCompile(`"incomplete":\[\{"partition":2,"why":"no_leader","restored":[01]\},\{"partition":5,"why":"no_leader","restored":[01]\}\]`).MatchString(body)
}

// lone returns ids of tasks whose partitions are led by the node, and ids of others.
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

// answeredMost is how long the console may take to refuse a request. It waits up to 5 s for the brokers.
const answeredMost = time.Minute

// saysWhoIsMissing asks a console for a task that it has indexed and whose partition has lost its only node. It retries
// until the cluster has detected the failure.
func (c *consoleClient) saysWhoIsMissing(t *testing.T, id string, p int32) {
	t.Helper()
	want := regexp.MustCompile(fmt.Sprintf("no broker leads partition %d[^0-9]", p))
	for deadline := time.Now().Add(suite.Patience); ; {
		began := time.Now()
		status, body := c.ask(t, http.MethodGet, "/tasks/"+id, "")
		took := time.Since(began)
		if status != http.StatusServiceUnavailable || took > answeredMost {
			t.Fatalf("after %v: %d %s", took, status, body)
		}
		t.Logf("answered after %v: %s", took.Round(time.Millisecond), body)
		if want.MatchString(body) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("want %s in %s", want, body)
		}
	}
}

// saysWhatMayNotBeWritten has a console write a command and an order to a partition whose only node is down.
func (c *consoleClient) saysWhatMayNotBeWritten(t *testing.T, task, order string) {
	t.Helper()
	for path, body := range map[string]string{"/tasks": `{"id":"` + order + `","workflow":"lone"}`, "/tasks/" + task + "/cancel": `{"reason":"test","request_id":"r-1"}`} {
		began := time.Now()
		status, said := c.ask(t, http.MethodPost, path, body)
		took := time.Since(began)
		if status != http.StatusServiceUnavailable || took > answeredMost || !strings.Contains(said, "may not have been written") || !strings.Contains(said, "no broker leads partition") ||
			!strings.Contains(said, "again") {
			t.Errorf("%s: after %v: %d %s", path, took, status, said)
		}
	}
}

// listsTheRest checks that the tools list what can be read, with the exit code for an incomplete answer. A task in
// another partition is served as usual.
func (s *system) listsTheRest(t *testing.T, console *consoleClient, led []string, unled string) {
	t.Helper()
	for _, api := range []string{"off", console.url} {
		for _, args := range [][]string{{"task", "list", "-o", "json"}, {"task", "list"}, {"alerts"}, {"alerts", "--open"}, {"deadletters"}} {
			out, note, code := runWaybill(t, s.env(), append(args, "--api", api)...)
			if code != exitUnreachable || !strings.Contains(note, "[2 5]") && !strings.Contains(note, "partition 2, 5 of") {
				t.Errorf("%v of %s: exit code %d, %s", args, api, code, note)
			}
			for _, id := range led {
				if args[0] == "task" && !strings.Contains(out, id) {
					t.Errorf("%v of %s: %s is missing in %s", args, api, id, out)
				}
			}
		}
		s.waybill(t, exitOK, "timeline", led[0], "--api", api)
		began := time.Now()
		_, note, code := runWaybill(t, s.env(), "timeline", unled, "--api", api)
		if code != exitUnreachable || !strings.Contains(note, "no broker leads") || time.Since(began) > answeredMost {
			t.Errorf("timeline of %s, of %s: exit code %d after %v, %s", unled, api, code, time.Since(began), note)
		}
	}
	s.waybill(t, exitTimeout, "submit", "--workflow", "lone", "--id", unled, "--wait", "--timeout", "2s") // its write isn't acknowledged
	again := led[0]                                                                                       // the same task again: changes nothing
	s.waybill(t, exitOK, "submit", "--workflow", "lone", "--id", again, "--wait")
	s.waybill(t, exitOK, "task", "wait", again)
}

// stateful starts a console, a scheduler and a supervisor.
func (s *system) stateful(t *testing.T, dir string) (started []*process) {
	t.Helper()
	for _, args := range [][]string{{"console", "--listen", "127.0.0.1:0", "--allow-loopback-operator"}, {"scheduler", "--session-timeout", shortSession},
		{"supervisor", "--session-timeout", shortSession}} {
		started = append(started, s.start(t, append(args, "--data-dir", filepath.Join(dir, args[0]))...))
	}
	return started
}

// processes submits orders and waits until they end.
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

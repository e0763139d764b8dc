package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// attemptsOfKilled is more than a busy machine takes for a step while schedulers are killed: each attempt has 3 s.
const attemptsOfKilled = 50

// TestTimelinesAfterKilledSchedulers kills schedulers ten times under load, amid transactions. For every task, a
// console then shows what kcat reads as committed: the timeline, the state, and why the task is in that state.
func TestTimelinesAfterKilledSchedulers(t *testing.T) {
	suite.NeedAll(t, "processes that are killed")
	t.Parallel()
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		t.Parallel()
		const tasks, kills = 1100, 10
		s := onBroker(t, b, quickWorkflow(t, "quick", "undo", attemptsOfKilled))
		shop := openShop(t, nil)
		orders := demo.Orders(tasks, 11, false)
		scheduler := func() *process { return s.start(t, "scheduler", "--session-timeout", shortSession) }
		s.agents(t, shop)
		s.start(t, "supervisor", "--session-timeout", shortSession)
		schedulers := []*process{scheduler(), scheduler()}
		seen := observe(t, s)
		file := ordersFile(t, orders, "quick")
		startProcess(t, s.env(), "submit", "-f", file)
		for i := range kills {
			seen.awaitEnded(t, (i+1)*tasks/(kills+1))
			schedulers[i%2].kill()
			schedulers[i%2] = scheduler()
		}
		s.waybill(t, exitOK, "submit", "-f", file, "--wait")
		console := consoleAt(t, s.start(t, "console", "--listen", "127.0.0.1:0", "--allow-loopback-operator"))
		console.await(t, "all partitions", "/partitions", func(body string) bool { return strings.Contains(body, `"incomplete":[]`) })
		console.hasWhatKcatReads(t, s, orders)
		listed := s.waybill(t, exitOK, "task", "list", "--api", console.url, "--limit", strconv.Itoa(2*tasks), "-o", "jsonl")
		if n := strings.Count(listed, "\n"); n != tasks {
			t.Errorf("task list has %d tasks of %d", n, tasks)
		}
	})
}

// hasWhatKcatReads compares a console's answers for each order with the log that kcat reads.
func (c *consoleClient) hasWhatKcatReads(t *testing.T, s *system, orders []demo.Order) {
	t.Helper()
	offsets := map[string][]string{}
	for _, r := range s.broker.ReadTopic(t, s.ns.Events()) {
		offsets[string(r.Key)] = append(offsets[string(r.Key)], strconv.FormatInt(r.Offset, 10))
	}
	for _, o := range orders {
		path := "/tasks/" + url.PathEscape(o.ID)
		var timeline struct{ Lines []events.Line }
		c.get(t, http.StatusOK, path+"/timeline?min_offset=end", &timeline)
		var got []string
		for _, l := range timeline.Lines {
			got = append(got, fmt.Sprint(l.Offset))
		}
		if want := offsets[o.ID]; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: its timeline has the events at %v, kcat reads %v", o.ID, got, want)
		}
		var task events.TaskView
		if c.get(t, http.StatusOK, path, &task); task.State != events.StateProcessed {
			t.Errorf("%s is %s by the console", o.ID, task.State)
		}
		c.get(t, http.StatusOK, path+"/why", nil)
		// Submitting the order again finds the task by its first event.
		again := fmt.Sprintf(`{"id":%q,"workflow":"quick","input":%s}`, o.ID, o.Body)
		c.post(t, http.StatusCreated, "/tasks", again, nil)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// corruptTask has three events, each in a batch of its own. The second batch is corrupted on the broker's disk after a
// console has read it.
const corruptTask = "torn"

// openCorruptTask starts a system and a console, writes the tasks, and corrupts one byte of the log.
func openCorruptTask(t *testing.T) (*system, *consoleClient) {
	t.Helper()
	nodes := kafkatest.KafkaNodes(t, 1, nil)
	b := kafkatest.FromCluster(nodes)
	s := &system{broker: b, ns: b.Namespace(t), partitions: 1}
	s.waybill(t, exitOK, "topics", "create", "--partitions", "1", "--replication", "1")
	received := func(id string) events.Record {
		e := &events.Event{Task: id, Seq: 1, At: events.Millis(time.Now()), Epoch: 1, Cause: events.Cause{Inbox: events.Tasks},
			Fact: &events.TaskReceived{Workflow: "order", Version: 1, Input: json.RawMessage(`{}`),
				Plan: events.NewPlan(events.OnErrorHold, time.Minute, []events.PlanStep{{ID: "charge", Agent: "payments", Operation: "charge"}})}}
		return e.Record(s.ns, "test", -1, e.Value())
	}
	later := func(seq, ceType, value string) events.Record {
		return events.Record{Topic: s.ns.Events(), Partition: -1, Key: []byte(corruptTask), Value: []byte(value), Headers: events.CloudHeaders(ceType, "test", corruptTask+"/"+seq)}
	}
	produce(t, s.config(), received(corruptTask))
	produce(t, s.config(), later("2", "waybill.task.started.v1", `{"at":"2026-05-04T12:00:00.000Z","x":"flipped"}`))
	produce(t, s.config(), later("3", "waybill.step.started.v1", `{"at":"2026-05-04T12:00:01.000Z","step":"charge","attempt":1}`))
	produce(t, s.config(), received("whole"))
	console := consoleAt(t, s.start(t, "console", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()))
	console.await(t, "all events", "/tasks/"+corruptTask+"/timeline?min_offset=end", func(body string) bool { return strings.Count(body, `"seq"`) == 3 })

	path := filepath.Join(nodes.Dir(), "node1", "data", s.ns.Events()+"-0", "00000000000000000000.log")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("s"), int64(bytes.Index(log, []byte("flipped")))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return s, console
}

// TestCorruptBatchHidesNothingElse: a batch with a wrong checksum is reported with its position. The console and the
// command-line tools show all other records.
func TestCorruptBatchHidesNothingElse(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel() // it mostly waits
	s, console := openCorruptTask(t)
	const corruption = "the records 1 to 1 (of \"torn\") are corrupt"

	var line struct {
		Lines      []events.Line `json:"lines"`
		Unreadable []struct {
			Offset string `json:"offset"`
			Error  string `json:"error"`
		} `json:"unreadable"`
	}
	console.get(t, http.StatusOK, "/tasks/"+corruptTask+"/timeline", &line)
	if len(line.Lines) != 2 || line.Lines[0].Seq != 1 || line.Lines[1].Seq != 3 {
		t.Errorf("the timeline has %+v", line.Lines)
	}
	if len(line.Unreadable) != 1 || line.Unreadable[0].Offset != "1" || !strings.Contains(line.Unreadable[0].Error, corruption) {
		t.Errorf("and as unreadable %+v", line.Unreadable)
	}
	for path, want := range map[string]string{"": `"state":"pending"`, "/why": `"reason":"unreadable"`} {
		if status, body := console.ask(t, http.MethodGet, "/tasks/"+corruptTask+path, ""); status != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "the records 1 to 1") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := console.ask(t, http.MethodGet, "/tasks/"+corruptTask+"/export", ""); status != http.StatusInternalServerError || !strings.Contains(body, "/timeline") {
		t.Errorf("an export without an event: %d %s", status, body)
	}

	for _, api := range []string{"off", "auto"} {
		out, note, code := runWaybill(t, s.env(), "timeline", corruptTask, "--api", api)
		if code != exitOK || !strings.Contains(out, "task.received") || !strings.Contains(out, "unreadable") || !strings.Contains(out, "step.started") || !strings.Contains(note, corruption) {
			t.Errorf("timeline --api %s: exit code %d\n%s%s", api, code, out, note)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"task", "get", corruptTask, "-o", "json"}, exitOK, `"state": "pending"`},
		{[]string{"task", "why", corruptTask}, exitOK, "unreadable"},
		{[]string{"replay", corruptTask}, exitOK, "CAN'T BE FOLDED"},
		{[]string{"timeline", "whole"}, exitOK, "task.received"},
		{[]string{"task", "get", "whole", "-o", "json"}, exitOK, `"state": "pending"`},
		{[]string{"replay", "whole"}, exitOK, "task.received"},
	} {
		out, note, code := runWaybill(t, s.env(), append(c.args, "--api", "off")...)
		if code != c.code || !strings.Contains(out, c.want) || !strings.Contains(out+note, "the records 1 to 1") || c.args[len(c.args)-1] == "whole" && strings.Contains(out, "unreadable") {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, out, note)
		}
	}
	s.listsWhatIsWhole(t)
}

// orderWorkflow is the definition of the tasks in openCorruptTask; its parameter is the version.
const orderWorkflow = `workflow: order
version: %d
complete_within: 1m
steps:
  charge: {agent: payments, operation: charge, complete_within: 10s, input: {}}
`

// listsWhatIsWhole checks that tools over all tasks show the intact one, and name the one that they leave out.
func (s *system) listsWhatIsWhole(t *testing.T) {
	t.Helper()
	older, newer := writeFile(t, "v1.yaml", fmt.Appendf(nil, orderWorkflow, 1)), writeFile(t, "v2.yaml", fmt.Appendf(nil, orderWorkflow, 2))
	for _, args := range [][]string{{"task", "list", "--api", "off"}, {"task", "list", "-o", "json"}, {"alerts", "--open", "--api", "off"}, {"replay", "--at", "0s"}, {"replay", "--at", "0s", "-o", "json"},
		{"replay", "plan", "--workflow", newer, "--old", older, "--all"}} {
		out, note, code := runWaybill(t, s.env(), args...)
		if code != exitUnreachable || args[0] != "alerts" && !strings.Contains(out, "whole") || !strings.Contains(note, `"torn"`) || !strings.Contains(note, "the records 1 to 1") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, note)
		}
		shown := strings.Contains(out, "\ntorn ") || strings.Contains(out, `"id": "torn"`)
		if planned := strings.Contains(out, "not run: an event of it can't be read"); shown != planned || planned != (args[1] == "plan") || strings.Contains(out, "Skipped") {
			t.Errorf("%v shows, or counts, what can't be told:\n%s", args, out)
		}
	}
	// A list of another workflow isn't affected.
	s.waybill(t, exitOK, "task", "list", "--api", "off", "--workflow", "other")

	file := filepath.Join(t.TempDir(), "all.jsonl")
	s.waybill(t, exitUnreachable, "export", "--out", file)
	_, note, code := runWaybill(t, s.env(), "replay", "whole", "--file", file)
	if code != exitOK || !strings.Contains(note, `without the task "torn"`) {
		t.Errorf("the file: exit code %d, %s", code, note)
	}
	s.waybill(t, exitNotFound, "timeline", corruptTask, "--file", file)
	if out := s.waybill(t, exitOther, "verify", "--file", file); !strings.Contains(out, `without the task "torn"`) {
		t.Errorf("the file is verified: %s", out)
	}
	if out := s.waybill(t, exitUnreachable, "export", corruptTask); out != "" {
		t.Errorf("an export of it: %s", out)
	}
	s.waybill(t, exitOK, "export", "whole")
	s.waybill(t, exitOK, "replay", "fork", "whole", "--workflow", newer)
	s.waybill(t, exitOther, "replay", "fork", corruptTask, "--workflow", newer)
}

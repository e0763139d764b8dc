package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestInterruptedFollow: --follow prints events as they arrive. When interrupted, a tool prints nothing and exits with
// 130.
func TestInterruptedFollow(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	cmd := exec.Command(filepath.Join(binary(t), "waybill"), "alerts", "--follow", "-o", "jsonl",
		"--brokers", b.Addrs[0], "--namespace", string(cfg.Namespace))
	var note bytes.Buffer
	cmd.Stderr = &note
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, code := range []string{"first", "second"} {
		a := events.Alert{Code: code, At: time.Now()}
		produce(t, cfg, a.Record(cfg.Namespace, "test", code))
		var got struct{ Code string }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &got) != nil || got.Code != code {
			t.Fatalf("got %q, want the alert %q; %v %s", lines.Text(), code, lines.Err(), &note)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitInterrupted || note.Len() > 0 {
		t.Fatalf("ended with %v and %q, want exit code %d and nothing said", err, &note, exitInterrupted)
	}
}

// TestInterruptedDemo: an interrupted demo reports nothing about unfinished orders.
func TestInterruptedDemo(t *testing.T) {
	p := startProcess(t, nil, "demo", "--tasks", "100000")
	p.await(t, "Durations, shortened")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	said, _ := p.out.find("orders")
	if code := p.cmd.ProcessState.ExitCode(); code != exitInterrupted || said != "" {
		t.Errorf("exit code %d, want %d; it says %q", code, exitInterrupted, said)
	}
}

func createTopics(t *testing.T, cfg kafka.Config) {
	t.Helper()
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cfg kafka.Config, rs ...events.Record) {
	t.Helper()
	producer, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	if err := producer.Send(ctx, rs...); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableScript: events that this build can't read are shown, and stop only the task that they belong to.
func TestUnreadableScript(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t)}
	createTopics(t, cfg)
	received := func(id string) events.Record {
		e := &events.Event{Task: id, Seq: 1, At: events.Millis(time.Now()), Epoch: 1, Cause: events.Cause{Inbox: events.Tasks},
			Fact: &events.TaskReceived{Workflow: "order", Version: 1, Input: json.RawMessage(`{}`),
				Plan: events.NewPlan(events.OnErrorHold, time.Minute, []events.PlanStep{{ID: "charge", Agent: "payments", Operation: "charge"}})}}
		return e.Record(cfg.Namespace, "test", -1, e.Value())
	}
	future := func(id, seq string) events.Record {
		return events.Record{Topic: cfg.Namespace.Events(), Partition: -1, Key: []byte(id), Value: []byte(`{"step":"charge"}`),
			Headers: events.CloudHeaders("waybill.step.teleported.v9", "test", id+"/"+seq)}
	}
	garbage := events.Record{Topic: cfg.Namespace.Events(), Partition: 0, Value: []byte("\x1b[2J no JSON")}
	produce(t, cfg, received("healthy"), received("sick"), future("sick", "2"), future("unborn", "1"), future("usurped", "1"), received("usurped"), future("headless", "2"), future("wordless", "one"), garbage)
	runScripts(t, "testdata/unreadable", map[string]string{"WAYBILL_BROKERS": b.Addrs[0], "WAYBILL_NAMESPACE": string(cfg.Namespace)})
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"90m":                       now.Add(-90 * time.Minute),
		"2026-05-01T00:00:00+02:00": time.Date(2026, 4, 30, 22, 0, 0, 0, time.UTC),
	} {
		if got, err := (&sinceFlag{text}).instant(now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-5m", "2026-05-01"} {
		if _, err := (&sinceFlag{text}).instant(now); codeOf(err) != exitUsage {
			t.Errorf("%q: %v, want a usage error", text, err)
		}
	}
}

// TestTableIsPrintable: text that others wrote into a record doesn't reach the terminal as escape sequences, and
// doesn't shift columns.
func TestTableIsPrintable(t *testing.T) {
	var out bytes.Buffer
	w := newTable(&out, "A B")
	w.row("a\x1b[2Jb\tc\nd\u009be", "Größe")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "A           B\na [2Jb c d e  Größe\n"; strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") || strings.ContainsAny(got, "\x1b\u009b") {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWaitOutlivesRestart: a wait survives a restart of its broker and misses no event.
func TestWaitOutlivesRestart(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	o := embedded.Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}
	broker := startBroker(t, o)
	o.Listen = broker.Addr()
	outside := kafka.Config{Brokers: []string{broker.Addr()}, Namespace: "restart."}
	inside := func() kafka.Config {
		cfg := broker.Config()
		cfg.Namespace = outside.Namespace
		return cfg
	}
	createTopics(t, inside())
	broker.Open()

	received := &events.Event{Task: "order-1", Seq: 1, At: events.Millis(time.Now()), Epoch: 1, Cause: events.Cause{Inbox: events.Tasks},
		Fact: &events.TaskReceived{Workflow: "order", Version: 1, Input: json.RawMessage(`{}`),
			Plan: events.NewPlan(events.OnErrorHold, time.Minute, []events.PlanStep{{ID: "charge", Agent: "payments", Operation: "charge"}})}}
	first := received.Record(outside.Namespace, "test", -1, received.Value())

	cmd := newTaskWait()
	cmd.SetContext(t.Context())
	l, err := (&tool{connection: connection{brokers: outside.Brokers, namespace: string(outside.Namespace)}}).open(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	w, err := newSubmissionWaiter(t.Context(), l, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.log.Close()
	w.log.BeforeWrite("order-1")
	produce(t, inside(), first)

	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := newSubmissionWaiter(t.Context(), l, 1); !brokersUnavailable(err) || codeOf(err) != exitUnreachable {
		t.Fatalf("%v while the broker is away, want exit code %d", err, exitUnreachable)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.wait(t.Context(), []*logclient.Submission{{Submission: &events.Submission{ID: "order-1"}}}, func(int) {})
	}()
	broker = startBroker(t, o)
	broker.Open()
	held := &events.Event{Task: "order-1", Seq: 2, At: received.At, Epoch: 1, Cause: received.Cause, Prev: events.Hash(received.Fact.Type(), first.Value),
		Fact: &events.TaskHeld{Error: &events.Error{Code: "test"}}}
	produce(t, inside(), held.Record(outside.Namespace, "test", -1, held.Value()))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := w.tasks["order-1"].state; got != events.StateError {
		t.Errorf("the task is %s, want %s", got, events.StateError)
	}
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
}

func startBroker(t *testing.T, o embedded.Options) *embedded.Broker {
	t.Helper()
	b, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPagesOfAConsole: exactly as many pages are requested as are needed for the wanted entries.
func TestPagesOfAConsole(t *testing.T) {
	const there = 2500
	for _, c := range []struct {
		most  int
		pages []string // limit and token of each request
		note  string
	}{
		{0, []string{"1000 ", "1000 1000", "1000 2000"}, ""},
		{1500, []string{"1000 ", "500 1000"}, "1500 of 2500 alerts, the newest; --limit 0 shows all\n"},
		{3, []string{"3 "}, "3 of 2500 alerts, the newest; --limit 0 shows all\n"},
		{there, []string{"1000 ", "1000 1000", "500 2000"}, ""},
		{9000, []string{"1000 ", "1000 1000", "1000 2000"}, ""},
	} {
		l := limit{max: c.most}
		q := l.consoleQuery(time.Time{})
		var asked []string
		var note strings.Builder
		given := 0
		err := l.eachPage(newTestClient(t, "http://c"), q, &note, "alerts", func() (int, int64, string, error) {
			asked = append(asked, q.Get("limit")+" "+q.Get("page_token"))
			n, err := strconv.Atoi(q.Get("limit"))
			n = min(n, there-given)
			if given += n; given == there {
				return n, 0, "", err
			}
			return n, int64(there - given), strconv.Itoa(given), err
		})
		if err != nil || !slices.Equal(asked, c.pages) || note.String() != c.note {
			t.Errorf("--limit %d: asked for %q, said %q, %v", c.most, asked, note.String(), err)
		}
	}
	old := func() (int, int64, string, error) { return 1000, 7, "", nil }
	if err := new(limit).eachPage(newTestClient(t, "http://c"), url.Values{}, io.Discard, "alerts", old); codeOf(err) != exitUnreachable {
		t.Errorf("a console that gives one page only, and more is there: %v", err)
	}
}

// TestHelpOfFlags: each placeholder in a help is one word. A default is stated in the text or shown by pflag, not both,
// and it is a value that can be given.
func TestHelpOfFlags(t *testing.T) {
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			takes, says := pflag.UnquoteUsage(f)
			if strings.Contains(takes, " ") || strings.Contains(says, "(default") && !slices.Contains([]string{"", "0", "0s", "[]", "false"}, f.DefValue) {
				t.Errorf("%s: --%s %s: %s (default %s)", cmd.CommandPath(), f.Name, takes, says, f.DefValue)
			}
		})
		if usage := cmd.Flags().FlagUsages(); strings.Contains(usage, "default -1") || strings.Contains(usage, "default []") {
			t.Errorf("%s:\n%s", cmd.CommandPath(), usage)
		}
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look(newRoot())
}

// TestPrintable: text by others can't end a line, control the terminal, or reverse the direction of the rest of the
// line.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"o-1\x1b[2J\tx\r\n":                      "o-1 [2J x  ",
		"\u009b2J":                               " 2J",
		"evil\u202edessecorp":                    "evil dessecorp",
		"a\u2066b\u2069\u061c\u200f\u2028\u2029": "a b     ",
		"\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469": "\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f469",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// TestDumbTerminal: no escape sequences are written to a terminal that doesn't support them, such as an editor's.
func TestDumbTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	for name, want := range map[string]bool{"xterm": true, "": true, "dumb": false} {
		if t.Setenv("TERM", name); isTerminal(terminal) != want {
			t.Errorf("TERM=%s: drawn on: %v, want %v", name, !want, want)
		}
	}
}

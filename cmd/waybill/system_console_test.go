package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestConsoles runs two consoles that each index all tasks. A task submitted through one console is shown as held by
// the other, and can be resubmitted there. A request that carries the offset of a write sees that write on either
// console. The event stream has every event. When one console is killed, the other still serves. A console that
// restarts without its data directory reports incomplete answers until it has read the log again.
func TestConsoles(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	file := quickWorkflow(t, "holding", "hold", 2)
	t.Run(kafkatest.EmbeddedKind, func(t *testing.T) {
		u := startUpProcess(t, "--workflow", file)
		consoles(t, &u.system, u.process)
		u.stop(t)
	})
	t.Run(kafkatest.KafkaKind, func(t *testing.T) {
		s := onBroker(t, kafkatest.Kafka(t), file)
		s.start(t, "scheduler", "--session-timeout", shortSession)
		s.start(t, "supervisor", "--session-timeout", shortSession)
		consoles(t, s, s.start(t, "console", "--listen", "127.0.0.1:0", "--allow-loopback-operator"))
	})
}

func consoles(t *testing.T, s *system, one *process) {
	trouble := newTroubles()
	shop := openShop(t, trouble.answer)
	trouble.shop = shop
	agents := s.agents(t, shop)
	seen := observe(t, s)
	first := consoleAt(t, one)
	dir := filepath.Join(t.TempDir(), "data")
	startOther := func() *process {
		return s.start(t, "console", "--listen", "127.0.0.1:0", "--allow-loopback-operator", "--data-dir", dir)
	}
	other := startOther()
	second := consoleAt(t, other)
	stream := first.follow(t)

	order := fmt.Sprintf(`{"id":%q,"workflow":"holding","labels":{"shop":"eu"},"input":{"items":[],"total":9.5,"card":%q,"address":"1 Harbour Road"}}`, blocked, demo.CardWorks)
	var accepted struct {
		AsOf *events.AsOf `json:"as_of"`
	}
	second.post(t, http.StatusCreated, "/tasks", order, &accepted)
	for _, c := range []*consoleClient{first, second} {
		var v events.TaskView
		if c.get(t, http.StatusOK, "/tasks/"+blocked+"?min_offset="+accepted.AsOf.Offset, &v); v.ID != blocked {
			t.Errorf("%s: %+v after the order was accepted", c.url, v)
		}
		c.post(t, http.StatusConflict, "/tasks", strings.Replace(order, "9.5", "9.6", 1), nil)
	}
	seen.awaitState(t, blocked, events.StateError)
	for _, c := range []*consoleClient{first, second} {
		q := url.Values{"filter": {"state:error workflow:holding/1 label:shop=eu step_in_error:charge"}}
		c.await(t, "the held task in its list", "/tasks?"+q.Encode(), func(body string) bool { return strings.Contains(body, `"id":"`+blocked+`"`) })
		var why struct{ Reason, Step string }
		if c.get(t, http.StatusOK, "/tasks/"+blocked+"/why", &why); why.Reason != "hold" || why.Step != "charge" {
			t.Errorf("%s: %+v, want a hold of charge", c.url, why)
		}
		c.await(t, "the alert", "/alerts", func(body string) bool { return strings.Contains(body, `"code":"card_blocked"`) })
	}

	trouble.unblock()
	var done, again struct {
		Seq   uint64
		State events.TaskState
		AsOf  *events.AsOf `json:"as_of"`
	}
	first.post(t, http.StatusOK, "/tasks/"+blocked+"/resubmit", `{"reason":"the bank has unblocked the card","request_id":"r-1"}`, &done)
	second.post(t, http.StatusOK, "/tasks/"+blocked+"/resubmit", `{"reason":"the bank has unblocked the card","request_id":"r-1"}`, &again)
	if done.Seq == 0 || done.Seq != again.Seq || done.AsOf == nil || *done.AsOf != *again.AsOf {
		t.Errorf("answered %+v, and the same request again %+v", done, again)
	}
	seen.awaitState(t, blocked, events.StateProcessed)
	for _, c := range []*consoleClient{first, second} {
		c.await(t, "the end", "/tasks/"+blocked+"?min_offset="+done.AsOf.Offset, func(body string) bool { return strings.Contains(body, `"state":"processed"`) })
		c.post(t, http.StatusConflict, "/tasks/"+blocked+"/undo", `{"reason":"too late"}`, nil)
		c.post(t, http.StatusNotFound, "/tasks/nobody/undo", `{"reason":"who?"}`, nil)
	}
	lines := stream.of(t, blocked, "waybill.task.processed.v1")
	for i, l := range lines {
		if l.Seq != uint64(i+1) {
			t.Errorf("event %d of the stream is %+v", i+1, l)
		}
	}

	s.circuits(t, agents, first, second)

	other.kill()
	first.await(t, "all partitions", "/partitions", func(body string) bool { return strings.Contains(body, `"incomplete":[]`) })
	first.await(t, "the task", "/tasks/"+blocked, func(body string) bool { return strings.Contains(body, `"state":"processed"`) })
	if out := s.waybill(t, exitOK, "task", "list", "--label", "shop=eu", "--api", first.url); !strings.Contains(out, blocked) {
		t.Errorf("task list: %s", out)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	consoleAt(t, startOther()).restores(t, blocked)
	shop.end(t)
}

// restores waits until a restarting console has restored. Until then, a list without the task must say that it is
// incomplete, and the console must not be ready.
func (c *consoleClient) restores(t *testing.T, task string) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		ready, _ := c.probe(t, "/readyz")
		status, body := c.ask(t, http.MethodGet, "/tasks", "")
		listed, whole := strings.Contains(body, `"id":"`+task+`"`), strings.Contains(body, `"incomplete":[]`)
		switch {
		case status == http.StatusOK && !listed && whole, ready == http.StatusOK && !whole:
			t.Fatalf("readyz %d, tasks %d %s", ready, status, body)
		case ready == http.StatusOK && listed:
			c.get(t, http.StatusOK, "/tasks/"+task, nil)
			return
		case time.Now().After(deadline):
			t.Fatalf("it isn't restored: %d %s", status, body)
		}
	}
}

// probe sends a GET request without a token, as a platform's health check does.
func (c *consoleClient) probe(t *testing.T, path string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// circuits checks that consoles show the circuit breakers of agents in other processes.
func (s *system) circuits(t *testing.T, agents []*process, consoles ...*consoleClient) {
	t.Helper()
	for _, c := range consoles {
		c.await(t, "closed circuits of agents that have worked", "/agents", func(body string) bool {
			return strings.Count(body, `"circuit":"closed"`) == len(demo.ServiceNames)
		})
	}
	shipping := slices.Index(demo.ServiceNames, "shipping")
	agents[shipping].stop(t)
	nobody := "http://127.0.0.1:1/" // where nothing listens
	s.start(t, "agent", "http", "--agent", "shipping", "--url", nobody+"{operation}", "--session-timeout", shortSession,
		"--breaker-failures", "1", "--breaker-open-for", "1h")
	consoles[0].post(t, http.StatusCreated, "/tasks", fmt.Sprintf(`{"id":"unshipped","workflow":"holding","input":{"items":[],"total":1,"card":%q,"address":"2 Harbour Road"}}`, demo.CardWorks), nil)
	for _, c := range consoles {
		c.await(t, "the open circuit of shipping", "/agents", func(body string) bool { return strings.Contains(body, `"circuit":"open"`) })
	}
}

// consoleClient calls the HTTP API of one console.
type consoleClient struct{ url string }

var consoleURL = regexp.MustCompile(`http://[0-9.:]+`)

func consoleAt(t *testing.T, p *process) *consoleClient {
	t.Helper()
	return &consoleClient{consoleURL.FindString(p.await(t, "console  http"))}
}

// ask sends a request to the API and returns the status and the body of the response.
func (c *consoleClient) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// want sends a request until the response has the status, and decodes the body. It retries 503, since the console may
// still be restoring, and 202 where 201 is wanted.
func (c *consoleClient) want(t *testing.T, status int, method, path, body string, into any) {
	t.Helper()
	deadline := time.Now().Add(suite.Patience)
	for {
		got, answer := c.ask(t, method, path, body)
		switch {
		case got == http.StatusServiceUnavailable && status != got && time.Now().Before(deadline):
			continue
		case got == http.StatusAccepted && status == http.StatusCreated && time.Now().Before(deadline): // no scheduler has processed it yet; submitting again is idempotent
			continue
		case got != status:
			t.Fatalf("%s %s%s: %d %s, want %d", method, c.url, path, got, answer, status)
		case into != nil:
			if err := json.Unmarshal([]byte(answer), into); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
}

func (c *consoleClient) get(t *testing.T, status int, path string, into any) {
	t.Helper()
	c.want(t, status, http.MethodGet, path, "", into)
}

func (c *consoleClient) post(t *testing.T, status int, path, body string, into any) {
	t.Helper()
	c.want(t, status, http.MethodPost, path, body, into)
}

// await repeats a GET request until its body satisfies ok.
func (c *consoleClient) await(t *testing.T, what, path string, ok func(body string) bool) {
	t.Helper()
	deadline := time.Now().Add(suite.Patience)
	for {
		status, body := c.ask(t, http.MethodGet, path, "")
		if status == http.StatusOK && ok(body) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s doesn't show %s: %d %s", c.url, what, status, body)
		}
	}
}

// eventStream receives the stream of all events.
type eventStream struct{ lines chan events.Line }

// follow opens the event stream. The stream is open when follow returns.
func (c *consoleClient) follow(t *testing.T) *eventStream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	s := &eventStream{make(chan events.Line, 10_000)}
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var l events.Line
			if ok && json.Unmarshal([]byte(data), &l) == nil {
				s.lines <- l
			}
		}
	}()
	return s
}

// of returns the events of a task, up to and including the first of type last.
func (s *eventStream) of(t *testing.T, id, last string) (lines []events.Line) {
	t.Helper()
	deadline := time.After(suite.Patience)
	for {
		select {
		case l, open := <-s.lines:
			if !open {
				t.Fatalf("the stream ended after %d events of %s", len(lines), id)
			}
			if lines = append(lines, l); l.Type == last {
				return lines
			}
		case <-deadline:
			t.Fatalf("no %s of %s within %s", last, id, suite.Patience)
		}
	}
}

package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
)

// hasty has the timeouts of a console that gives a client less time to send a request than it takes to respond, as the
// default timeouts do.
var hasty = timeouts{read: 500 * time.Millisecond, answer: 1500 * time.Millisecond, control: time.Second, indexed: time.Second, slot: time.Second, write: 10 * time.Second}

// readTimePasses returns when a console has ended a request whose body takes longer than hasty.read.
func readTimePasses(t *testing.T, s server) {
	t.Helper()
	got := askRaw(t, s, "POST "+api+"/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if !strings.Contains(got, " 400 ") || !strings.Contains(got, "can't be read") {
		t.Fatalf("a body that doesn't come: %q", got)
	}
}

// asksOfATask sends all requests about a task at once, while reading its events is stuck.
func asksOfATask(t *testing.T, stuck func(context.Context, server) error, take func(reply)) {
	t.Parallel()
	w := newRecording(t)
	w.within = hasty
	s := w.console(t, nil)
	w.stuck = func(ctx context.Context) error { return stuck(ctx, s) }
	path := api + "/tasks/" + url.PathEscape(w.some(t, events.StateProcessed).ID)
	questions := []string{"", "/timeline", "/why", "/export"}
	replies := make([]reply, len(questions))
	var asking sync.WaitGroup
	for i, of := range questions {
		asking.Go(func() { replies[i] = ask(t, s, http.MethodGet, path+of, "") })
	}
	asking.Wait()
	for _, r := range replies {
		take(r)
	}
}

// The read timeout doesn't bound the response. A response that takes longer than its own timeout ends with an error.
func TestAnswerOutlastsTheReadTime(t *testing.T) {
	late := func(t *testing.T) func(reply) {
		return func(r reply) {
			if p := problem(t, r, http.StatusServiceUnavailable); !strings.Contains(p.Detail, "no answer within") {
				t.Errorf("%+v", p)
			}
		}
	}
	t.Run("the leader is away", func(t *testing.T) {
		asksOfATask(t, func(ctx context.Context, _ server) error {
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("ended by %v", ctx.Err())
			}
			return ctx.Err()
		}, late(t))
	})
	t.Run("what reads gives up", func(t *testing.T) {
		asksOfATask(t, func(ctx context.Context, _ server) error {
			<-ctx.Done()
			return context.Canceled
		}, late(t))
	})
	t.Run("it comes back", func(t *testing.T) {
		asksOfATask(t, func(_ context.Context, s server) error { readTimePasses(t, s); return nil }, func(r reply) {
			if r.status != http.StatusOK || r.body == "" {
				t.Errorf("%d %q", r.status, r.body)
			}
		})
	})
}

// The connection of a client that doesn't read its export is closed.
func TestExportThatNobodyTakes(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	w.within.write = 200 * time.Millisecond
	s := w.console(t, nil)
	answered := make(chan bool)
	handler := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		close(answered)
	})
	task := w.some(t, events.StateProcessed)
	for p := range w.records {
		for i := range w.records[p] {
			if r := &w.records[p][i]; string(r.Key) == task.ID {
				r.Value = bytes.Repeat([]byte("x"), 4<<20)
			}
		}
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET "+api+"/tasks/"+url.PathEscape(task.ID)+"/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-answered:
	case <-time.After(suite.Patience):
		t.Error("it is waited for still")
	}
}

// A command without an answer stays in the log. The response says so and has the request id, even if the client sent
// none.
func TestCommandThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	w.within = hasty
	s := w.console(t, nil)
	r := ask(t, s, http.MethodPost, api+"/tasks/t-1/undo", `{"reason":"x"}`)
	p := problem(t, r, http.StatusGatewayTimeout)
	_, in, err := events.DecodeInput(events.Controls, &w.written[0])
	if err != nil || w.writes() != 1 || p.Type != consoleapi.ProblemTypes+"no_answer" || r.header.Get("Retry-After") != "" || !strings.Contains(p.Detail, in.(*events.Control).RequestID) {
		t.Errorf("%+v of %+v, %v", p, in, err)
	}
}

// A command that no broker has acknowledged in time doesn't count as written.
func TestCommandThatIsNotWritten(t *testing.T) {
	w := newRecording(t)
	w.answer = func(*events.Control) (*events.Answer, error) {
		return nil, fmt.Errorf("%w: %w", ErrNotAcknowledged, context.DeadlineExceeded)
	}
	s := w.console(t, nil)
	r := ask(t, s, http.MethodPost, api+"/tasks/t-1/undo", `{"reason":"x","request_id":"r-1"}`)
	if p := problem(t, r, http.StatusServiceUnavailable); strings.Contains(p.Detail, "stays in the log") || !strings.Contains(p.Detail, "may not have been written; send it again with request_id r-1") {
		t.Error(p.Detail)
	}
}

// A stream has no timeout.
func TestStreamOutlastsTheReadTime(t *testing.T) {
	t.Parallel()
	w := newRecording(t)
	w.within = hasty
	consoles := []server{w.console(t, nil), w.console(t, nil)}
	task := w.some(t, events.StateError)
	for _, s := range consoles {
		for _, path := range []string{"/tasks/" + url.PathEscape(task.ID) + "/events", "/events"} {
			came, status := openStream(t, s, api+path)
			if status != http.StatusOK {
				t.Fatal(status)
			}
			last := w.last(task.ID)
			for path != "/events" { // this stream begins at the end
				if e := <-came; e.line.Partition == last.Partition && e.line.Offset == offsetText(last.Offset) {
					break
				}
			}
			readTimePasses(t, s)
			last.Offset += 100
			w.comes(last)
			if e := <-came; e.line.Offset != offsetText(last.Offset) {
				t.Errorf("%s: %+v, want what came last", path, e)
			}
			w.forget()
		}
	}
}

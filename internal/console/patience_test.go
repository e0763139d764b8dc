package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// hasty is the patience of a console that gives a client less time to send a request than itself
// to answer it, as the usual one does.
var hasty = patience{read: 50 * time.Millisecond, answer: 400 * time.Millisecond, control: 200 * time.Millisecond}

// readTimePasses returns when a console that takes a request's body for hasty.read has given one up.
func readTimePasses(t *testing.T, s server) {
	t.Helper()
	got := askRaw(t, s, "POST "+api+"/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if !strings.Contains(got, " 400 ") || !strings.Contains(got, "can't be read") {
		t.Fatalf("a body that doesn't come: %q", got)
	}
}

// The time in which a request must have come isn't the time of its answer: what takes longer
// gets all of its own time, then an error, never an answer without a word.
func TestAnswerOutlastsTheReadTime(t *testing.T) {
	w := newWorld(t)
	w.within = hasty
	s := w.console(t, nil)
	path := api + "/tasks/" + url.PathEscape(w.some(t, events.StateProcessed).ID)
	for _, of := range []string{"", "/timeline", "/why", "/export"} {
		var why error
		w.stuck = func(ctx context.Context) error { // the partition's leader is away
			<-ctx.Done()
			why = ctx.Err()
			return why
		}
		p := problem(t, ask(t, s, http.MethodGet, path+of, ""), http.StatusServiceUnavailable)
		if !errors.Is(why, context.DeadlineExceeded) || !strings.Contains(p.Detail, "no answer within") {
			t.Errorf("%s: ended by %v, and said %q", of, why, p.Detail)
		}
		w.stuck = func(ctx context.Context) error { // what reads gives up, and says it was told to
			<-ctx.Done()
			return context.Canceled
		}
		problem(t, ask(t, s, http.MethodGet, path+of, ""), http.StatusServiceUnavailable)
		w.stuck = func(context.Context) error { readTimePasses(t, s); return nil } // it comes back
		if r := ask(t, s, http.MethodGet, path+of, ""); r.status != http.StatusOK || r.body == "" {
			t.Errorf("%s: %d %q", of, r.status, r.body)
		}
	}
}

// A command that no scheduler answers stays in the log, and the answer says so, with the id to ask
// again with, also where a client gave none.
func TestCommandThatNobodyAnswers(t *testing.T) {
	w := newWorld(t)
	w.within = hasty
	s := w.console(t, nil)
	r := ask(t, s, http.MethodPost, api+"/tasks/t-1/undo", `{"reason":"x"}`)
	p := problem(t, r, http.StatusGatewayTimeout)
	_, in, err := events.DecodeInput(events.Controls, &w.written[0])
	if err != nil || w.writes() != 1 || p.Type != problemTypes+"no_answer" || r.header.Get("Retry-After") != "" || !strings.Contains(p.Detail, in.(*events.Control).RequestID) {
		t.Errorf("%+v of %+v, %v", p, in, err)
	}
}

// A stream has no end of its own, at the console that has the partition and at one that hasn't.
func TestStreamOutlastsTheReadTime(t *testing.T) {
	w := newWorld(t)
	w.within = hasty
	consoles := []server{w.console(t, nil, 0, 1), w.console(t, nil, 2, 3)}
	task := w.some(t, events.StateError)
	for _, s := range consoles {
		for _, path := range []string{"/tasks/" + url.PathEscape(task.ID) + "/events", "/events"} {
			came, status := openStream(t, s, api+path)
			if status != http.StatusOK {
				t.Fatal(status)
			}
			last := w.last(task.ID)
			for path != "/events" { // which begins at the end
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

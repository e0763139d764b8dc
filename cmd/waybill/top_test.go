package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// answering returns a client of a console that gives every request the same response.
func answering(t *testing.T, body string) *apiClient {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	t.Cleanup(s.Close)
	return newTestClient(t, s.URL)
}

// newTestClient returns a client of a console that a user named.
func newTestClient(t *testing.T, url string) *apiClient {
	t.Helper()
	c, err := newAPIClient(consoleapi.Config{URL: url}, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// interrupting is a terminal whose user interrupts after the first view.
type interrupting struct {
	strings.Builder
	interrupt func()
}

func (i *interrupting) Write(p []byte) (int, error) {
	i.interrupt()
	return i.Builder.Write(p)
}

// TestInterruptedTop: top exits with the same code whether it is interrupted while it sleeps or during a request.
func TestInterruptedTop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &interrupting{interrupt: stop}
	o := topOptions{every: time.Hour}
	if err := o.redraw(ctx, answering(t, "{}"), out, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while it sleeps: %v", err)
	}
	if !strings.HasPrefix(out.String(), "\x1b[H") {
		t.Errorf("it was shown %q", out.String())
	}
	if err := o.redraw(ctx, answering(t, "{}"), out, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while it asks: %v", err)
	}
	if err := o.redraw(t.Context(), answering(t, "{}"), io.Discard, false); err != nil {
		t.Errorf("one view: %v", err)
	}
}

// TestListOfSomePartitions: a list that lacks partitions is shown, and the exit code says that it is incomplete, as for
// one task. If the console was found rather than named, the log is read, which may have them.
func TestListOfSomePartitions(t *testing.T) {
	shown := tool{output: output{formatTable}}
	for _, found := range []bool{false, true} {
		for name, list := range map[string]func(*cobra.Command, *apiClient) error{
			"tasks": func(cmd *cobra.Command, c *apiClient) error {
				return (&taskListOptions{tool: shown, limit: limit{max: 10}}).ask(cmd, c, time.Time{})
			},
			"alerts": func(cmd *cobra.Command, c *apiClient) error {
				return (&alertsOptions{tool: shown, limit: limit{max: 10}}).ask(cmd, c, time.Time{})
			},
			"dead letters": func(cmd *cobra.Command, c *apiClient) error {
				return (&deadletterOptions{tool: shown, limit: limit{max: 10}}).ask(cmd, c, time.Time{})
			},
		} {
			c := answering(t, `{"tasks":[{"id":"there"}],"alerts":[{"task":"there"}],"deadletters":[{"key":"there"}],"next_page_token":"","incomplete":[{"partition":3,"why":"no_leader","restored":0}]}`)
			c.discovered = found
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&out)
			err := list(cmd, c)
			if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "[3]") {
				t.Errorf("%s, found %v: exit code %d, %v", name, found, codeOf(err), err)
			}
			if strings.Contains(out.String(), "there") == found {
				t.Errorf("%s, found %v: shown is %q", name, found, &out)
			}
		}
	}
}

// TestListWithoutAnEnd: a console that returns the same page token again gives an error. Otherwise the list would grow
// until memory is full.
func TestListWithoutAnEnd(t *testing.T) {
	c := answering(t, `{"tasks":[{"id":"a"}],"alerts":[{"task":"a"}],"left_off":9,"next_page_token":"again","incomplete":[]}`)
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	for name, err := range map[string]error{"tasks": (&taskListOptions{}).ask(cmd, c, time.Time{}), "alerts": (&alertsOptions{}).ask(cmd, c, time.Time{})} {
		if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "the same page") {
			t.Errorf("%s: exit code %d, %v", name, codeOf(err), err)
		}
	}
}

// TestNoConsole: if the response at a URL isn't a console's, the error names the URL.
func TestNoConsole(t *testing.T) {
	c := answering(t, "<html>It works!</html>")
	if _, err := c.Task(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), c.URL()) || !strings.Contains(err.Error(), "is it a console?") {
		t.Error(err)
	}
}

// TestTopFitsItsTerminal: a view larger than the terminal is cut to fit, and keeps what lags most. Otherwise each
// redraw would scroll its start away.
func TestTopFitsItsTerminal(t *testing.T) {
	v := &overview{at: time.Now(), base: "http://console"}
	for p := range int32(12) {
		v.partitions.Partitions = append(v.partitions.Partitions, consoleapi.Partition{Partition: p, Lag: int64(100 * (p / 9))})
	}
	for _, size := range [][2]int{{40, 20}, {80, 24}, {200, 60}, {10, 3}, {1, 1}, {0, 0}} {
		o := topOptions{size: func() (int, int) { return size[0], size[1] }}
		var out bytes.Buffer
		if err := o.draw(&out, v, nil); err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(out.String())
		lines := strings.Split(text, "\n")
		if size[1] > 0 && len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); size[0] > 0 && n > size[0] {
				t.Errorf("%v: a line of %d characters: %q", size, n, line)
			}
		}
		if size == [2]int{40, 20} && (!strings.Contains(text, "\n11 ") || strings.Contains(text, "\n8 ") || !strings.Contains(text, "2 more partitions") || !strings.Contains(text, "No open alerts")) {
			t.Errorf("%v shows\n%s", size, text)
		}
		if whole := size[1] == 0 || size[1] > 20; whole != (strings.Contains(text, "\n0 ") && strings.Contains(text, "\n11 ") && !strings.Contains(text, " more")) {
			t.Errorf("%v shows\n%s", size, text)
		}
	}
}

// TestTopGoesOnWhileTheConsoleIsAway: top survives a restart of the console.
func TestTopGoesOnWhileTheConsoleIsAway(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked > 4 && asked < 7 { // one view takes four requests
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"title":"Not now","status":503,"detail":"it begins"}`)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	ctx, stop := context.WithCancel(t.Context())
	out := &watching{stop: stop, until: 4}
	o := topOptions{every: time.Millisecond}
	if err := o.redraw(ctx, newTestClient(t, s.URL), out, true); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for i, away := range []bool{false, true, true, false} {
		if i >= len(out.views) || strings.Contains(out.views[i], "Not updated") != away {
			t.Fatalf("view %d of %q", i, out.views)
		}
	}
	asked = 4
	if err := o.redraw(t.Context(), newTestClient(t, s.URL), io.Discard, true); codeOf(err) != exitUnreachable {
		t.Errorf("of a console that has never answered: %v", err)
	}
}

// watching is a terminal whose user interrupts after some views.
type watching struct {
	views []string
	until int
	stop  func()
}

func (w *watching) Write(p []byte) (int, error) {
	if w.views = append(w.views, string(p)); len(w.views) == w.until {
		w.stop()
	}
	return len(p), nil
}

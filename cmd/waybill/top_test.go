package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answering is a client of a console that gives every question the same answer.
func answering(t *testing.T, body string) *apiClient {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	t.Cleanup(s.Close)
	return &apiClient{base: s.URL}
}

// interrupting is a terminal whose user ends what he has seen a view of.
type interrupting struct {
	strings.Builder
	interrupt func()
}

func (i *interrupting) Write(p []byte) (int, error) {
	i.interrupt()
	return i.Builder.Write(p)
}

// Whoever interrupts top while it sleeps gets the exit code that he gets while it asks.
func TestInterruptedTop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out := &interrupting{interrupt: stop}
	o := topOptions{every: time.Hour}
	if err := o.watch(ctx, answering(t, "{}"), out, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while it sleeps: %v", err)
	}
	if !strings.HasPrefix(out.String(), "\x1b[H") {
		t.Errorf("it was shown %q", out.String())
	}
	if err := o.watch(ctx, answering(t, "{}"), out, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while it asks: %v", err)
	}
	if err := o.watch(t.Context(), answering(t, "{}"), io.Discard, false); err != nil {
		t.Errorf("one view: %v", err)
	}
}

// A list that lacks partitions is nobody's answer: the exit code says so, as for alerts
// and for one task.
func TestListOfSomePartitions(t *testing.T) {
	o := taskListOptions{limit: limit{most: 10}}
	_, _, err := o.pages(t.Context(), answering(t, `{"tasks":[],"next_page_token":"","missing_partitions":[3]}`), upToNow())
	if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "[3]") {
		t.Errorf("exit code %d, %v", codeOf(err), err)
	}
}

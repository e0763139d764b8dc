package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterruptedQuestion: an interrupted request isn't reported as a console that doesn't answer, and the log isn't
// read instead.
func TestInterruptedQuestion(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt(errors.New("interrupt signal received")) // as a signal does
		<-r.Context().Done()
	}))
	t.Cleanup(service.Close)
	c := newTestClient(t, service.URL)
	c.discovered = true
	err := c.Get(ctx, "/tasks", nil, new(any))
	var note bytes.Buffer
	if falls := c.shouldReadLog(ctx, &note, err); falls || note.Len() > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; falls back %v, and says %q", err, falls, &note)
	}
}

// TestDeadlineOfTheUser: a request that ends at the user's deadline isn't reported as a console that doesn't answer, and
// the log isn't read instead. It is if only a time-out of the client passed.
func TestDeadlineOfTheUser(t *testing.T) {
	c := newTestClient(t, "http://127.0.0.1:1")
	c.discovered = true
	passed, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, of := range []struct {
		ctx   context.Context
		falls bool
	}{{passed, false}, {t.Context(), true}} {
		var note bytes.Buffer
		if falls := c.shouldReadLog(of.ctx, &note, context.DeadlineExceeded); falls != of.falls || (note.Len() > 0) != of.falls {
			t.Errorf("%v: falls back %v, and says %q", of.ctx.Err(), falls, &note)
		}
	}
}

// TestTokenIsAskedForByItsFlag: if a console requires a token, the tool's error names the flag for it.
func TestTokenIsAskedForByItsFlag(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type":"urn:waybill:problem:unauthorized","title":"A token is needed","status":401,"detail":"send one header Authorization: Bearer TOKEN; 0 were sent"}`)
	}))
	t.Cleanup(service.Close)
	err := newTestClient(t, service.URL).Get(t.Context(), "/tasks", nil, new(any))
	if want := service.URL + ": A token is needed: none was sent; --api " + service.URL + " --api-token-file FILE sends the one in FILE"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTokenNeedsAnAddress: a token is sent only to the address that the user named.
func TestTokenNeedsAnAddress(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&apiFlags{url: apiAuto, tokenFile: token}).namedConsole(); err == nil || !strings.Contains(err.Error(), "--api URL") {
		t.Errorf("a token for whoever announces himself: %v", err)
	}
	if _, err := (&apiFlags{url: apiOff, tokenFile: token}).namedConsole(); err != nil {
		t.Errorf("a token where none is sent: %v", err)
	}
}

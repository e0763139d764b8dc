package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Who interrupts a question to a console isn't told that it doesn't answer, and the log isn't read instead.
func TestInterruptedQuestion(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt(errors.New("interrupt signal received")) // as a signal does it
		<-r.Context().Done()
	}))
	t.Cleanup(service.Close)
	c := &apiClient{base: service.URL, found: true}
	err := c.get(ctx, "/tasks", nil, decode(new(any)))
	var note bytes.Buffer
	if falls := c.fallBack(&note, err); falls || note.Len() > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; falls back %v, and says %q", err, falls, &note)
	}
}

// A console that wants a token says so in terms of HTTP; who asks it by a tool is told the flag.
func TestTokenIsAskedForByItsFlag(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type":"urn:waybill:problem:unauthorized","title":"A token is needed","status":401,"detail":"send one header Authorization: Bearer TOKEN; 0 were sent"}`)
	}))
	t.Cleanup(service.Close)
	c := &apiClient{base: service.URL}
	err := c.get(t.Context(), "/tasks", nil, decode(new(any)))
	if want := service.URL + ": A token is needed: none was sent; --api-token-file names a file with one"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

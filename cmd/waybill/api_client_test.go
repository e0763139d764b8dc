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
	c := &apiClient{base: service.URL, discovered: true}
	err := c.get(ctx, "/tasks", nil, decode(new(any)))
	var note bytes.Buffer
	if falls := c.shouldReadLog(&note, err); falls || note.Len() > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v; falls back %v, and says %q", err, falls, &note)
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
	c := &apiClient{base: service.URL}
	err := c.get(t.Context(), "/tasks", nil, decode(new(any)))
	if want := service.URL + ": A token is needed: none was sent; --api " + service.URL + " --api-token-file FILE sends the one in FILE"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTokenGoesWhereItWasNamedFor: a token is sent only to the address that the user named. It isn't sent to an address
// that a group member announced, or to the target of a redirect. Requests to loopback bypass proxies.
func TestTokenGoesWhereItWasNamedFor(t *testing.T) {
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
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	t.Cleanup(service.Close)
	c := &apiClient{base: service.URL, token: "0123456789abcdef"}
	if err := c.get(t.Context(), "/tasks", nil, decode(new(any))); err == nil {
		t.Error("a redirect is taken for an answer")
	}
	for _, target := range []string{"http://127.0.0.1:8080/", "http://localhost:8080/", "http://[::1]:8080/"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		if proxy, err := apiHTTP.Transport.(*http.Transport).Proxy(r); proxy != nil || err != nil {
			t.Errorf("%s is asked through %v, %v", target, proxy, err)
		}
	}
}

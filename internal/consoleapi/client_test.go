package consoleapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestNew: a URL without a host or with another scheme is refused.
func TestNew(t *testing.T) {
	for _, u := range []string{"", "auto", "console:8080", "ftp://console", "http://", "://"} {
		if _, err := New(Config{URL: u}); err == nil {
			t.Errorf("%q is taken for a console", u)
		}
	}
	if c := newClient(t, Config{URL: "https://console:8443/"}); c.URL() != "https://console:8443" {
		t.Error(c.URL())
	}
}

// TestTokenGoesToTheURL: a token isn't sent to the target of a redirect. Requests to loopback bypass proxies.
func TestTokenGoesToTheURL(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" || r.Header.Get("User-Agent") != "test" {
			t.Errorf("headers %v", r.Header)
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	t.Cleanup(service.Close)
	c := newClient(t, Config{URL: service.URL, Token: "0123456789abcdef", UserAgent: "test"})
	if err := c.Get(t.Context(), "/tasks", nil, new(any)); err == nil {
		t.Error("a redirect is taken for an answer")
	}
	for _, target := range []string{"http://127.0.0.1:8080/", "http://localhost:8080/", "http://[::1]:8080/"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		if proxy, err := sharedTransport.Proxy(r); proxy != nil || err != nil {
			t.Errorf("%s is asked through %v, %v", target, proxy, err)
		}
	}
}

// TestErrors: an error says whether the console answered, and with what.
func TestErrors(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"problem": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"title":"Refused","status":409,"detail":"d","incomplete":[{"partition":3,"why":"no_leader"}]}`)
		},
		"no console": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"hangs up": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
		},
		"too slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
	for name, answer := range answers {
		s := httptest.NewServer(answer)
		err := newClient(t, Config{URL: s.URL, Timeout: 200 * time.Millisecond}).Get(t.Context(), "/tasks", nil, new(any))
		p, problem := errors.AsType[*Problem](err)
		_, unreachable := errors.AsType[*UnreachableError](err)
		if problem != (name == "problem") || unreachable != (name == "hangs up" || name == "too slow") || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		if problem && (p.Status != http.StatusConflict || len(p.Incomplete) != 1 || Transient(err) || err.Error() != s.URL+": Refused: d") {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// TestExplain: Explain replaces errors, but not that of a context.
func TestExplain(t *testing.T) {
	explained := errors.New("explained")
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, Config{URL: "http://127.0.0.1:1", Explain: func(error) error { return explained }})
	if err := c.Get(ctx, "/tasks", nil, new(any)); !errors.Is(err, explained) {
		t.Error(err)
	}
	if err := c.NextPage(url.Values{"page_token": {"t"}}, "t"); !errors.Is(err, explained) {
		t.Error(err)
	}
	cancel()
	if err := c.Get(ctx, "/tasks", nil, new(any)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCheckSystem: an answer is accepted according to the system that it names.
func TestCheckSystem(t *testing.T) {
	mine := System{ClusterID: "c", Namespace: "waybill."}
	for name, c := range map[string]struct {
		cfg    Config
		serves System
		ok     bool
	}{
		"found":                             {Config{SystemRequired: true, System: mine}, mine, true},
		"found, of another cluster":         {Config{SystemRequired: true, System: mine}, System{ClusterID: "d", Namespace: "waybill."}, false},
		"found, of another namespace":       {Config{SystemRequired: true, System: mine}, System{ClusterID: "c", Namespace: "other."}, false},
		"found, says nothing":               {Config{SystemRequired: true, System: mine}, System{}, false},
		"named":                             {Config{}, mine, true},
		"named, and nothing else":           {Config{}, System{}, true},
		"named, says nothing":               {Config{System: mine}, System{}, true},
		"named, brokers of another cluster": {Config{System: mine}, System{ClusterID: "d", Namespace: "waybill."}, false},
		"named, with another namespace":     {Config{System: System{Namespace: "waybill."}}, System{ClusterID: "d", Namespace: "other."}, false},
		"named, with its namespace":         {Config{System: System{Namespace: "waybill."}}, System{ClusterID: "d", Namespace: "waybill."}, true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.serves.SetHeaders(w.Header())
			_, _ = io.WriteString(w, "{}")
		}))
		c.cfg.URL = s.URL
		err := newClient(t, c.cfg).Get(t.Context(), "/tasks", nil, new(any))
		if _, is := errors.AsType[*SystemError](err); is == c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

// TestPostKeepsValues: a value that a user wrote is posted as it was written, without HTML escapes.
func TestPostKeepsValues(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	t.Cleanup(service.Close)
	var got json.RawMessage
	if err := newClient(t, Config{URL: service.URL}).Post(t.Context(), "/tasks", map[string]any{"input": json.RawMessage(`"<a> & b"`)}, &got); err != nil || string(got) != `{"input":"<a> & b"}` {
		t.Errorf("%s, %v", got, err)
	}
}

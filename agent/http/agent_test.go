package http

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
)

func testRequest() agent.Request {
	return agent.Request{ID: "o-1/charge/do/2", Task: "o-1", Step: "charge", Kind: agent.Do, Attempt: 2, Operation: "charge",
		IdempotencyKey: "waybill.o-1/charge/do/1", CompleteBy: time.Now().Add(time.Minute), Input: []byte(`{"amount":5}`),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

func newAgent(t *testing.T, cfg Config) *Agent {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.client.CloseIdleConnections)
	return a
}

// handle handles one request as a runner does: its context ends at complete-by.
func handle(t *testing.T, a *Agent, r agent.Request) (string, *agent.Failure) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), r.CompleteBy)
	defer cancel()
	out, err := a.Handle(ctx, r)
	if err == nil {
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), nil
	}
	var f *agent.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%T: %v", err, err)
	}
	return "", f
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// class describes in words what a failure allows Waybill to do.
func class(f *agent.Failure) string {
	if f == nil {
		return "completed"
	}
	s := "failed"
	switch {
	case f.Rejected:
		s = "rejected"
	case f.Transient:
		s = "again"
	}
	if f.NoEffect {
		s += " none"
	}
	if f.Neutral {
		s += " neutral"
	}
	return s
}

func TestStatusClasses(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.Header().Set("Location", "/200")
		w.WriteHeader(status)
	})
	a := newAgent(t, Config{URL: s.URL + "/{operation}"})
	for _, c := range []struct {
		want     string
		statuses []int
	}{
		{"completed", []int{200, 201, 203, 204, 205, 206, 299}},
		{"failed neutral", []int{300, 301, 302, 303, 304, 307, 308}},
		{"rejected", []int{400, 401, 402, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 421, 422, 423, 424, 426, 428, 431, 451, 499}},
		{"again neutral", []int{408, 409}},
		{"again none neutral", []int{425}},
		{"again none", []int{429}},
		{"again", []int{500, 501, 502, 503, 504, 511, 599}},
	} {
		for _, status := range c.statuses {
			r := testRequest()
			r.Operation = strconv.Itoa(status)
			out, f := handle(t, a, r)
			if got := class(f); got != c.want {
				t.Errorf("%d: %s; want %s", status, got, c.want)
			}
			if f == nil && out != "null" || f != nil && f.Code != "http_"+r.Operation {
				t.Errorf("%d: output %s, failure %+v", status, out, f)
			}
		}
	}
}

func TestServiceSeesTheContract(t *testing.T) {
	var got *http.Request
	var body string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
	})
	a := newAgent(t, Config{URL: s.URL + "/v1/{operation}?tenant=x"})
	r := testRequest()
	r.IdempotencyKey, r.ID, r.Operation = "waybill.ö 1%/charge/do/1", "ö 1%/charge/do/2", "a/b c"
	if _, f := handle(t, a, r); f != nil {
		t.Fatal(f)
	}
	if got.Method != "POST" || got.URL.EscapedPath() != "/v1/a%2Fb%20c" || got.URL.RawQuery != "tenant=x" || body != `{"amount":5}` {
		t.Errorf("%s %s: %s", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json",
		"Idempotency-Key":       "waybill.%C3%B6%201%25/charge/do/1",
		"X-Waybill-Request":     "%C3%B6%201%25/charge/do/2",
		"X-Waybill-Operation":   "a/b%20c",
		"X-Waybill-Complete-By": r.CompleteBy.UTC().Format("2006-01-02T15:04:05.000Z"),
		"Traceparent":           r.Traceparent,
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q; want %q", name, v, want)
		}
	}
	if ms, err := strconv.Atoi(got.Header.Get("X-Waybill-Timeout-Ms")); err != nil || ms > 60_000 || ms < 50_000 {
		t.Errorf("X-Waybill-Timeout-Ms: %d, %v", ms, err)
	}
}

func TestOperationStaysInItsSegment(t *testing.T) {
	for operation, want := range map[string]string{
		"charge": "http://h/v1/charge/x", "a/../b": "http://h/v1/a%2F..%2Fb/x", "?q=1": "http://h/v1/%3Fq=1/x", "#f": "http://h/v1/%23f/x",
		"%2e%2e": "http://h/v1/%252e%252e/x", `\..\`: `http://h/v1/%5C..%5C/x`, "..": "", ".": "",
	} {
		got, err := expand("http://h/v1/{operation}/x", operation)
		if got != want || (want == "") != (err != nil) {
			t.Errorf("%q: %q, %v; want %q", operation, got, err, want)
		}
	}
	a := newAgent(t, Config{URL: "http://127.0.0.1:1/{operation}"})
	r := testRequest()
	r.Operation = ".."
	if _, f := handle(t, a, r); class(f) != "rejected" || f.Code != CodeBadOperation {
		t.Errorf("..: %+v", f)
	}
}

func TestBodies(t *testing.T) {
	var status int
	var body string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	a := newAgent(t, Config{URL: s.URL, MaxResponseBytes: 100})
	for _, c := range []struct {
		status                           int
		body, output, code, message, det string
	}{
		{200, ` {"a": 1} `, `{"a":1}`, "", "", ""},
		{200, "", "null", "", "", ""},
		{200, "OK, done", `{"body":"OK, done"}`, "", "", ""},
		{200, "bad \xff byte", "", CodeBadResponse, "charge answered 200 with a body that can't be read: it is not UTF-8; if it is another encoding, its Content-Type must have a charset", ""},
		{200, strings.Repeat("x", 101), "", CodeResponseTooLarge, "charge answered 200 with more than 100 bytes", ""},
		{422, `{"code":"no_funds","message":"empty"}`, "", "no_funds", "charge answered 422 Unprocessable Entity: empty", `{"code":"no_funds","message":"empty"}`},
		{422, `{"code":7}`, "", "http_422", "charge answered 422 Unprocessable Entity", `{"code":7}`},
		{400, `[1]`, "", "http_400", "charge answered 400 Bad Request", `[1]`},
		{404, "not found", "", "http_404", "charge answered 404 Not Found", `"not found"`},
		{500, strings.Repeat("x", 101), "", "http_500", "charge answered 500 Internal Server Error", ""},
	} {
		status, body = c.status, c.body
		out, f := handle(t, a, testRequest())
		if f == nil {
			f = &agent.Failure{}
		}
		if out != c.output || f.Code != c.code || f.Message != c.message || string(f.Details) != c.det {
			t.Errorf("%d %.40q: %s, %q %q %s", c.status, c.body, out, f.Code, f.Message, f.Details)
		}
		if f.Code == CodeResponseTooLarge && class(f) != "failed neutral" {
			t.Errorf("too large: %s", class(f))
		}
	}
}

func TestHugeBodyIsNotRead(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 1<<16)
		for {
			if _, err := w.Write(chunk); err != nil {
				return // the agent closed the connection
			}
		}
	})
	if _, f := handle(t, newAgent(t, Config{URL: s.URL}), testRequest()); class(f) != "failed neutral" {
		t.Errorf("%s: %v", class(f), f)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	target := serve(t, func(http.ResponseWriter, *http.Request) { followed.Store(true) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	if _, f := handle(t, newAgent(t, Config{URL: s.URL}), testRequest()); class(f) != "failed neutral" || followed.Load() {
		t.Errorf("%s, followed: %v", class(f), followed.Load())
	}
}

// A call without a connection has no effect.
func TestNoConnectionIsNoEffect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer tls.Close()
	for name, u := range map[string]string{"refused": refused, "unknown host": "http://host.invalid", "unknown authority": tls.URL} {
		_, f := handle(t, newAgent(t, Config{URL: u}), testRequest())
		if class(f) != "again none" || f.Code != CodeUnreachable {
			t.Errorf("%s: %s %v", name, class(f), f)
		}
	}
}

func TestLostConnectionMayHaveAnEffect(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if calls.Add(1) == 1 {
			return // so that the next call uses a kept connection
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	})
	a := newAgent(t, Config{URL: s.URL})
	if _, f := handle(t, a, testRequest()); f != nil {
		t.Fatal(f)
	}
	if _, f := handle(t, a, testRequest()); class(f) != "again" || f.Code != CodeNoAnswer {
		t.Errorf("%s: %v", class(f), f)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls: the HTTP client sent one again by itself", n)
	}
}

func TestSlowAnswerEndsAtItsBound(t *testing.T) {
	stop := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			io.WriteString(w, `{"a":`)
			http.NewResponseController(w).Flush()
		}
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	defer close(stop)
	for _, path := range []string{"/headers", "/body"} {
		began := time.Now()
		_, f := handle(t, newAgent(t, Config{URL: s.URL + path, Timeout: 100 * time.Millisecond}), testRequest())
		if class(f) != "again" || time.Since(began) > time.Minute {
			t.Errorf("%s, timeout: %s after %v", path, class(f), time.Since(began))
		}
		r := testRequest()
		r.CompleteBy = time.Now().Add(100 * time.Millisecond)
		if _, f = handle(t, newAgent(t, Config{URL: s.URL + path}), r); class(f) != "again" || !errors.Is(f, context.DeadlineExceeded) {
			t.Errorf("%s, complete-by: %s %v", path, class(f), f)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0}, {"0", "", 0}, {"7", "", 7 * time.Second}, {" 7 ", "", 7 * time.Second}, {"soon", "", 0}, {"-5", "", 0}, {"1.5", "", 0},
		{"99999999999999999999", "", retryAfterMax}, {"9999999999", "", retryAfterMax},
		{in(time.Minute), "", time.Minute}, {in(-time.Minute), "", 0}, {in(time.Hour), in(59 * time.Minute), time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.value)
		h.Set("Date", c.date)
		if got, _ := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After %q, Date %q: %v; want %v", c.value, c.date, got, c.want)
		}
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if _, f := handle(t, newAgent(t, Config{URL: s.URL}), testRequest()); f.After != 3*time.Second {
		t.Errorf("%+v", f)
	}
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // independent of the umask
		t.Fatal(err)
	}
	return name
}

func TestHeaderFileIsReadAgainAndNeverShown(t *testing.T) {
	var got http.Header
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header })
	dir := t.TempDir()
	name := writeFile(t, filepath.Join(dir, "headers"), "# of the bank\n\nAuthorization: Bearer s3cret1\nX-Many: a\nx-many: b\nUser-Agent: shop\n", 0o640)
	a := newAgent(t, Config{URL: s.URL, HeaderFile: name})
	call := func() *agent.Failure { _, f := handle(t, a, testRequest()); return f }
	if f := call(); f != nil || got.Get("Authorization") != "Bearer s3cret1" || fmt.Sprint(got.Values("X-Many")) != "[a b]" || got.Get("User-Agent") != "shop" {
		t.Errorf("%v %v", f, got)
	}
	if err := os.Rename(writeFile(t, filepath.Join(dir, "new"), "Authorization: Bearer s3cret2\n", 0o600), name); err != nil {
		t.Fatal(err)
	}
	if f := call(); f != nil || got.Get("Authorization") != "Bearer s3cret2" || got.Get("X-Many") != "" {
		t.Errorf("after the change: %v %v", f, got)
	}
	got = nil
	for what, change := range map[string]func(){
		"everyone may read":   func() { writeFile(t, name, "Authorization: s3cret3\n", 0o644) },
		"no header":           func() { writeFile(t, name, "s3cret4\n", 0o600) },
		"control character":   func() { writeFile(t, name, "A: s3cret5\x01\n", 0o600) },
		"one of our own":      func() { writeFile(t, name, "idempotency-key: s3cret6\n", 0o600) },
		"one of our own kind": func() { writeFile(t, name, "X-Waybill-Request: s3cret7\n", 0o600) },
		"too long":            func() { writeFile(t, name, "A: s3cret8"+strings.Repeat("x", headerFileBytesMax), 0o600) },
		"gone":                func() { os.Remove(name) },
	} {
		change()
		f := call()
		if class(f) != "again none neutral" || f.Code != CodeHeaderFile || strings.Contains(f.Error(), "s3cret") || got != nil {
			t.Errorf("%s: %s %v; sent %v", what, class(f), f, got)
		}
	}
	writeFile(t, name, "Authorization: Bearer s3cret9\n", 0o600)
	if f := call(); f != nil || got.Get("Authorization") != "Bearer s3cret9" {
		t.Errorf("healed: %v %v", f, got)
	}
}

func TestOwnCA(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "1") }))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	name := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), string(ca), 0o644)
	if out, f := handle(t, newAgent(t, Config{URL: s.URL, CAFile: name}), testRequest()); f != nil || out != "1" {
		t.Errorf("%s %v", out, f)
	}
}

func TestNoCookiesAndNoProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		if len(r.Cookies()) > 0 {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	a := newAgent(t, Config{URL: s.URL})
	for range 2 {
		if _, f := handle(t, a, testRequest()); f != nil {
			t.Error(f)
		}
	}
	if a.client.Jar != nil || a.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the client has a cookie jar, or a proxy that nobody set")
	}
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.URL.Host) })
	if out, f := handle(t, newAgent(t, Config{URL: "http://bank.invalid/{operation}", Proxy: proxy.URL}), testRequest()); out != `"bank.invalid"` {
		t.Errorf("through the proxy: %s %v", out, f)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	for u, want := range map[string]string{
		"":                          "no URL",
		"/relative":                 "absolute",
		"ftp://h/x":                 "absolute",
		"http://":                   "absolute",
		"http://u:s3cret@h/":        "header file",
		"http://h/#f":               "fragment",
		"http://h/{oper}":           "brace",
		"http://h/{operation}/a}?{": "brace",
		"http://{operation}.h/":     "only the path",
		"http://h/?op={operation}":  "only the path",
		"http://h/a/../{operation}": "segment",
		"http://h:s3cret\x7f/":      "can't be parsed",
	} {
		if _, err := New(Config{URL: u}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v; want %q", u, err, want)
		}
	}
	_, err := New(Config{HeaderFile: "/no/such/header", CAFile: "/no/such/ca", Proxy: "x", Timeout: -1})
	for _, want := range []string{"no URL", "header file", "CA file", "proxy", "timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing of %q", err, want)
		}
	}
}

// TestAnswerWithTwoReadings: a response that decoders read in different ways isn't treated as text. It is JSON, and the
// reply says what is wrong with it.
func TestAnswerWithTwoReadings(t *testing.T) {
	for _, body := range []string{`{"a":1,"a":2}`, `["\ud83d"]`} {
		got, err := outputOf(agent.Request{}, response{body: []byte(body)})
		if raw, ok := got.(json.RawMessage); err != nil || !ok || string(raw) != body {
			t.Errorf("%s becomes %v, %v", body, got, err)
		}
	}
}

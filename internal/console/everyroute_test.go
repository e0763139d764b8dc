package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Each route refuses requests that pages of other origins make through a browser, by rebinding a name or by a request of
// their own, requests through an unexpected proxy, and requests without a token.
func TestEveryRouteIsGuarded(t *testing.T) {
	local := configured(t, func(cfg *Config) { cfg.Tokens, cfg.LoopbackOperator = nil, true })
	guarded := configured(t, func(*Config) {})
	for i := range routes {
		r := &routes[i]
		path := pathOf(r, "nobody")
		for _, tt := range []struct {
			console *Console
			header  string
			status  int
		}{
			{local, "Host: evil.example", http.StatusMisdirectedRequest},
			{local, "Host: 127.0.0.1.evil.example:8080", http.StatusMisdirectedRequest},
			{local, "Origin: http://evil.example", http.StatusForbidden},
			{local, "Origin: null", http.StatusForbidden},
			{local, "X-Forwarded-For: 10.0.0.9", http.StatusMisdirectedRequest},
			{guarded, "Accept: */*", http.StatusUnauthorized},
			{guarded, bearer + "guess", http.StatusUnauthorized},
			{guarded, "Waybill-Namespace: other.", http.StatusMisdirectedRequest},
		} {
			w := answers(tt.console, r.method, path, fmt.Sprintf("127.0.1.%d:1", i), tt.header) // each of its own: guesses are throttled
			if w.Code != tt.status {
				t.Errorf("%s %s with %s: %d %s", r.method, path, tt.header, w.Code, w.Body)
			}
			checkHeaders(t, w, path)
		}
		if r.method == http.MethodPost {
			form := httptest.NewRequest(r.method, path, strings.NewReader("reason=x"))
			form.Host, form.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:1"
			form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			if local.ServeHTTP(w, form); w.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s: a form is answered with %d", path, w.Code)
			}
		}
	}
}

// checkHeaders reports an answer that a browser could take for a page, or pass to another origin.
func checkHeaders(t *testing.T, w *httptest.ResponseRecorder, path string) {
	t.Helper()
	h := w.Header()
	if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
		h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Type"), "json") {
		t.Errorf("%s: %v", path, h)
	}
}

// hostile are texts that break out of a path, a page, a header or a log line, if they are used as they are.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `../../etc/passwd`, `a/b`, `..`, `%2e%2e`, `' OR 1=1 --`,
	"a\r\nSet-Cookie: x=1", "a\x00b", "\u202egnp.exe", "\xff\xfe", `{{7*7}}`, `${jndi:ldap://x}`, strings.Repeat("x", 300)}

// A hostile id, workflow, or parameter is an answer in JSON that says what is wrong, at each route.
func TestEveryRouteTakesHostileTexts(t *testing.T) {
	c := configured(t, func(cfg *Config) { cfg.Tokens, cfg.LoopbackOperator = nil, false })
	for i := range routes {
		r := &routes[i]
		if r.method != http.MethodGet || r.streams() {
			continue
		}
		for _, text := range hostile {
			escaped := percentEncoded(text)
			paths := []string{pathOf(r, "nobody") + "?surprise=" + escaped}
			for _, p := range parametersOf(r.request) {
				switch p.in {
				case "path":
					paths = append(paths, strings.NewReplacer("{"+p.name+"}", escaped, "{id}", "nobody", "{name}", "order", "{version}", "1", "{step}", "reserve").Replace(r.path))
				case "query":
					paths = append(paths, strings.SplitN(pathOf(r, "nobody"), "?", 2)[0]+"?"+p.name+"="+escaped)
				}
			}
			for _, path := range paths {
				w := answers(c, r.method, path, "127.0.0.1:1")
				filters := strings.Contains(path, "?") && !strings.Contains(path, "?surprise=") // a list that is narrowed may be empty
				if w.Code == http.StatusOK && !filters || w.Code >= http.StatusInternalServerError {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
				checkHeaders(t, w, path)
				if body := w.Body.String(); w.Header().Get("Set-Cookie") != "" || strings.ContainsAny(body, "\x00\r\u202e") {
					t.Errorf("%s: %q, %v", path, body, w.Header())
				}
			}
		}
	}
}

// percentEncoded encodes each byte, so that nothing of a text means something in a path.
func percentEncoded(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// A hostile definition is data: its texts are in the answers as they were written, and nowhere else.
func TestHostileDefinition(t *testing.T) {
	w := newRecording(t)
	var inputs strings.Builder
	for i, text := range hostile {
		if text != "\xff\xfe" { // no definition has bytes that aren't UTF-8
			fmt.Fprintf(&inputs, "h%d: %q, ", i, strings.ReplaceAll(text, "${", "$ {"))
		}
	}
	inputsText := strings.ReplaceAll(inputs.String(), `\x00`, `\u0000`)
	text := fmt.Sprintf("workflow: evil\nversion: 1\ncomplete_within: 1h\ndefaults: {complete_within: 1m}\nsteps:\n  a: {agent: a, operation: o, input: {%s}}\n  b: {needs: [a], wait: 10m, when: \"${ '</script>' == input.x }\"}\n", inputsText)
	w.definitions = map[string]*workflow.Definition{"evil/1": definitionOf(t, text), "evil/2": definitionOf(t, strings.Replace(text, "version: 1", "version: 2", 1))}
	s := w.console(t, nil)
	for _, path := range []string{"/workflows/evil/1", "/workflows/evil/1/diff?to=2"} {
		r := ask(t, s, http.MethodGet, api+path, "")
		route := map[bool]string{true: api + "/workflows/{name}/{version}/diff", false: api + "/workflows/{name}/{version}"}[strings.Contains(path, "diff")]
		if readDocument(t).fits(t, http.MethodGet, route, r); r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" || r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v %.300s", path, r.status, r.header, r.body)
		}
	}
}

// No route of a read-only console writes.
func TestReadOnlyConsoleWritesNothing(t *testing.T) {
	w := newRecording(t)
	base := w.console(t, nil).Config.Handler.(*Console).cfg
	base.LoopbackOperator, base.File = false, "orders.jsonl"
	c := New(base)
	t.Cleanup(c.Close)
	for i := range routes {
		if r := &routes[i]; r.role > Viewer {
			if w := answers(c, r.method, pathOf(r, w.some(t, events.StateError).ID), "127.0.0.1:1"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "serves the file orders.jsonl") {
				t.Errorf("%s %s: %d %s", r.method, r.path, w.Code, w.Body)
			}
		}
	}
	if w.writes() > 0 {
		t.Errorf("%d records were written", w.writes())
	}
}

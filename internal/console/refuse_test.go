package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

const (
	viewerToken    = "viewer-0123456789abcdef"
	submitterToken = "submitter-0123456789abcdef"
	operatorToken  = "operator-0123456789abcdef"
)

func someTokens(t testing.TB) *Tokens {
	t.Helper()
	tokens, err := ParseTokens(strings.NewReader("# who may do what\n\nviewer vera " + viewerToken + "\nsubmitter saul " + submitterToken +
		" # the shop\noperator olga " + operatorToken + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// Invalid requests are rejected with a problem that says what is wrong, and nothing is written.
func TestRefusals(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	id := w.some(t, events.StateProcessed).ID
	get, post := http.MethodGet, http.MethodPost
	for _, c := range []struct {
		method, path, body string
		status             int
		detail             string
		headers            []string
	}{
		// Paths.
		{get, "/tasks", "", 404, "openapi.json", nil},
		{get, "/api/v2/tasks", "", 404, "there is no", nil},
		{get, api + "/tasks/" + id + "/secrets", "", 404, "there is no", nil},
		{get, api + "/tasks/a/b", "", 404, "a slash in a task's id is %2F", nil},
		{get, api + "/tasks/../timeline", "", 404, "%2E%2E", nil},
		{get, api + "/tasks/..%2f..%2f..%2fetc%2fpasswd", "", 404, "no task", nil},
		{get, api + "/tasks/%2e%2e", "", 404, `no task ".."`, nil},
		{get, api + "/tasks/a%00b", "", 400, "control character", nil},
		{get, api + "/tasks/%ff%fe", "", 400, "UTF-8", nil},
		{get, api + "/tasks/" + strings.Repeat("x", 257), "", 400, "256", nil},
		{get, api + "/tasks/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "", 404, "no task", nil},
		{"DELETE", api + "/tasks/" + id, "", 405, "accepts GET", nil},
		{"PUT", api + "/tasks", "{}", 405, "accepts GET and POST", nil},
		{"TRACE", api + "/tasks", "", 405, "accepts GET and POST", nil},
		{get, api + "/tasks/" + id + "/undo", "", 405, "accepts POST", nil},
		// Queries.
		{get, api + "/tasks?state=error", "", 400, `unknown parameter "state"`, nil},
		{get, api + "/tasks?filter=a&filter=b", "", 400, "2 times", nil},
		{get, api + "/tasks?filter=%zz", "", 400, "can't be read", nil},
		{get, api + "/tasks?filter=state:error;drop", "", 400, "can't be read", nil},
		{get, api + "/tasks?filter=state:error%27%20OR%201=1", "", 400, "one of", nil},
		{get, api + "/tasks?page_size=0", "", 400, "1 to 1000", nil},
		{get, api + "/tasks?page_size=1001", "", 400, "1 to 1000", nil},
		{get, api + "/tasks?page_size=99999999999999999999", "", 400, "1 to 1000", nil},
		{get, api + "/tasks?page_token=AAAA", "", 400, "page token", nil},
		{get, api + "/tasks?page_token=" + strings.Repeat("A", 9000), "", 400, "page token", nil},
		{get, api + "/tasks?min_offset=5", "", 400, "PARTITION:OFFSET", nil},
		{get, api + "/tasks?min_offset=99:5", "", 400, "no partition 99", nil},
		{get, api + "/tasks/" + id + "?min_offset=-1", "", 400, "an offset", nil},
		{get, api + "/alerts?since=yesterday", "", 400, "a duration back", nil},
		{get, api + "/alerts?limit=-1", "", 400, "1 to 1000", nil},
		{get, api + "/alerts?open=perhaps", "", 400, "true or false", nil},
		{get, api + "/alerts?min_offset=5", "", 400, "PARTITION:OFFSET", nil},
		{get, api + "/deadletters?reason=bad_json,none", "", 400, "one of", nil},
		{get, api + "/deadletters?reason=none", "", 400, "one of", nil},
		{get, api + "/alerts?page_token=AAAA", "", 400, "page token", nil},
		{get, api + "/deadletters?page_token=" + encodeToken(noticeToken{Question: "of another", Now: 1}), "", 400, "page token", nil},
		{get, api + "/events?after=0:99999999", "", 400, "past the log's end", nil},
		{get, api + "/events", "", 400, "an id that this stream gave", []string{"Last-Event-ID: 1'; --"}},
		{get, api + "/tasks/" + id + "/events", "", 400, "an id that this stream gave", []string{"Last-Event-ID: x"}},
		// Bodies.
		{post, api + "/tasks", `{"id":"a","workflow":"order"`, 400, "not valid JSON", nil},
		{post, api + "/tasks", "", 400, "empty", nil},
		{post, api + "/tasks", "\xff\xfe", 400, "UTF-8", nil},
		{post, api + "/tasks", `{"id":"a","workflow":"nobody"}`, 422, "no workflow", nil},
		{post, api + "/tasks", `{"id":"a\nb","workflow":"order"}`, 422, "control character", nil},
		{post, api + "/tasks", `{"workflow":"order"}`, 422, "id", nil},
		{post, api + "/tasks", `{"id":"a","workflow":"order","reply_to":"waybill.events"}`, 422, "namespace", nil},
		{post, api + "/tasks", `{"id":"a","workflow":"order","reply_to":"no topic!"}`, 422, "can't be a topic's name", nil},
		{post, api + "/tasks", `{"id":"a","workflow":"order","reply_to":"` + strings.Repeat("x", events.MaxReplyToBytes+1) + `"}`, 422, "at most 249", nil},
		{post, api + "/tasks", `[` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `]`, 400, "not valid JSON", nil},
		{post, api + "/tasks", `{"id":"a","workflow":"order","input":"` + strings.Repeat("x", bodyMaxBytes) + `"}`, 413, "at most 524288 bytes", nil},
		{post, api + "/tasks", `id=a&workflow=order`, 415, "Content-Type", []string{"Content-Type: application/x-www-form-urlencoded"}},
		{post, api + "/tasks", `{"id":"a","workflow":"order"}`, 415, "Content-Type", []string{"Content-Type: text/plain"}},
		{post, api + "/tasks/" + id + "/undo", `{}`, 400, "reason", nil},
		{post, api + "/tasks/" + id + "/undo", `{"reason":"x","force":true}`, 400, `unknown field "force"`, nil},
		{post, api + "/tasks/" + id + "/undo", `["reason"]`, 400, "no JSON object", nil},
		{post, api + "/tasks/" + id + "/undo", `null`, 400, "no JSON object", nil},
		{post, api + "/tasks/" + id + "/cancel", `{"reason":"x","keep":"yes"}`, 400, "keep is a string, must be a bool", nil},
		{post, api + "/tasks/" + id + "/release", `{"reason":"x","step":"charge","as":"failed"}`, 400, `"as"`, nil},
		{post, api + "/tasks/" + id + "/release", `{"reason":"x","step":"charge","as":"completed"}`, 400, `"output": null`, nil},
		{post, api + "/tasks/" + id + "/undo", `{"reason":"` + strings.Repeat("x", 5000) + `"}`, 422, "why", nil},
		{post, api + "/tasks/" + id + "/undo", `{"reason":"x","request_id":"` + strings.Repeat("x", 300) + `"}`, 422, "256", nil},
		// Headers.
		{get, api + "/tasks", "", 421, "loopback only", []string{"Host: evil.example"}},
		{get, api + "/tasks", "", 421, "loopback only", []string{"Host: 127.0.0.1.evil.example:8080"}},
		{post, api + "/tasks/" + id + "/undo", `{"reason":"x"}`, 403, "Origin", []string{"Origin: http://evil.example"}},
		{get, api + "/tasks", "", 403, "Origin", []string{"Origin: null"}},
	} {
		r := ask(t, s, c.method, c.path, c.body, c.headers...)
		if got := problem(t, r, c.status); !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s %.80s %.60s: %q, want %q", c.method, c.path, c.body, got.Detail, c.detail)
		}
		if h := r.header; h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %.80s: headers %v", c.method, c.path, h)
		}
	}
	if w.writes() != 0 {
		t.Errorf("%d records were written", w.writes())
	}
}

// Malformed HTTP requests end with an HTTP error.
func TestBrokenRequests(t *testing.T) {
	s := newRecording(t).console(t, nil)
	for text, want := range map[string]string{
		"GET " + api + "/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + strings.Repeat("x", 1<<21) + "\r\n\r\n": " 431 ",
		"GET " + api + "/tasks HTTP/1.1\r\n\r\n":                       " 400 ",
		"GET " + api + "/tasks HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": " 400 ",
		"POST " + api + "/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n": " 400 ",
		"GET ../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n": " 400 ",
	} {
		if got := askRaw(t, s, text); !strings.Contains(strings.SplitN(got, "\r\n", 2)[0], want) {
			t.Errorf("%.60q: %.200q, want%s", text, got, want)
		}
	}
}

// A missing or unknown token is rejected. Each role may do exactly what it is allowed to on every route. Records name
// the caller.
func TestTokens(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, someTokens(t))
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Reason: "it is processed", State: events.StateProcessed}, nil
	}
	for _, sent := range [][]string{nil, {""}, {"Bearer"}, {"Bearer "}, {"Bearer " + viewerToken + "x"}, {"Bearer " + viewerToken[1:]}, {"Basic " + viewerToken},
		{viewerToken}, {"Bearer " + viewerToken, "Bearer " + operatorToken}, {"Bearer vera"}, {"Bearer viewer vera " + viewerToken}} {
		var headers []string
		for _, h := range sent {
			headers = append(headers, "Authorization: "+h)
		}
		r := ask(t, s, http.MethodGet, api+"/tasks", "", headers...)
		if p := problem(t, r, http.StatusUnauthorized); r.header.Get("WWW-Authenticate") == "" || strings.Contains(p.Detail, viewerToken) {
			t.Errorf("%q: %v %s", sent, r.header, r.body)
		}
	}
	problem(t, ask(t, s, http.MethodGet, "/nowhere", ""), http.StatusUnauthorized)
	roles := []struct {
		token, name string
		role        Role
	}{{viewerToken, "vera", Viewer}, {submitterToken, "saul", Submitter}, {operatorToken, "olga", Operator}}
	for _, route := range routes {
		if route.streams() {
			continue // TestTaskStream and TestStream cover streams
		}
		path := pathOf(&route, "t-1")
		for _, who := range roles {
			r := ask(t, s, route.method, path, `{"reason":"x","id":"new-1","workflow":"nobody"}`, "Authorization: Bearer "+who.token)
			if permitted := who.role >= route.role; permitted == (r.status == http.StatusForbidden) || r.status == http.StatusUnauthorized {
				t.Errorf("%s %s by %s: %d %s", route.method, route.path, who.name, r.status, r.body)
			}
		}
	}
	before := w.writes()
	ask(t, s, http.MethodPost, api+"/tasks/t-1/undo", `{"reason":"x"}`, "Authorization: Bearer "+operatorToken)
	if w.writes() != before+1 {
		t.Fatal("an operator's command wasn't written")
	}
	_, in, err := events.DecodeInput(events.Controls, &w.written[before])
	if err != nil || in.(*events.Control).Who != "olga" {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestTokenFilesRefused(t *testing.T) {
	for text, why := range map[string]string{
		"":                            "no token",
		"# nothing\n":                 "no token",
		"viewer vera":                 "line 1 has 2 words",
		"admin vera 0123456789abcdef": "no role \"admin\"",
		"viewer vera short":           "line 1: the token has less",
		"viewer a 0123456789abcdef\noperator b 0123456789abcdef": "line 2: b has the same token as a",
	} {
		if _, err := ParseTokens(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add("viewer vera 0123456789abcdef\n# x\noperator o 0123456789abcdefg")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ParseTokens(strings.NewReader(text))
		if err == nil && len(*tokens.current.Load()) == 0 {
			t.Errorf("%q: no token, and no error", text)
		}
	})
}

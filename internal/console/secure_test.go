package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// configured returns a console with a changed configuration and without a listener.
func configured(t *testing.T, change func(*Config)) *Console {
	t.Helper()
	w := newRecording(t)
	s := w.console(t, someTokens(t))
	cfg := s.Config.Handler.(*Console).cfg
	change(&cfg)
	c := New(cfg)
	c.timeouts.control = time.Millisecond // no scheduler replies
	t.Cleanup(c.Close)
	return c
}

func answers(c *Console, method, path, from string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(`{"reason":"x"}`))
	r.Host, r.RemoteAddr = "127.0.0.1:8080", from
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

const bearer = "Authorization: Bearer "

// A token may contain a #. At the beginning of a word it starts a comment.
func TestTokenWithAHash(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("viewer vera 0123456789#abcdef # hers\n#operator olga 0123456789abcdef\n"))
	if err != nil {
		t.Fatal(err)
	}
	if who, ok := tokens.find("0123456789#abcdef"); !ok || who.name != "vera" {
		t.Errorf("the token is %v, %+v", ok, who)
	}
	for _, other := range []string{"0123456789", "0123456789abcdef"} {
		if who, ok := tokens.find(other); ok {
			t.Errorf("%q is the token of %+v", other, who)
		}
	}
}

// After a replacement, new tokens are accepted and removed ones are rejected.
func TestTokensAreReplaced(t *testing.T) {
	c := configured(t, func(*Config) {})
	with, err := ParseTokens(strings.NewReader("viewer nina fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	asked := func(token string) int {
		return answers(c, http.MethodGet, api+"/workflows", "10.0.0.1:1", bearer+token).Code
	}
	if asked(viewerToken) != http.StatusOK || asked("fedcba9876543210") != http.StatusUnauthorized {
		t.Fatal("the tokens aren't those of the test")
	}
	c.cfg.Tokens.Replace(with)
	if asked(viewerToken) != http.StatusUnauthorized || asked("fedcba9876543210") != http.StatusOK {
		t.Error("the old tokens still count")
	}
}

// Failed authentications are counted, logged once a minute for each source, and answered with 429 beyond a bound. Valid
// tokens from the same source are still accepted, because it may be a proxy.
func TestFailedAuthenticationsAreThrottled(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var all []Denial
	c := configured(t, func(cfg *Config) {
		cfg.Clock = func() time.Time { return now }
		cfg.Denied = func(d Denial) { all = append(all, d) }
	})
	ask := func(from string, headers ...string) int {
		return answers(c, http.MethodGet, api+"/workflows", from, headers...).Code
	}
	for i := range failuresMax {
		if code := ask("10.0.0.1:99", bearer+"guess"); code != http.StatusUnauthorized {
			t.Fatalf("failure %d is answered with %d", i, code)
		}
	}
	if code := ask("10.0.0.1:98", bearer+"guess"); code != http.StatusTooManyRequests {
		t.Errorf("one more is answered with %d", code)
	}
	if code := ask("10.0.0.1:97", bearer+viewerToken); code != http.StatusOK {
		t.Errorf("a valid token of the same source is answered with %d", code)
	}
	if code := ask("10.0.0.2:99", bearer+"guess"); code != http.StatusUnauthorized {
		t.Errorf("another source is answered with %d", code)
	}
	now = now.Add(failuresWithin)
	if code := ask("10.0.0.1:98", bearer+"guess"); code != http.StatusUnauthorized {
		t.Errorf("a minute later it is answered with %d", code)
	}
	logged := 0
	for _, d := range all {
		if d.Log {
			logged++
		}
		if strings.Contains(d.Reason, "guess") {
			t.Errorf("a token is in the log: %+v", d)
		}
	}
	if last := all[len(all)-1]; len(all) != failuresMax+3 || logged != 3 || last.Others != failuresMax || last.Source != "10.0.0.1" {
		t.Errorf("%d failures were counted and %d logged; the last is %+v", len(all), logged, last)
	}
	for i := range 2 * sourcesMax {
		ask("10.1."+string(rune('0'+i%10))+"."+time.Duration(i).String()+":1", bearer+"guess")
	}
	if n := len(c.denials.sources); n > sourcesMax {
		t.Errorf("%d sources are remembered", n)
	}
}

// A request without a token comes from a page that needs one; it isn't a guess. It is answered with 401 and isn't
// counted, even if the address is throttled.
func TestRequestsWithoutATokenAreNotThrottled(t *testing.T) {
	denied := 0
	c := configured(t, func(cfg *Config) { cfg.Denied = func(Denial) { denied++ } })
	for i := range 2 * failuresMax {
		if code := answers(c, http.MethodGet, api+"/workflows", "10.0.0.1:1").Code; code != http.StatusUnauthorized {
			t.Fatalf("request %d is answered with %d", i, code)
		}
	}
	if code := answers(c, http.MethodGet, api+"/workflows", "10.0.0.1:1", bearer+"guess").Code; code != http.StatusUnauthorized || denied != 1 {
		t.Errorf("a first guess is answered with %d, and %d were counted", code, denied)
	}
	page, err := os.ReadFile("web/page/live.js")
	if err != nil || !strings.Contains(string(page), "e.status !== 401 && e.status !== 429") {
		t.Errorf("the page doesn't ask for a token at 401 and 429: %v", err)
	}
}

// Without tokens, local users may read. They may send commands if the configuration allows it, but not through a proxy.
func TestLoopbackOperator(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		c := configured(t, func(cfg *Config) { cfg.Tokens, cfg.LoopbackOperator = nil, allowed })
		if code := answers(c, http.MethodGet, api+"/workflows", "127.0.0.1:1").Code; code != http.StatusOK {
			t.Errorf("allowed %v: a look is answered with %d", allowed, code)
		}
		w := answers(c, http.MethodPost, api+"/tasks/nobody/undo", "127.0.0.1:1")
		if forbidden := w.Code == http.StatusForbidden; forbidden == allowed || !allowed && !strings.Contains(w.Body.String(), "--allow-loopback-operator") {
			t.Errorf("allowed %v: a command is answered with %d %s", allowed, w.Code, w.Body)
		}
		for _, name := range proxyHeaders {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				path := map[string]string{http.MethodGet: api + "/workflows", http.MethodPost: api + "/tasks/nobody/undo"}[method]
				if code := answers(c, method, path, "127.0.0.1:1", name+": 10.0.0.9").Code; code != http.StatusMisdirectedRequest {
					t.Errorf("allowed %v: %s with %s is answered with %d", allowed, method, name, code)
				}
			}
		}
	}
}

// Behind a proxy that forwards another Host, the console's page may send POST requests. Pages of other origins may not.
func TestPostsBehindAProxy(t *testing.T) {
	c := configured(t, func(cfg *Config) { cfg.TrustedOrigins = []string{"https://waybill.example"} })
	for _, tt := range []struct {
		name    string
		taken   bool
		headers []string
	}{
		{"no browser", true, nil},
		{"the same host", true, []string{"Host: console:8080", "Origin: http://console:8080"}},
		{"a trusted origin, and another Host", true, []string{"Host: console:8080", "Origin: https://waybill.example"}},
		{"a browser that says it is the same site, and another Host", true, []string{"Host: console:8080", "Origin: https://w.example", "Sec-Fetch-Site: same-origin"}},
		{"another origin", false, []string{"Host: console:8080", "Origin: https://evil.example"}},
		{"another site, by a browser's word", false, []string{"Host: console:8080", "Sec-Fetch-Site: cross-site"}},
		{"a trusted host by another scheme", false, []string{"Host: console:8080", "Origin: http://waybill.example"}},
	} {
		w := answers(c, http.MethodPost, api+"/tasks/nobody/undo", "10.0.0.1:1", append(tt.headers, bearer+operatorToken)...)
		if (w.Code != http.StatusForbidden) != tt.taken {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
}

// One token can't occupy all streams.
func TestStreamsOfOneToken(t *testing.T) {
	var v streamCounts
	for range callerStreamsMax {
		if !v.add("vera", callerStreamsMax) {
			t.Fatal("there is no room")
		}
	}
	if v.add("vera", callerStreamsMax) || !v.add("olga", callerStreamsMax) {
		t.Error("one more of the same is taken, or none of another")
	}
	v.remove("vera")
	v.remove("olga")
	if !v.add("vera", callerStreamsMax) || len(v.open) != 1 {
		t.Errorf("a stream that ended makes no room: %v", v.open)
	}
	if callerStreamsMax*2 > streamsMax {
		t.Error("one token takes more than half of all streams")
	}
}

// A stream ends when its token is replaced, even by another token with the same name.
func TestStreamEndsWithItsToken(t *testing.T) {
	w := newRecording(t)
	tokens := someTokens(t)
	task := w.some(t, events.StateError) // its stream doesn't end on its own
	s := w.console(t, tokens)
	came, status := openStream(t, s, api+"/tasks/"+url.PathEscape(task.ID)+"/events", bearer+viewerToken)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for range task.Seq {
		if _, open := <-came; !open {
			t.Fatal("the stream has ended before its token was replaced")
		}
	}
	with, err := ParseTokens(strings.NewReader("viewer vera another-0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	tokens.Replace(with)
	next := w.last(task.ID)
	next.Offset += 100
	w.comes(next)
	if e, open := <-came; open {
		t.Errorf("a replaced token is still sent %+v", e)
	}
}

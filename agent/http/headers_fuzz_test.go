package http

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// FuzzHeaders: the headers of a header file can be sent, and none is one of Waybill's own. They are the same after they
// are written and read again.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"Authorization: Bearer x", "# comment\n\nA: 1\na: 2\r\nB:\tx y \n", "Host: a", "x-waybill-task: 1", "no colon", ": v", "A: b\x00", "A: b\rC: d", "Ä: x", "A : b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := parseHeaders(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for name, values := range headers {
			if isOwnHeader(name) || isOwnHeader(http.CanonicalHeaderKey(name)) {
				t.Fatalf("%q sets %s", text, name)
			}
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Fatalf("%s: %q is no header's value", name, v)
				}
				again.WriteString(name + ": " + v + "\n")
			}
		}
		back, err := parseHeaders(again.String())
		if err != nil || len(back) != len(headers) {
			t.Fatalf("%q is %q, then %q, %v", text, headers, back, err)
		}
		for name := range headers {
			if !slices.Equal(back[name], headers[name]) {
				t.Fatalf("%q is %q, then %q", text, headers, back)
			}
		}
	})
}

// FuzzFieldValue: any text can be encoded as a header's value, and different texts have different values.
func FuzzFieldValue(f *testing.F) {
	f.Add("o-7")
	f.Add("a%20b é\r\nX: y\xff")
	f.Fuzz(func(t *testing.T, s string) {
		v := fieldValue(s)
		if !isFieldValue(v) || strings.ContainsAny(v, " \t") {
			t.Fatalf("%q is written %q", s, v)
		}
		if back, err := url.PathUnescape(v); err != nil || back != s {
			t.Fatalf("%q is written %q and read %q, %v", s, v, back, err)
		}
	})
}

// FuzzAnswer: any response becomes an output that is JSON, or a failure by its status class. A wait that it asks for is
// never negative.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", "", []byte(`{"tracking":"T-1"}`), false)
	f.Add(200, "", "", []byte("plain \xff text"), false)
	f.Add(429, "17", "", []byte(`{"code":"busy","message":7}`), false)
	f.Add(503, "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:00 GMT", []byte(`[]`), true)
	f.Add(303, "99999999999999999999", "x", []byte(nil), false)
	f.Add(100, "-1", "", []byte("{"), false)
	f.Fuzz(func(t *testing.T, status int, retryAfterText, date string, body []byte, cut bool) {
		a := &Agent{cfg: Config{MaxResponseBytes: 1 << 10}}
		w := response{status: status, body: body, header: http.Header{"Retry-After": {retryAfterText}, "Date": {date}},
			now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		if cut {
			w.readErr = http.ErrBodyReadAfterClose
		}
		out, err := a.interpret(agent.Request{Operation: "charge"}, w)
		if err == nil {
			b, err := json.Marshal(out)
			if status < 200 || status > 299 || cut || err != nil || !events.ValidJSON(b) {
				t.Fatalf("%d %q gives %s, %v", status, body, b, err)
			}
			return
		}
		var fail *agent.Failure
		if !errors.As(err, &fail) || fail.After < 0 || fail.After > retryAfterMax || fail.Code == "" {
			t.Fatalf("%d %q gives %#v", status, body, err)
		}
		if len(fail.Details) > 0 && (!json.Valid(fail.Details) || !utf8.Valid(fail.Details)) {
			t.Fatalf("%d %q has the details %q", status, body, fail.Details)
		}
		if fail.Rejected != (status >= 400 && status < 500 && status != 408 && status != 409 && status != 425 && status != 429) {
			t.Fatalf("%d is rejected: %v", status, fail.Rejected)
		}
		if fail.NoEffect && status != 425 && status != 429 {
			t.Fatalf("%d is said to have had no effect", status)
		}
	})
}

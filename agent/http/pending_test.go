package http

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// A 202 says that the work goes on. Its body is progress, and Retry-After says when to ask again, within the heartbeat.
func TestStillWorking(t *testing.T) {
	var body, later string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if later != "" {
			w.Header().Set("Retry-After", later)
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, body)
	})
	a := newAgent(t, Config{URL: s.URL, MaxResponseBytes: 64 << 10})
	for _, c := range []struct {
		body, later string
		heartbeat   time.Duration
		value       string
		after       time.Duration
	}{
		{` {"percent": 40} `, "", 0, `{"percent":40}`, 2 * time.Second},
		{"", "5", 0, "null", 5 * time.Second},
		{"half", "0", 0, `{"body":"half"}`, 100 * time.Millisecond},
		{"1", "60", 10 * time.Second, "1", 4 * time.Second},
		{"1", "10s", 0, "1", 2 * time.Second}, // malformed: as without one
		{"1", "-1", 0, "1", 2 * time.Second},
		{"1", "2.5", 0, "1", 2 * time.Second},
		{"1", " ", 0, "1", 2 * time.Second},
		{"1", "Thu, 01 Jan 1970 00:00:00 GMT", 0, "1", 100 * time.Millisecond},
		{"1", "1", 10 * time.Second, "1", time.Second},
		{"1", "", 2500 * time.Millisecond, "1", time.Second},
		{`"` + strings.Repeat("x", events.MaxProgressBytes) + `"`, "", 0, "null", 2 * time.Second},
		{strings.Repeat("x", 65<<10), "", 0, "null", 2 * time.Second},
		{`{"a":1,"a":2}`, "", 0, `{"body":"{\"a\":1,\"a\":2}"}`, 2 * time.Second},
		{"bad \xff byte", "", 0, "null", 2 * time.Second},
	} {
		body, later = c.body, c.later
		r := testRequest()
		r.Heartbeat = c.heartbeat
		_, err := a.Handle(context.Background(), r)
		var p *agent.PendingError
		if !errors.As(err, &p) || string(p.Value) != c.value || p.After != c.after {
			t.Errorf("%.40q, Retry-After %q, heartbeat %v: %+v %v; want %s after %v", c.body, c.later, c.heartbeat, p, err, c.value, c.after)
		}
	}
}

// The service learns the heartbeat, and the last progress of an earlier attempt if it fits into a header.
func TestServiceSeesTheHeartbeat(t *testing.T) {
	var got http.Header
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	a := newAgent(t, Config{URL: s.URL})
	r := testRequest()
	r.Heartbeat, r.Progress = 1500*time.Millisecond, []byte(`{"at": "50 %"}`)
	if _, f := handle(t, a, r); f != nil || got.Get("X-Waybill-Heartbeat-Ms") != "1500" || got.Get("X-Waybill-Progress") != `{"at":%20"50%20%25"}` {
		t.Errorf("%v, %v", got, f)
	}
	r.Progress = []byte(`"` + strings.Repeat(" ", 2000) + `"`)
	if _, f := handle(t, a, r); f != nil || got.Get("X-Waybill-Progress") != "" {
		t.Errorf("%v, %v", got, f)
	}
	if _, f := handle(t, a, testRequest()); f != nil || got.Get("X-Waybill-Heartbeat-Ms") != "" {
		t.Errorf("%v, %v", got, f)
	}
}

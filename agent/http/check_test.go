package http

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// requestOfACheck returns the request of a check, as the scheduler writes it.
func requestOfACheck(operation string, within time.Duration) events.Record {
	value := events.CheckValue(events.CheckOf{IdempotencyKey: "waybill.o-1/charge/do/1", Input: []byte(`{"amount":5}`)})
	q := events.Request{Task: "o-1", Ref: events.RequestRef{Step: "charge", Kind: events.Check, Attempt: 2}, Token: "t", Operation: operation,
		CompleteBy: time.Now().Add(within), IdempotencyKey: "waybill.o-1/charge/check/1", Value: value}
	return q.Record("waybill.", "test", "payments", 0)
}

// answerToCheck runs an agent that gets one check, and returns its reply.
func answerToCheck(t *testing.T, a *Agent, operation string) *events.Reply {
	t.Helper()
	s := &memorySession{requests: make(chan events.Record, 1), replies: make(chan events.Record, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, agent.Config{
			Open:   func(context.Context) (agent.Session, error) { return s, nil },
			Source: "test",
			Retry:  agent.Retry{Backoff: time.Millisecond, Max: time.Millisecond},
		}, a)
	}()
	s.requests <- requestOfACheck(operation, time.Minute)
	var reply *events.Reply
	for reply == nil || reply.Outcome == events.Progress {
		r := <-s.replies
		_, in, err := events.DecodeInput(events.Replies, &r)
		if err != nil {
			t.Fatal(err)
		}
		reply = in.(*events.Reply)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return reply
}

// A check is posted as every request: its operation is in the URL, and its value names the key that it asks about.
func TestServiceSeesACheck(t *testing.T) {
	var got *http.Request
	var body string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		fmt.Fprint(w, `{"outcome":"none"}`)
	})
	reply := answerToCheck(t, newAgent(t, Config{URL: s.URL + "/v1/{operation}"}), "status")
	if want := `{"check_of":{"idempotency_key":"waybill.o-1/charge/do/1","input":{"amount":5}}}`; got.URL.Path != "/v1/status" || body != want {
		t.Errorf("%s gets %s; want %s", got.URL, body, want)
	}
	for name, want := range map[string]string{"Idempotency-Key": "waybill.o-1/charge/check/1", "X-Waybill-Request": "o-1/charge/check/2",
		"X-Waybill-Operation": "status", "X-Waybill-Heartbeat-Ms": ""} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q; want %q", name, v, want)
		}
	}
	if reply.Ref != (events.RequestRef{Step: "charge", Kind: events.Check, Attempt: 2}) {
		t.Errorf("the reply is of %+v", reply.Ref)
	}
}

// The body of a 2xx is the answer. Whatever doesn't say what became of the key leaves the effect unknown. Only an answer
// of the service says that nothing happened, and no status does.
func TestAnswersToACheck(t *testing.T) {
	for _, c := range []struct {
		status       int
		body         string
		outcome      events.Outcome
		became       events.Became
		output, code string
	}{
		{200, `{"outcome":"completed","output":{"charge":"ch_1"}}`, events.Completed, events.BecameCompleted, `{"charge":"ch_1"}`, ""},
		{201, ` {"outcome": "completed"} `, events.Completed, events.BecameCompleted, "null", ""},
		{200, `{"outcome":"none"}`, events.Completed, events.BecameNone, "", ""},
		{200, `{"outcome":"unknown"}`, events.Completed, events.BecameUnknown, "", ""},
		{200, `{"outcome":"perhaps"}`, events.Completed, events.BecameUnknown, "", events.CodeBadCheck},
		{200, `{"charge":"ch_1"}`, events.Completed, events.BecameUnknown, "", events.CodeBadCheck},
		{204, "", events.Completed, events.BecameUnknown, "", events.CodeBadCheck},
		{200, "none", events.Completed, events.BecameUnknown, "", events.CodeBadCheck},
		{200, `{"outcome":"none","outcome":"completed"}`, events.Failed, "", "", "bad_output"},
		{302, "", events.Failed, "", "", "http_302"},
		{404, `{"code":"no_such_charge"}`, events.Rejected, "", "", "no_such_charge"},
		{404, "", events.Rejected, "", "", "http_404"},
		{400, "", events.Rejected, "", "", "http_400"},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		reply := answerToCheck(t, newAgent(t, Config{URL: s.URL}), "status")
		if reply.Outcome != c.outcome {
			t.Errorf("%d %s: %s %s; want %s", c.status, c.body, reply.Outcome, reply.Body, c.outcome)
			continue
		}
		if c.outcome != events.Completed {
			if got := reply.Failure().Code; got != c.code {
				t.Errorf("%d %s: code %s of %s; want %s", c.status, c.body, got, reply.Body, c.code)
			}
			continue
		}
		became, output, failure := reply.Became()
		code := ""
		if failure != nil {
			code = failure.Code
		}
		if became != c.became || string(output) != c.output || code != c.code {
			t.Errorf("%d %s: %s %s %q; want %s %s %q", c.status, c.body, became, output, code, c.became, c.output, c.code)
		}
	}
}

// A service that is unavailable is asked again, and one that is at work on its answer (202) is polled, until it tells.
func TestCheckIsAskedAgain(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		case 3, 4:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"percent":40}`)
		default:
			_, _ = io.WriteString(w, `{"outcome":"completed","output":7}`)
		}
	})
	reply := answerToCheck(t, newAgent(t, Config{URL: s.URL}), "status")
	became, output, err := reply.Became()
	if became != events.BecameCompleted || string(output) != "7" || err != nil || calls.Load() != 5 {
		t.Errorf("%s %s %v after %d calls", became, output, err, calls.Load())
	}
}

// The time of a check bounds its call, as of every request. Nothing is replied then.
func TestCheckEndsAtItsBound(t *testing.T) {
	var left atomic.Value // what the service had; on a busy machine the request may never reach it
	left.Store("")
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		left.Store(r.Header.Get("X-Waybill-Timeout-Ms"))
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	r := testRequest()
	r.ID, r.Kind, r.Operation = "o-1/charge/check/1", agent.Check, "status"
	r.CompleteBy = time.Now().Add(100 * time.Millisecond)
	_, f := handle(t, newAgent(t, Config{URL: s.URL}), r)
	ms, _ := left.Load().(string)
	if f == nil || f.Code != CodeNoAnswer || f.NoEffect || len(ms) > 3 || strings.HasPrefix(ms, "-") {
		t.Errorf("%+v; the service had %q ms", f, ms)
	}
}

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var (
	t0       = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	testTrys = Retry{MaxTries: 3, Backoff: 100 * time.Millisecond, Factor: 2, Max: time.Second}
)

func newTestAttempt(completeIn time.Duration) attempt {
	return attempt{retry: &testTrys, req: &Request{ID: "o-1/charge/do/2", Task: "o-1", Step: "charge", Kind: Do, Attempt: 2,
		Operation: "charge", IdempotencyKey: "k", CompleteBy: t0.Add(completeIn)}}
}

func describe(n decision) (text string) {
	switch n.action {
	case actCall:
		return "call"
	case actWait:
		return "wait"
	case actDrop:
		return "stop"
	case actAbandon:
		return "leave"
	}
	s := string(n.reply.Outcome)
	if n.reply.RetryAfter > 0 {
		defer func() { text += " after " + n.reply.RetryAfter.String() }()
	}
	if n.reply.Outcome == events.Failed {
		s += " " + string(n.reply.Effect)
	}
	return s
}

// An attempt is a sequence of calls with their results. The decision after the last call is checked. All calls are at
// the same instant.
func TestAfterCall(t *testing.T) {
	boom := errors.New("boom")
	reject := Rejected("no_stock", "none left")
	for _, c := range []struct {
		name  string
		calls []error // nil: completed
		left  time.Duration
		want  string
	}{
		{"completed", []error{nil}, time.Minute, "completed"},
		{"completed too late", []error{nil}, 0, "stop"},
		{"failed too late", []error{boom}, 0, "stop"},
		{"rejected too late", []error{reject}, 0, "stop"},
		{"rejected", []error{reject}, time.Minute, "rejected"},
		{"wrapped rejection", []error{fmt.Errorf("charge: %w", reject)}, time.Minute, "rejected"},
		{"plain error", []error{boom}, time.Minute, "failed unknown"},
		{"no effect", []error{NoEffect(boom)}, time.Minute, "failed none"},
		{"transient", []error{Transient(boom)}, time.Minute, "wait"},
		{"transient without effect", []error{NoEffect(Transient(boom))}, time.Minute, "wait"},
		{"transient, no time for another", []error{Transient(boom)}, 50 * time.Millisecond, "failed unknown"},
		{"transient without effect, no time", []error{NoEffect(Transient(boom))}, 50 * time.Millisecond, "failed none"},
		{"retry after longer than there is", []error{NoEffect(RetryAfter(boom, time.Hour))}, time.Minute, "failed none after 1h0m0s"},
		{"retry after longer than there is, with an effect", []error{RetryAfter(boom, time.Hour)}, time.Minute, "failed unknown after 1h0m0s"},
		{"retry after, tries used up", []error{Transient(boom), Transient(boom), RetryAfter(boom, time.Second)}, time.Minute, "failed unknown after 1s"},
		{"retry after that isn't the last", []error{RetryAfter(boom, time.Second), boom}, time.Minute, "failed unknown"},
		{"tries used up", []error{Transient(boom), Transient(boom), Transient(boom)}, time.Minute, "failed unknown"},
		{"tries used up, none touched", []error{NoEffect(Transient(boom)), NoEffect(Transient(boom)), NoEffect(Transient(boom))}, time.Minute, "failed none"},
		{"one of them touched", []error{NoEffect(Transient(boom)), Transient(boom), NoEffect(Transient(boom))}, time.Minute, "failed unknown"},
		{"completed at last", []error{Transient(boom), nil}, time.Minute, "completed"},
		{"rejected after a call without effect", []error{NoEffect(Transient(boom)), reject}, time.Minute, "rejected"},
		{"pending", []error{Pending(nil, time.Second)}, time.Minute, "wait"},
		{"pending until complete-by", []error{Pending(nil, time.Hour)}, time.Minute, "wait"},
		{"pending too late", []error{Pending(nil, time.Second)}, 0, "stop"},
		{"completed after pending", []error{Pending(nil, time.Second), nil}, time.Minute, "completed"},
		{"rejected after pending: the answer covers the work", []error{Pending(nil, time.Second), reject}, time.Minute, "rejected"},
		{"without effect after pending: only of the last call", []error{Pending(nil, time.Second), NoEffect(boom)}, time.Minute, "failed unknown"},
		{"pending gives new tries", []error{Transient(boom), Transient(boom), Pending(nil, time.Second), Transient(boom), Transient(boom)}, time.Minute, "wait"},
		{"rejected after pending, and a call that may have had an effect", []error{Transient(boom), Pending(nil, time.Second), reject}, time.Minute, "failed unknown"},
		{"rejected after a call that may have had one", []error{Transient(boom), reject}, time.Minute, "failed unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTestAttempt(c.left)
			var n decision
			for i, err := range c.calls {
				if i > 0 && n.action != actWait {
					t.Fatalf("call %d follows %q", i+1, describe(n))
				}
				a, n = a.afterCall(resultOf(Do, map[string]int{"a": 1}, err), t0, false)
			}
			if got := describe(n); got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

func TestFinishedCallIsRepliedWhileLeaving(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{nil, "completed"}, {Rejected("x", "y"), "rejected"}, {errors.New("cut short"), "leave"}, {Transient(errors.New("cut short")), "leave"}, {Pending(1, time.Second), "leave"}} {
		if _, n := newTestAttempt(time.Minute).afterCall(resultOf(Do, nil, c.err), t0, true); describe(n) != c.want {
			t.Errorf("%v: %s; want %s", c.err, describe(n), c.want)
		}
	}
}

func TestRefusedWaitsOnlyIfACallStillFits(t *testing.T) {
	for _, c := range []struct {
		left, openFor time.Duration
		want          string
	}{
		{10 * time.Second, 5 * time.Second, "wait"},
		{5*time.Second + tryDurationMin, 5 * time.Second, "wait"},
		{5 * time.Second, 5 * time.Second, "failed none after 5s"},
		{time.Second, 5 * time.Second, "failed none after 5s"},
		{0, time.Millisecond, "stop"},
	} {
		if _, n := newTestAttempt(c.left).circuitOpen(c.openFor, "bank", t0); describe(n) != c.want {
			t.Errorf("%v left, open for %v: %s; want %s", c.left, c.openFor, describe(n), c.want)
		}
	}
	again, _ := newTestAttempt(10*time.Second).circuitOpen(5*time.Second, "bank", t0)
	if _, n := again.circuitOpen(5*time.Second, "bank", t0.Add(6*time.Second)); describe(n) != "failed none after 5s" {
		t.Errorf("refused twice, and never called: %s", describe(n))
	}
	a, _ := newTestAttempt(6*time.Second).afterCall(resultOf(Do, nil, Transient(errors.New("boom"))), t0, false)
	if _, n := a.circuitOpen(time.Minute, "bank", t0); describe(n) != "failed unknown after 1m0s" {
		t.Errorf("an open circuit forgot the effect of the call before it: %s", describe(n))
	}
}

func TestBackoffGrowsWithinItsBoundAndIsDerived(t *testing.T) {
	a := newTestAttempt(time.Hour)
	for i, limit := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		a.tries = i + 1
		d, again := a.backoff(), a.backoff()
		if limit *= time.Millisecond; d > limit || d < limit*8/10-time.Millisecond || d != again {
			t.Errorf("after %d tries: %v, then %v; want the same, from %v to %v", i+1, d, again, limit*8/10, limit)
		}
	}
}

// TestErrorObjectStaysWithinItsBounds checks that the scheduler keeps the code of each error, whatever its other parts are.
func TestErrorObjectStaysWithinItsBounds(t *testing.T) {
	text := func(s string, bytes int) string { return strings.Repeat(s, bytes/len(s)) }
	for name, c := range map[string]struct {
		f       Failure
		details bool // are kept
	}{
		"small details":             {Failure{Message: "declined", Details: []byte(`"` + text("y", 10<<10) + `"`)}, true},
		"details of 16 KiB":         {Failure{Message: "declined", Details: []byte(`"` + text("y", 16<<10-2) + `"`)}, false},
		"details and message":       {Failure{Message: text("m", 4000), Details: []byte(`"` + text("y", 13<<10) + `"`)}, false},
		"HTML in details":           {Failure{Message: "declined", Details: []byte(`"` + text("<br>", 15<<10) + `"`)}, true},
		"HTML in the message":       {Failure{Message: text("<p>", 4000), Details: []byte(`"` + text("<br>", 11<<10) + `"`)}, true},
		"a message of escapes":      {Failure{Message: text("\x01", 4000), Details: []byte(`{}`)}, false},
		"a message above its bound": {Failure{Message: text("ä", 1<<20), Details: []byte(`"` + text("ä", 1<<20) + `"`)}, false},
	} {
		c.f.Code = "card_declined"
		b := c.f.errorObject()
		if len(b) > events.MaxErrorBytes || !events.ValidJSON(b) {
			t.Errorf("%s: %d bytes, valid %v", name, len(b), events.ValidJSON(b))
		}
		if e := (&events.Reply{Body: b}).Failure(); e.Code != "card_declined" || e.Message == "" || !strings.HasPrefix(c.f.Message, e.Message) || len(e.Details) > 0 != c.details {
			t.Errorf("%s: the scheduler keeps %s %.40q and %d bytes of details", name, e.Code, e.Message, len(e.Details))
		}
		r := &events.Reply{Outcome: events.Rejected, Body: b}
		smaller, is := shrinkReply(r, &tooLargeError{1, 1}, false)
		if e := smaller.Failure(); !is || e.Code != "card_declined" || !strings.Contains(e.Message, "shortened") {
			t.Errorf("%s: shortened to %s %.40q", name, e.Code, e.Message)
		}
	}
	long := strings.Repeat("ä", 1<<20)
	f := &Failure{Code: long, Message: long, Details: []byte(`"` + long + `"`)}
	if e := (&events.Reply{Body: f.errorObject()}).Failure(); e.Code != long[:codeBytesMax] {
		t.Errorf("a long code becomes %q", e.Code)
	}
	f = &Failure{Code: "x", Details: []byte(`{"broken`)}
	if b := f.errorObject(); string(b) != `{"code":"x","message":"x"}` {
		t.Errorf("%s", b)
	}
}

func TestOutputThatCannotBeRepliedHadAnEffect(t *testing.T) {
	for code, out := range map[string]any{
		CodeBadOutput:       func() {},
		events.CodeTooLarge: strings.Repeat("x", events.MaxReplyBytes),
	} {
		_, n := newTestAttempt(time.Minute).afterCall(resultOf(Do, out, nil), t0, false)
		if describe(n) != "failed unknown" || !strings.Contains(string(n.reply.Body), code) {
			t.Errorf("%s: %s %s", code, describe(n), n.reply.Body)
		}
	}
}

// The error of a bad output names the fault: a body in another encoding isn't reported as nested too deep.
func TestBadOutputSaysWhatIsWrong(t *testing.T) {
	for out, want := range map[string]string{
		"\"caf\xe9\"":      "UTF-8",
		`{"a":1,"a":2}`:    `two members are named "a"`,
		`{"x":["\ud83d"]}`: "half of a surrogate pair",
		strings.Repeat("[", 2*events.MaxJSONDepth) + strings.Repeat("]", 2*events.MaxJSONDepth): "deeper",
	} {
		if r := resultOf(Do, json.RawMessage(out), nil); r.fail == nil || !strings.Contains(r.fail.Message, want) {
			t.Errorf("%.20q: %v, want it to say %q", out, r.fail, want)
		}
	}
}

// A handler may return JSON. The reply has the same bytes, without white space. The handler may change its buffer after
// it returned.
func TestOutputThatIsJSON(t *testing.T) {
	for _, text := range []string{`{"ok":true}`, `[1,"a"]`, `"é"`, "\"\u2028\"", "\"\u2029\"", `"€"`, ` { "ok" : "a b" } `, `"<b>"`, `{"a":`, `1 2`, ``, "\"\xff\""} {
		raw := json.RawMessage(text)
		var compact bytes.Buffer
		err := json.Compact(&compact, raw)
		want := compact.Bytes()
		if len(raw) == 0 {
			raw, want, err = nil, []byte("null"), nil
		}
		got := resultOf(Do, raw, nil)
		for i := range raw {
			raw[i] = 'x'
		}
		if (got.fail == nil) != (err == nil && events.ValidJSON(want)) || got.fail == nil && string(got.output) != string(want) {
			t.Errorf("%s: %s, %v; want %s, %v", text, got.output, got.fail, want, err)
		}
	}
}

// TestOutputsHaveNoHTMLEscapes checks that what a handler returns is as large in its reply as in the handler.
func TestOutputsHaveNoHTMLEscapes(t *testing.T) {
	html := strings.Repeat("<&>", 30_000)
	for _, output := range []any{html, json.RawMessage(`"` + html + `"`), json.RawMessage(` "` + html + `" `)} {
		if r := resultOf(Do, output, nil); r.fail != nil || string(r.output) != `"`+html+`"` {
			t.Errorf("%T: %d bytes, %v", output, len(r.output), r.fail)
		}
	}
	if b, err := encodeProgress(html[:4000]); err != nil || string(b) != `"`+html[:4000]+`"` {
		t.Errorf("progress: %d bytes, %v", len(b), err)
	}
	f := &Failure{Code: "x", Message: html[:1000], Details: json.RawMessage(`"` + html[:9000] + `"`)}
	if b := f.errorObject(); len(b) > 10_100 || !bytes.Contains(b, f.Details) {
		t.Errorf("an error of %d bytes", len(b))
	}
}

func TestWrappersKeepWhatIsWrapped(t *testing.T) {
	cause := errors.New("connection refused")
	err := NoEffect(fmt.Errorf("bank: %w", RetryAfter(cause, time.Second)))
	var f *Failure
	if !errors.As(err, &f) || !f.NoEffect || !f.Transient || f.After != time.Second || !errors.Is(err, cause) || err.Error() != "bank: connection refused" {
		t.Errorf("%#v: %v", f, err)
	}
	if NoEffect(nil) != nil || Transient(nil) != nil || RetryAfter(nil, 1) != nil {
		t.Error("nothing became an error")
	}
}

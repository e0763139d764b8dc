package events

import (
	"strings"
	"testing"
	"time"
)

// TestTokenMatches checks that a reply's token matches one attempt, and no other.
func TestTokenMatches(t *testing.T) {
	ref := RequestRef{"charge", Do, 2}
	hash := TokenHash("order-7", ref, sampleToken)
	if len(hash) != hashBytes || strings.Contains(hash, sampleToken) {
		t.Fatalf("the hash of a token is %q", hash)
	}
	reply := func(change func(*Reply)) *Reply {
		r := &Reply{Task: "order-7", Ref: ref, Token: sampleToken}
		change(r)
		return r
	}
	if !reply(func(*Reply) {}).TokenMatches(hash) {
		t.Error("the reply with its attempt's token is refused")
	}
	for name, r := range map[string]*Reply{
		"another token":       reply(func(r *Reply) { r.Token = strings.ToLower(sampleToken) }),
		"the hash":            reply(func(r *Reply) { r.Token = hash }),
		"no token":            reply(func(r *Reply) { r.Token = "" }),
		"of another task":     reply(func(r *Reply) { r.Task = "order-8" }),
		"of another step":     reply(func(r *Reply) { r.Ref.Step = "ship" }),
		"of the undo":         reply(func(r *Reply) { r.Ref.Kind = Undo }),
		"of an older attempt": reply(func(r *Reply) { r.Ref.Attempt = 1 }),
	} {
		if r.TokenMatches(hash) {
			t.Errorf("%s: accepted", name)
		}
	}
	if reply(func(r *Reply) { r.Token = "" }).TokenMatches("") || reply(func(*Reply) {}).TokenMatches("") {
		t.Error("an attempt that has no request has a reply")
	}
}

// TestTokenOfRun checks that a run has the hash of its last attempt's token, even after the attempt has ended, and none
// if that attempt had no request.
func TestTokenOfRun(t *testing.T) {
	hash := TokenHash("t", RequestRef{"s0", Do, 1}, sampleToken)
	facts := []Fact{&TaskStarted{}, &AttemptStarted{Kind: Do, Step: "s0", Attempt: 1, TokenHash: hash}, &AttemptFailed{Kind: Do, Step: "s0", Attempt: 1}}
	if got := after(t, facts...).Steps[0].TokenHash; got != hash {
		t.Errorf("after its first attempt the run has the hash %q, want %q", got, hash)
	}
	facts = append(facts, &AttemptFailed{Kind: Do, Step: "s0", Attempt: 2, Error: &Error{Code: CodeNoSuchAgent}})
	if got := after(t, facts...).Steps[0].TokenHash; got != "" {
		t.Errorf("after an attempt without a request the run has the hash %q of the one before", got)
	}
}

// TestRequestHidesNoToken checks that the token is in ce_request, and in no other header of a request or a reply.
func TestRequestHidesNoToken(t *testing.T) {
	ref := RequestRef{"charge", Do, 2}
	q := &Request{Task: "order-7", Ref: ref, Token: sampleToken, Operation: "charge", CompleteBy: time.Unix(0, 0), IdempotencyKey: "k"}
	p := &Reply{Task: "order-7", Ref: ref, Token: sampleToken, Outcome: Completed}
	for _, r := range []Record{q.Record(sampleNS, "s", "payments", 0), p.Record(sampleNS, "payments")} {
		for _, h := range r.Headers {
			want := "order-7/charge/do/2/" + sampleToken
			if has := strings.Contains(string(h.Value), sampleToken); has != (h.Key == HeaderRequest) || has && string(h.Value) != want {
				t.Errorf("%s is %q; %s is to be %q, and the token nowhere else", h.Key, h.Value, HeaderRequest, want)
			}
		}
	}
}

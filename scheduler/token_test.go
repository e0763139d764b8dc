package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// testToken is Env.Token of tests. It is a function of the attempt.
func testToken(task string, ref events.RequestRef) string {
	return events.Hash("token", []byte(events.RequestID(task, ref)))
}

// TestTokensDiffer checks that newToken gives each attempt another token, and that ce_request can contain it.
func TestTokensDiffer(t *testing.T) {
	ref := events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}
	a, b := newToken("t", ref), newToken("t", ref)
	if a == b || len(a) < 26 || strings.Contains(a, "/") {
		t.Errorf("the tokens %q and %q; want two of at least 26 characters without a slash", a, b)
	}
}

func doneBy(task string, attempt int, token string, o events.Outcome) events.Record {
	ref := events.RequestRef{Step: "a", Kind: events.Do, Attempt: attempt}
	return (&events.Reply{Task: task, Ref: ref, Token: token, Outcome: o, Body: []byte("{}"), Effect: events.EffectNone}).Record(ns, "mallory")
}

// TestForgedReplyIsRefused checks that a reply without its attempt's token changes nothing and becomes a dead letter. A
// late reply with the token is ignored.
func TestForgedReplyIsRefused(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	s.submit("w", "t", "u")
	s.drain(w)
	token := func(task string, attempt int) string {
		return testToken(task, events.RequestRef{Step: "a", Kind: events.Do, Attempt: attempt})
	}
	before := s.events("t")
	for _, o := range []events.Outcome{events.Completed, events.Failed, events.Rejected} {
		s.cluster.write(doneBy("t", 1, "", o))
		s.cluster.write(doneBy("t", 1, "guess", o))
		s.cluster.write(doneBy("t", 1, token("u", 1), o))
		s.cluster.write(doneBy("t", 1, token("t", 2), o))
	}
	s.drain(w)
	if got := s.events("t"); !slices.Equal(got, before) {
		t.Errorf("forged replies led to %q", got[len(before):])
	}
	s.complete("inventory")
	s.drain(w)
	s.cluster.write(doneBy("t", 1, "", events.Completed))            // the task has ended
	s.cluster.write(doneBy("t", 1, token("t", 1), events.Completed)) // late
	s.drain(w)
	reasons := s.headers(ns.Deadletters(), events.HeaderReason)
	if len(reasons) != 13 || slices.ContainsFunc(reasons, func(r string) bool { return r != string(events.ReasonBadToken) }) {
		t.Errorf("the dead letters are %q; want 13 of %s", reasons, events.ReasonBadToken)
	}
	counted, stale := 0, 0
	for _, c := range s.committed {
		counted += c.Deadletters[events.ReasonBadToken]
		stale += c.Ignored[IgnoredStaleReply]
	}
	if counted != 13 || stale != 1 {
		t.Errorf("counted are %d bad tokens and %d stale replies; want 13 and 1", counted, stale)
	}
}

// TestForgedReplyEndsNoSilence checks that only a reply of the agent itself ends its silence.
func TestForgedReplyEndsNoSilence(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Capacity.Agents = map[string]int{"inventory": silentAfter}
	w := s.worker(s.cluster.join(0))
	s.silence(w, "a", "b", "c", "d", "e", "f")
	s.cluster.write(doneBy("a", 1, "guess", events.Completed))
	s.drain(w)
	if !w.health.isSilent("inventory") {
		t.Error("a forged reply has ended the silence of its agent")
	}
	s.answer("inventory", "a")
	s.drain(w)
	if w.health.isSilent("inventory") {
		t.Error("the agent replied, and counts as silent")
	}
}

// TestForgedRepliesAlertOnceAMinute sends forged replies at a high rate. Operators receive one alert a minute, with the
// number of replies since the previous one.
func TestForgedRepliesAlertOnceAMinute(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	s.submit("w", "t")
	s.drain(w)
	forged := func(n int) {
		for range n {
			s.cluster.write(doneBy("t", 1, "guess", events.Completed))
			s.drain(w)
		}
	}
	forged(5)
	s.clock.pass(tokenAlertEvery)
	forged(3)
	var alerts []*events.Alert
	for _, r := range s.cluster.all(ns.Alerts()) {
		a, err := events.DecodeAlert(&r)
		if err != nil {
			t.Fatal(err)
		}
		alerts = append(alerts, a)
	}
	if len(alerts) != 2 || alerts[0].Code != string(events.ReasonBadToken) || alerts[0].Task != "t" || !strings.Contains(alerts[1].Message, "(4 more since the last alert)") {
		t.Errorf("the alerts of 8 forged replies in two minutes: %+v", alerts)
	}
}

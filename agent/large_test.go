package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// limitedSession is a session that refuses large records on its topic for replies.
type limitedSession struct {
	*fakeSession
	most  int
	tries int
}

type tooLargeError struct{ bytes, most int }

func (e *tooLargeError) Error() string               { return "the topic takes less" }
func (e *tooLargeError) TooLarge() (bytes, most int) { return e.bytes, e.most }

func (s *limitedSession) Send(ctx context.Context, rec events.Record) error {
	if len(rec.Value) > s.most {
		s.tries++
		return &tooLargeError{len(rec.Value), s.most}
	}
	return s.fakeSession.Send(ctx, rec)
}

// A reply that is too large for its topic is shrunk and sent at once. If the topic refuses that too, it is not sent
// again.
func TestReplyTooLargeForItsTopic(t *testing.T) {
	large := strings.Repeat("x", 40_000)
	for name, c := range map[string]struct {
		most     int
		handler  HandlerFunc
		outcome  string
		code     string
		effect   events.Effect
		attempts int
	}{
		"an output": {1000, func(context.Context, Request) (any, error) { return large, nil }, "failed", events.CodeTooLarge, events.EffectUnknown, 1},
		"an error": {1000, func(context.Context, Request) (any, error) {
			return nil, NoEffect(&Failure{Code: "bad", Message: large})
		}, "failed none", "bad", events.EffectNone, 1},
		"a rejection": {1000, func(context.Context, Request) (any, error) { return nil, Rejected("no", large) }, "rejected", "no", events.EffectUnknown, 1},
		"not even so": {10, func(context.Context, Request) (any, error) { return large, nil }, "", "", events.EffectUnknown, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &limitedSession{fakeSession: newFakeSession(), most: c.most}
				var dropped int
				stop := start(t, s.fakeSession, Config{Open: func(context.Context) (Session, error) { return s, nil },
					Listener: Listener{Dropped: func(Request) { dropped++ }}}, c.handler)
				in := 30 * time.Second
				if c.outcome == "" {
					s.deliverUntil(time.Now(), testRecord(1, time.Now().Add(in))) // it may end without a reply
				} else {
					s.deliver(testRecord(1, time.Now().Add(in)))
				}
				advance(time.Second)
				if s.tries != c.attempts {
					t.Errorf("%d tries, want %d", s.tries, c.attempts)
				}
				stop()
				if got := s.outcome(testID(1)); got != c.outcome {
					t.Fatalf("outcome %q, want %q", got, c.outcome)
				}
				if c.outcome == "" {
					if dropped != 1 || s.done[position{0, 1}] != 1 {
						t.Errorf("dropped %d times, done %v", dropped, s.done)
					}
					return
				}
				rec := s.replies[testID(1)]
				effect, _ := rec.Header(events.HeaderEffect)
				if !strings.Contains(string(rec.Value), `"code":"`+c.code+`"`) || (effect == "none") != (c.effect == events.EffectNone) {
					t.Errorf("replied %s, effect %q", rec.Value, effect)
				}
			})
		})
	}
}

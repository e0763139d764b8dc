package events

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "0.000": 0, "soon": 0, "-1": 0, "+1": 0, "1e3": 0, "1.": 0, ".5": 0, "1,5": 0, "5s": 0, " 5": 0, "0x5": 0, "NaN": 0, "1.2.3": 0,
		"1": time.Second, "007": 7 * time.Second, "4.982": 4982 * time.Millisecond, "0.0001": time.Millisecond, "0.3": 300 * time.Millisecond,
		"86400": MaxRetryAfter, "86399.999": MaxRetryAfter - time.Millisecond, "99999999999999999999999": MaxRetryAfter,
		strings.Repeat("9", 1<<12): MaxRetryAfter, "0." + strings.Repeat("3", 1<<12): 334 * time.Millisecond,
	} {
		if got := parseRetryAfter([]byte(text)); got != want {
			t.Errorf("%.30q is %v; want %v", text, got, want)
		}
	}
}

// TestRetryAfterInAReply checks that a reply has the wait in whole milliseconds, rounded up.
func TestRetryAfterInAReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := time.Duration(rapid.Int64Range(0, int64(2*MaxRetryAfter)).Draw(t, "asked"))
		rec := (&Reply{Task: "t", Ref: RequestRef{"s", Do, 1}, Outcome: Failed, RetryAfter: asked}).Record("ns.", "a")
		_, in, err := DecodeInput(Replies, &rec)
		if err != nil {
			t.Fatal(err)
		}
		got, most := in.(*Reply).RetryAfter, min(asked, MaxRetryAfter)
		if got < most || got >= most+time.Millisecond && got > 0 {
			t.Fatalf("%v is read as %v", asked, got)
		}
	})
	for _, o := range []Outcome{Completed, Rejected} {
		rec := (&Reply{Task: "t", Ref: RequestRef{"s", Do, 1}, Outcome: o, RetryAfter: time.Second}).Record("ns.", "a")
		rec.Headers = append(rec.Headers, Header{HeaderRetryAfter, []byte("1")})
		if _, in, err := DecodeInput(Replies, &rec); err != nil || in.(*Reply).RetryAfter != 0 {
			t.Errorf("%s: %+v, %v; nothing is retried", o, in, err)
		}
	}
}

// TestDeferralsAreBounded checks that a deferred attempt doesn't count as a failure, until there were too many.
func TestDeferralsAreBounded(t *testing.T) {
	for _, c := range []struct {
		run    Run
		kind   Kind
		effect Effect
		after  time.Duration
		want   bool
	}{
		{Run{Attempt: 1}, Do, EffectNone, time.Second, true},
		{Run{Attempt: 1}, Do, EffectNone, 0, false},
		{Run{Attempt: 1}, Do, EffectUnknown, time.Second, false},
		{Run{Attempt: MaxDeferrals + 3, FailureCount: 3}, Do, EffectNone, time.Second, true},
		{Run{Attempt: MaxDeferrals + 3, FailureCount: 2}, Do, EffectNone, time.Second, false},
		{Run{Attempt: 2, StartedAt: epochStart.Add(-MaxUndoWait)}, Do, EffectNone, time.Second, true},
		{Run{Attempt: 2, StartedAt: epochStart.Add(time.Second - MaxUndoWait)}, Undo, EffectNone, time.Second, true},
		{Run{Attempt: 2, StartedAt: epochStart.Add(-MaxUndoWait)}, Undo, EffectNone, time.Second, false},
	} {
		if got := c.run.Defers(c.kind, c.effect, c.after, epochStart); got != c.want {
			t.Errorf("attempt %d after %d failures, effect %s, again after %v: deferred %v; want %v", c.run.Attempt, c.run.FailureCount, c.effect, c.after, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"30", "4.982", "86400.1", "1e3", "."} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		d := parseRetryAfter(value)
		if d < 0 || d > MaxRetryAfter || d != d.Truncate(time.Millisecond) {
			t.Fatalf("%q is %v", value, d)
		}
		if again := parseRetryAfter(appendSeconds(nil, d)); again != d {
			t.Fatalf("%q is %v; written and read again %v", value, d, again)
		}
	})
}

package events

import (
	"strconv"
	"time"
)

// MaxRetryAfter bounds how long an agent can ask to wait before the next attempt. Longer waits are cut to it.
const MaxRetryAfter = 24 * time.Hour

// MaxDeferrals bounds the attempts of a run that don't count as failures. A step has its task's complete-by as well. An
// undo has none, and no operator can act on it while it waits. So it waits MaxUndoWait at most. Its failures count once
// MaxUndoWait has passed since its first attempt.
const (
	MaxDeferrals = 1000
	MaxUndoWait  = time.Hour
)

// AskedWait returns how long a run waits for its next attempt after its agent asked for retryAfter.
func AskedWait(k Kind, retryAfter time.Duration) time.Duration {
	if k != Do {
		return min(retryAfter, MaxUndoWait)
	}
	return retryAfter
}

// retryAfterDigits bounds the decimals of the seconds that parseRetryAfter reads.
const retryAfterDigits = 18

// parseRetryAfter reads the value of ce_retryafter: seconds as decimal digits, with a fraction or without ("30",
// "4.982"). It is rounded up to milliseconds and cut at MaxRetryAfter. It returns 0 for anything else.
func parseRetryAfter(value []byte) time.Duration {
	whole, rest := leadingDigits(value)
	if whole == "" {
		return 0
	}
	fraction := ""
	if len(rest) > 0 {
		if fraction, rest = leadingDigits(rest[1:]); value[len(whole)] != '.' || fraction == "" || len(rest) > 0 {
			return 0
		}
	}
	if len(fraction) > retryAfterDigits {
		fraction = fraction[:retryAfterDigits]
	}
	seconds, err := strconv.ParseFloat(whole+"."+fraction+"0", 64)
	if err != nil || seconds >= MaxRetryAfter.Seconds() {
		return MaxRetryAfter
	}
	// Floats hold a day in seconds to less than a nanosecond.
	d := time.Duration(seconds*float64(time.Second) + 0.5)
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// leadingDigits returns the decimal digits at the beginning of a text, and the rest.
func leadingDigits(b []byte) (string, []byte) {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return string(b[:n]), b[n:]
}

// appendSeconds appends a duration as parseRetryAfter reads it, rounded up to milliseconds, at most MaxRetryAfter.
func appendSeconds(dst []byte, d time.Duration) []byte {
	ms := (min(d, MaxRetryAfter) + time.Millisecond - 1).Milliseconds()
	dst = strconv.AppendInt(dst, ms/1000, 10)
	if ms %= 1000; ms > 0 {
		dst = append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	}
	return dst
}

// Defers reports whether a failure of the current attempt doesn't count as a failure of the run, since the agent did
// nothing and asks to be called later. Otherwise an overloaded service, or an open circuit, would use up the attempts
// without one call. MaxDeferrals and MaxUndoWait bound deferrals, of each call of a repeat. After a resubmit, failures before it count as
// deferrals, which only makes the bound smaller.
func (r *Run) Defers(k Kind, effect Effect, retryAfter time.Duration, at time.Time) bool {
	return effect == EffectNone && retryAfter > 0 && r.Attempt-r.Interim().LastCall-r.FailureCount <= MaxDeferrals &&
		(k == Do || at.Sub(r.StartedAt) < MaxUndoWait)
}

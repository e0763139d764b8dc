package backoff

import "time"

// RefusedMax is how long an operation is retried that the cluster doesn't permit. Operators change credentials and ACLs
// while processes run, so the first refusal ends no process.
const RefusedMax = time.Minute

// RefusedPeriod is the time during which the clients of one role were refused, one after the other. The zero value is
// ready to use. It is for one goroutine.
type RefusedPeriod struct{ since time.Time }

// Exceeded records whether a client that was open from opened to now ended because it was refused. It reports whether
// clients have been refused for longer than RefusedMax. A client that was open for longer than that was permitted for a
// while, so the period begins again.
func (p *RefusedPeriod) Exceeded(refused bool, opened, now time.Time) bool {
	switch {
	case !refused:
		p.since = time.Time{}
		return false
	case p.since.IsZero(), now.Sub(opened) > RefusedMax:
		p.since = now
	}
	return now.Sub(p.since) > RefusedMax
}

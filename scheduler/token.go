package scheduler

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// newToken is the Env.Token of a running scheduler: 130 random bits in letters and digits, which kcat and a shell
// accept as they are.
func newToken(string, events.RequestRef) string { return rand.Text() }

// tokenAlertEvery is the minimum time between two alerts of a worker about replies with a missing or wrong token. Any
// principal with write access to the replies topic can send many. Each becomes a dead letter and is counted, but
// operators receive one alert a minute.
const tokenAlertEvery = time.Minute

// tokenRefusals counts the replies with a missing or wrong token since a worker's last alert about them.
type tokenRefusals struct {
	alerted time.Time
	count   int
}

// alertBadToken counts a reply that was refused because of its token, and writes an alert if one is due.
func (tx *transaction) alertBadToken(r *events.Record, u *events.Unusable) {
	if u.Reason != events.ReasonBadToken {
		return
	}
	if tx.tokensRefused++; tx.tokensRefused > 1 {
		return
	}
	f := &tx.worker.tokenRefusals
	now := tx.worker.cfg.Clock.Now()
	if now.Sub(f.alerted) < tokenAlertEvery {
		return
	}
	tx.tokenAlertAt = now
	task := ""
	if in, _, err := events.DecodeInput(events.Replies, r); err == nil {
		task = in
	}
	more := ""
	if f.count > 0 {
		more = fmt.Sprintf(" (%d more since the last alert)", f.count)
	}
	a := &events.Alert{Task: task, Code: string(events.ReasonBadToken), At: events.Millis(now), Message: u.Detail + more +
		". It is a dead letter and changed nothing. Either an agent doesn't copy " + events.HeaderRequest + ", or another principal can write to " +
		tx.worker.cfg.Namespace.Inbox(events.Replies) + ": check its ACLs, and see `waybill deadletters list --reason bad_token`"}
	tx.write(a.Record(tx.worker.cfg.Namespace, tx.worker.source, "bad_token/"+events.Origin(r)))
}

// acceptTokenRefusals applies the count of a committed transaction.
func (tx *transaction) acceptTokenRefusals() {
	f := &tx.worker.tokenRefusals
	if !tx.tokenAlertAt.IsZero() {
		*f = tokenRefusals{alerted: tx.tokenAlertAt, count: tx.tokensRefused - 1}
		return
	}
	f.count += tx.tokensRefused
}

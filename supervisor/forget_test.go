package supervisor

import (
	"testing"
	"time"
)

// forgettable is a projection whose earliest id may be forgotten at an instant.
type forgettable struct {
	still
	forget time.Time // zero: none
	at     time.Time
}

func (f forgettable) ForgetDue() (time.Time, bool) { return f.forget, !f.forget.IsZero() }
func (f forgettable) At() time.Time                { return f.at }

// TestForgets checks when a partition is asked to forget ids: if one may be forgotten by the brokers' time and by what was
// read, and at most once in an interval by the local time.
func TestForgets(t *testing.T) {
	local, now := epoch, epoch.Add(time.Hour)
	for _, x := range []struct {
		name string
		p    partition
		want bool
	}{
		{"due", partition{restored: true, deadlines: forgettable{forget: now}}, true},
		{"due long ago", partition{restored: true, deadlines: forgettable{forget: local}}, true},
		{"not due", partition{restored: true, deadlines: forgettable{forget: now.Add(time.Millisecond)}}, false},
		{"none", partition{restored: true, deadlines: forgettable{}}, false},
		{"not restored", partition{deadlines: forgettable{forget: now}}, false},
		{"it sends", partition{restored: true, sending: true, deadlines: forgettable{forget: now}}, false},
		{"pauses after a failure", partition{restored: true, resumeAt: local.Add(time.Second), deadlines: forgettable{forget: now}}, false},
		{"was asked", partition{restored: true, forgetAskedAt: local.Add(time.Millisecond - time.Minute), deadlines: forgettable{forget: now}}, false},
		{"was asked an interval ago", partition{restored: true, forgetAskedAt: local.Add(-time.Minute), deadlines: forgettable{forget: now}}, true},
		{"behind: due by what was read", partition{restored: true, behind: true, deadlines: forgettable{forget: now.Add(-time.Hour), at: now.Add(-time.Minute)}}, true},
		{"behind: not due by what was read", partition{restored: true, behind: true, deadlines: forgettable{forget: now, at: now.Add(-time.Minute)}}, false},
	} {
		if got := x.p.forgets(now, local, time.Minute); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
}

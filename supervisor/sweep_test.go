package supervisor

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

func TestSleep(t *testing.T) {
	now := epoch
	second := func(n float64) time.Time { return now.Add(time.Duration(n * float64(time.Second))) }
	ready := func(due float64, change func(p *partition)) *partition {
		p := &partition{restored: true, deadlines: still{second(due)}, savedAt: now}
		if change != nil {
			change(p)
		}
		return p
	}
	for name, c := range map[string]struct {
		ps   []*partition
		want time.Duration
	}{
		"nothing is held":                   {nil, time.Second},
		"due later than the sweep interval": {[]*partition{ready(60, nil)}, time.Second},
		"due within it":                     {[]*partition{ready(60, nil), ready(0.25, nil), ready(0.5, nil)}, 250 * time.Millisecond},
		"due already":                       {[]*partition{ready(-5, nil)}, MinSleep},
		"due, but not restored":             {[]*partition{ready(-5, func(p *partition) { p.restored = false })}, time.Second},
		"due, but a batch is on its way":    {[]*partition{ready(-5, func(p *partition) { p.sending = true })}, time.Second},
		"due, but pausing":                  {[]*partition{ready(-5, func(p *partition) { p.resumeAt = second(0.4) })}, 400 * time.Millisecond},
		"due after the pause":               {[]*partition{ready(0.6, func(p *partition) { p.resumeAt = second(0.4) })}, 600 * time.Millisecond},
		"to be saved":                       {[]*partition{ready(60, func(p *partition) { p.unsaved, p.savedAt = 1, second(-0.3) })}, 700 * time.Millisecond},
		"to be saved, while not restored":   {[]*partition{ready(60, func(p *partition) { p.restored, p.unsaved, p.savedAt = false, 1, second(-0.3) })}, 700 * time.Millisecond},
		"saved long ago, nothing since":     {[]*partition{ready(60, func(p *partition) { p.savedAt = second(-60) })}, time.Second},
	} {
		if got := sleepAtMost(c.ps, now, now, time.Second); got != c.want {
			t.Errorf("%s: sleeps %v, want %v", name, got, c.want)
		}
	}
}

// TestSleepWithACorrectedClock checks that timers are due by the corrected clock, while the loop's own work uses the
// local clock.
func TestSleepWithACorrectedClock(t *testing.T) {
	local, now := epoch, epoch.Add(-time.Hour)
	p := &partition{restored: true, deadlines: still{now.Add(300 * time.Millisecond)}, savedAt: local, resumeAt: local.Add(-time.Minute)}
	if got := sleepAtMost([]*partition{p}, now, local, time.Second); got != 300*time.Millisecond {
		t.Errorf("sleeps %v, want until due by the corrected clock", got)
	}
}

// still is a projection whose only timer is due at an instant.
type still struct{ at time.Time }

func (still) Apply(*events.Record) error                { return nil }
func (still) ExpectLastEvent() int64                    { return 0 }
func (still) ForgetDue() (at time.Time, ok bool)        { return at, false }
func (still) CheckReadTo(int64) error                   { return nil }
func (still) Next() int64                               { return 0 }
func (still) At() time.Time                             { return time.Time{} }
func (still) Save()                                     {}
func (still) Discard()                                  {}
func (still) LoadSnapshot(*events.SnapshotReader) error { return nil }
func (still) Due(time.Time, int) []events.Due           { return nil }
func (still) Snooze(events.Due, time.Time)              {}
func (s still) Earliest() (time.Time, bool)             { return s.at, true }
func (still) Armed() int                                { return 1 }

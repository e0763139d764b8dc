package replay

import (
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// recordReport records a progress of a running attempt.
func (r *recording) recordReport(e *events.Event, a *events.About) {
	ref := a.Ref()
	says := answer{outcome: events.Progress, from: a.Instance, body: *a.Raw, seq: e.Seq, after: max(0, e.At.Sub(r.started[ref].at))}
	if len(says.body) == 0 {
		says.body = []byte("null")
	}
	r.reports[ref] = append(r.reports[ref], says)
}

// aliveFor returns how long an attempt with this rule and this much time would last if its agent never answered: until
// the first silence of a heartbeat, by the recorded reports.
func (r *recording) aliveFor(ref events.RequestRef, heartbeat, within time.Duration) time.Duration {
	if heartbeat == 0 {
		return within
	}
	last := time.Duration(0)
	for _, p := range r.reports[ref] {
		if p.after > last+heartbeat {
			break
		}
		last = p.after
	}
	return min(within, last+heartbeat)
}

// lastReport returns when the last progress of an attempt was recorded, after its start.
func (r *recording) lastReport(ref events.RequestRef) time.Duration {
	if n := len(r.reports[ref]); n > 0 {
		return r.reports[ref][n-1].after
	}
	return 0
}

// scheduleReports schedules the recorded progress of an attempt that began at since, as far as it isn't in the shared
// past.
func (s *sandbox) scheduleReports(ref events.RequestRef, since time.Time) {
	for _, p := range s.past.reports[ref] {
		if p.seq > s.out.At {
			s.reports[ref] = append(s.reports[ref], pending{moment{at: since.Add(p.after), seq: p.seq}, since.Add(p.after), p})
		}
	}
}

// removeReport removes the first report of an attempt.
func (s *sandbox) removeReport(ref events.RequestRef) {
	if s.reports[ref] = s.reports[ref][1:]; len(s.reports[ref]) == 0 {
		delete(s.reports, ref)
	}
}

// shownProgressMax bounds the progress in texts for people, in bytes.
const shownProgressMax = 200

// lastProgress returns a note of the last progress of a run; empty: there is none.
func lastProgress(run *events.Run) string {
	last := run.Interim()
	if last.ProgressAt.IsZero() {
		return ""
	}
	note := "; its last progress came at " + last.ProgressAt.UTC().Format(events.TimeLayout)
	if len(last.Progress) > 0 {
		note += ": " + text.Shorten(string(last.Progress), shownProgressMax)
	}
	return note
}

func stepIndex(t *events.Task, step string) int {
	i, _ := t.Plan.Step(step)
	return i
}

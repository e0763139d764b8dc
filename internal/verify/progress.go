package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// The checks of heartbeats and progress (P22): a heartbeat bounds silence. A running attempt of a run with a heartbeat
// isn't without an event for longer, plus the lateness of timers, and no progress is recorded after its complete-by.

func init() {
	stepRules[events.VerbProgressed] = &factRule{from: byReplies, only: true, promise: "P3", checkAttempts: (*eventCheck).checkProgress,
		arms: silenceTimer, count: (*eventCheck).countProgressed, lead: leadProgressed}
}

// attemptEnd returns the complete-by of an attempt that begins with the event, by the plan.
func (s *eventCheck) attemptEnd() time.Time {
	t := s.t.open.state
	by := events.Millis(s.e.At.Add(t.Plan.AttemptsOf(s.index, s.about.Kind).CompleteWithin))
	if s.about.Kind == events.Do || s.about.Kind == events.Check && !s.precedesUndo() {
		by = earlier(by, t.CompleteBy)
	}
	return by
}

// silenceEnds returns when the timer of an attempt with the complete-by by must be due after a sign of life at the
// event.
func (s *eventCheck) silenceEnds(by time.Time) time.Time {
	h := s.t.open.state.Plan.AttemptsOf(s.index, s.about.Kind).Heartbeat
	if h == 0 {
		return by
	}
	return earlier(events.Millis(s.e.At.Add(h)), by)
}

// attemptTimer returns the timer that the start of an attempt must arm.
func attemptTimer(s *eventCheck) (events.TimerKind, time.Time) {
	return events.TimerAttempt, s.silenceEnds(s.attemptEnd())
}

// silenceTimer returns the timer that a progress must arm. The attempt's complete-by is that of its start.
func silenceTimer(s *eventCheck) (events.TimerKind, time.Time) {
	return events.TimerAttempt, s.silenceEnds(s.run.completeBy)
}

// checkHeartbeat checks that the start of an attempt with a heartbeat says its complete-by, and no other does.
func (s *eventCheck) checkHeartbeat(f *events.AttemptStarted, rule events.Attempts) *Fault {
	if by := s.attemptEnd(); rule.Heartbeat > 0 && !f.CompleteBy.Equal(by) || rule.Heartbeat == 0 && !f.CompleteBy.IsZero() {
		return faultf("P22", "attempt %d of step %q has a heartbeat of %s, and says that its complete-by is %s; by the plan it is %s",
			f.Attempt, f.Step, rule.Heartbeat, f.CompleteBy.Format(events.TimeLayout), by.Format(events.TimeLayout))
	}
	return nil
}

// checkProgress checks a progress: its attempt runs, its complete-by hasn't passed, and it isn't too soon after the one
// before.
func (s *eventCheck) checkProgress(rule events.Attempts) *Fault {
	r, n, step := s.run, s.about.Attempt, s.slot.Step
	switch {
	case !r.running || n != r.attempt:
		return faultf("P3", "progress of attempt %d of step %q, which doesn't run", n, step)
	case !s.e.At.Before(r.completeBy):
		return faultf("P22", "progress of attempt %d of step %q %s after its complete-by", n, step, s.e.At.Sub(r.completeBy))
	case !r.reportedAt.IsZero() && s.e.At.Sub(r.reportedAt) < rule.ProgressEvery():
		return faultf("P22", "progress of attempt %d of step %q %s after the last one; one is recorded in %s", n, step, s.e.At.Sub(r.reportedAt), rule.ProgressEvery())
	case len(*s.about.Raw) > events.MaxProgressBytes:
		return faultf("P22", "progress of attempt %d of step %q has %d bytes; at most %d", n, step, len(*s.about.Raw), events.MaxProgressBytes)
	}
	return nil
}

// checkExpiry checks that an expired attempt says what ended it: its silence, or its complete-by.
func (s *eventCheck) checkExpiry(rule events.Attempts) *Fault {
	f, ok := s.e.Fact.(*events.AttemptExpired)
	if !ok || !s.run.running {
		return nil
	}
	silence := time.Duration(0)
	if s.timer.Due.Before(s.run.completeBy) {
		silence = rule.Heartbeat
	}
	if f.Silence != silence {
		return faultf("P22", "attempt %d of step %q expired after a silence of %s, by its event; it was one of %s (0: complete-by passed)", f.Attempt, f.Step, f.Silence, silence)
	}
	return nil
}

// endSilence records that an attempt with a heartbeat gave a sign of life, or ended. A timer that a recovery ended is in
// the lateness anyway.
func (s *eventCheck) endSilence() {
	if h := s.t.plan.AttemptsOf(s.index, s.slot.Kind).Heartbeat; h == 0 || s.fires() || !s.run.running {
		return
	}
	s.c.timing.addSilent(s.t, s.timer, s.e.At, s.r.Offset, s.c.o.LatestBy)
}

func (s *eventCheck) countProgressed() {
	s.endSilence()
	r := s.run
	if r.reportedAt, r.due = s.e.At, s.e.Due; len(*s.about.Raw) > 0 {
		r.reported, r.last = len(*s.about.Raw), sumOf(*s.about.Raw)
	}
}

// dropProgress counts that a run needs no further attempt.
func (r *run) dropProgress() { r.reported, r.last, r.reportedAt = 0, 0, time.Time{} }

// leadProgressed sets the value that the reply must have. A value that doesn't fit into the task is left out.
func leadProgressed(s *eventCheck, l *lead, _ *input) {
	l.attempt, l.from, l.body, l.written = s.about.Attempt, s.about.Instance, sumOf(*s.about.Raw), true
	others := -s.run.reported
	for i := range s.t.open.runs {
		others += s.t.open.runs[i].reported
	}
	l.large = len(*s.about.Raw) == 0 && others+events.MaxProgressBytes > events.MaxTaskProgressBytes
}

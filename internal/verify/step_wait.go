package verify

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

func init() {
	kindRules[events.WaitStep] = map[events.Verb]*factRule{
		events.VerbStarted: {begins: true, checkCourse: (*eventCheck).checkStarted, arms: waitTimer, count: (*eventCheck).countWaitStarted},
		events.VerbCompleted: {from: byRecoveries, only: true, promise: "P4", checkAttempts: (*eventCheck).checkWaitEnd,
			count: (*eventCheck).countWaitCompleted, asks: always(toFire)},
	}
}

// waitTimer returns the end of a wait, by the event's own length or instant.
func waitTimer(s *eventCheck) (events.TimerKind, time.Time) {
	f, ok := s.e.Fact.(*events.WaitStarted)
	if !ok {
		return "", time.Time{}
	}
	return events.TimerStep, f.End(s.e.At)
}

// checkWaitEnd checks that a wait doesn't end early (P19). It uses the end that was recorded at the start, independently of
// the fold and of the timer.
func (s *eventCheck) checkWaitEnd(events.Attempts) *Fault {
	if early := s.run.notBefore.Sub(s.e.At); early > 0 {
		return faultf("P19", "the wait of step %q ended %s early", s.about.Step, early)
	}
	return nil
}

func (s *eventCheck) countWaitStarted() {
	r := s.run
	r.attempt, r.running, r.began, r.notBefore = s.about.Attempt, true, s.e.Seq, s.e.Due
}

func (s *eventCheck) countWaitCompleted() {
	r := s.run
	r.running, r.closed, r.done, r.notBefore = false, s.e.Fact.Type(), s.e.Seq, time.Time{}
	s.mark(completed)
}

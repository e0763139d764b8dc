package replay

import "github.com/waybill-run/waybill/events"

// pendingSignals returns the recorded signals that the forked course hasn't had yet.
func (s *sandbox) pendingSignals() []sentSignal {
	all := s.past.signals
	for len(all) > s.signalled && all[s.signalled].seq <= s.out.At {
		s.signalled++ // it is in the part that both courses share
	}
	return all[s.signalled:]
}

// deliverSignal delivers the next recorded signal if nothing else comes before it.
func (s *sandbox) deliverSignal(reply *pending, timer *events.Armed, fires moment, waits *queuedStart) bool {
	next := s.pendingSignals()
	switch {
	case len(next) == 0,
		reply != nil && s.compare(reply.moment, next[0].moment) < 0,
		timer != nil && s.compare(fires, next[0].moment) < 0,
		waits != nil && s.compare(waits.moment, next[0].moment) < 0:
		return false
	}
	s.signalled++
	s.advanceTo(next[0].moment)
	s.decide(next[0].signal, false)
	return true
}

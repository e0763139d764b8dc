package logclient

import "github.com/waybill-run/waybill/events"

// SignalRecord returns a signal's record, or an error if schedulers can't use it: it decodes it as they do.
func SignalRecord(ns events.Namespace, source string, s *events.Signal) (events.Record, error) {
	if err := s.Check(); err != nil {
		return events.Record{}, err
	}
	r := s.Record(ns, source)
	_, _, err := events.DecodeInput(events.Signals, &r)
	return r, err
}

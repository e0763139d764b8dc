package redrive

import "github.com/waybill-run/waybill/events"

// Later finds the dead letters that came from the redrive of earlier ones. The zero value is ready.
type Later struct {
	// of is the latest redrive of each dead letter. Each earlier one would write the same record again.
	of            map[Position]redriven
	notifications map[string]Position // the last position of each notification
}

// redriven is a dead letter that came from the redrive of an earlier one.
type redriven struct {
	at  Position
	sum string // digest of the original record
}

// Add feeds a dead letter. Those of one partition come in order.
func (l *Later) Add(r *events.Record) {
	if l.of == nil {
		l.of, l.notifications = map[Position]redriven{}, map[string]Position{}
	}
	at := Position{r.Partition, r.Offset}
	sum, _ := r.Header(events.HeaderSHA256)
	if p, offset, is := events.RedriveOf(r); is {
		l.of[Position{p, offset}] = redriven{at, sum}
	}
	if name := events.NotificationOf(r); name != "" { // notifications with one key are in one partition, in order
		if before, is := l.notifications[name]; is {
			l.of[before] = redriven{at, sum}
		}
		l.notifications[name] = at
	}
}

// Of returns the dead letter that the one at a position became when it was written again. sum is the digest of its
// original record: any writer of an inbox can claim that its record is a redrive, and only the same bytes are.
func (l *Later) Of(at Position, sum string) (later Position, ok bool) {
	again, ok := l.of[at]
	return again.at, ok && again.sum == sum
}

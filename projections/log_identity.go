package projections

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A store knows its log by an offset alone. A log that was cut off below it, since a cluster was brought
// back from a copy or topics were made anew, may have grown past it before the store is opened again: what
// comes behind the offset would be folded into the state of another log. So who goes on with a view reads
// the last event that it has applied once more (ExpectLastEvent), and the view compares its instant with the one
// that it remembers: no later log has an event of the same. Once the log was read past that offset, the event must have
// come (CheckReadTo): a commit that was acknowledged may have been rolled back since, and then nothing comes there.

// LogMismatchError says that a view can't go on: what it has applied isn't what the log has. Nothing that
// came was applied. It wraps ErrForeign.
type LogMismatchError struct {
	Partition int32
	Offset    int64 // of the last event that was applied
	// At is the instant of that event, Found that of the one which is there now; zero: there is none.
	At, Found time.Time

	final bool
}

func (e *LogMismatchError) Error() string {
	found := "which isn't there any more"
	if !e.Found.IsZero() {
		found = "and now there is one of " + e.Found.Format(events.TimeLayout)
	}
	return fmt.Sprintf("events/%d/%d was an event of %s, %s: what was made of it is of another log, of a part that the log has lost, or of a transaction that was rolled back",
		e.Partition, e.Offset, e.At.Format(events.TimeLayout), found)
}

func (e *LogMismatchError) Unwrap() error { return ErrForeign }

// Permanent reports whether no new reader finds anything else. A follower may still have had in hand, of
// an assignment before, what comes behind the event.
func (e *LogMismatchError) Permanent() bool { return e.final }

// Ahead reports true where the store is certain to have what the log doesn't have.
func (e *LogMismatchError) StoreIsAhead() bool { return e.final }

// rereads expects the last event that was applied, of an instant. final: what comes is read by one reader, in
// order, so that one who begins behind it has passed it.
func (v *view) expectLastEvent(last time.Time, final bool) (from int64) {
	v.lastAt, v.inOrder = last, final
	if v.awaitingLast = v.next > 0 && !last.IsZero(); v.awaitingLast {
		return v.next - 1
	}
	return v.next
}

// ExpectLastEvent says that the log is read on from the last event that was applied, at the offset that it returns:
// Apply returns an *LogMismatchError where another comes first, or one behind it. Where none was applied, or
// nothing is known of it, the offset is Next, and any goes.
func (v *Tasks) ExpectLastEvent() (from int64) { return v.expectLastEvent(v.state.At, true) }

// ExpectLastEvent is Tasks.ExpectLastEvent, for a reader who may still have records in hand that come behind: the error of
// those isn't Permanent.
func (v *Deadlines) ExpectLastEvent() (from int64) { return v.expectLastEvent(v.state.At, false) }

// ExpectLastEvent is Deadlines.ExpectLastEvent.
func (t *Timelines) ExpectLastEvent() (from int64) {
	if t.rows.tally.LastAt == 0 {
		return t.v.expectLastEvent(time.Time{}, false)
	}
	return t.v.expectLastEvent(instant(t.rows.tally.LastAt), false)
}

// CheckReadTo says that the committed records of the log were read up to an offset. It returns an *LogMismatchError where
// the last event that was applied lies below it and didn't come again (see ExpectLastEvent).
func (v *view) CheckReadTo(offset int64) error {
	if !v.awaitingLast || offset < v.next {
		return nil
	}
	return &LogMismatchError{Partition: v.keys.partition, Offset: v.next - 1, At: v.lastAt, final: true}
}

// CheckReadTo is view.CheckReadTo.
func (t *Timelines) CheckReadTo(offset int64) error { return t.v.CheckReadTo(offset) }

// follows checks that a record is of the log that the view knows.
func (v *view) checkLog(r *events.Record) error {
	if !v.awaitingLast || r.Offset < v.next-1 {
		return nil
	}
	other := &LogMismatchError{Partition: v.keys.partition, Offset: v.next - 1, At: v.lastAt, final: v.inOrder}
	if r.Offset == v.next-1 {
		e, err := events.DecodeEnvelope(r)
		if err != nil || e.At.Equal(v.lastAt) {
			v.awaitingLast = false // what can't be read couldn't then
			return nil
		}
		other.Found, other.final = e.At, true
	}
	return other
}

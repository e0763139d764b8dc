package projections

import (
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// How a view recognizes its log. A store knows the log by an offset. The log may have been cut off
// below that offset and have grown past it again: a cluster was restored from a copy, or topics were
// recreated. Then the view would fold later events into the state of another log. So a reader begins
// with the last event that the view applied (ExpectLastEvent), and the view compares the instant with
// the one it remembers: no other log has an event of the same instant there. When the reader has
// passed that offset, the event must have come (CheckReadTo). It is missing if an acknowledged commit
// was rolled back.

// LogMismatchError says that a view can't continue: the log doesn't have the event that the view
// applied last. Nothing of the new records was applied. It wraps ErrForeign.
type LogMismatchError struct {
	Partition int32
	Offset    int64 // of the last event that was applied
	// At is the instant of that event. Found is the instant of the event which is at its offset
	// now; zero: none is.
	At, Found time.Time

	// final is the result of Permanent.
	final bool
}

func (e *LogMismatchError) Error() string {
	found := "isn't in the log any more"
	if !e.Found.IsZero() {
		found = "was replaced by an event of " + e.Found.Format(events.TimeLayout)
	}
	return fmt.Sprintf("the last applied event, events/%d/%d of %s, %s: the log is another one, has lost events, or rolled back a transaction",
		e.Partition, e.Offset, e.At.Format(events.TimeLayout), found)
}

func (e *LogMismatchError) Unwrap() error { return ErrForeign }

// Permanent reports whether every new reader finds the same. If false, the reader may have had
// later records of an earlier assignment in hand.
func (e *LogMismatchError) Permanent() bool { return e.final }

// Ahead reports whether the store certainly has events that the log doesn't have.
func (e *LogMismatchError) Ahead() bool { return e.final }

// expectLastEvent expects the last applied event, of instant last, once more. inOrder: one reader
// reads the records in order, so it has passed the event if it begins with a later one.
func (v *view) expectLastEvent(last time.Time, final bool) (from int64) {
	v.lastAt, v.inOrder = last, final
	if v.awaitingLast = v.next > 0 && !last.IsZero(); v.awaitingLast {
		return v.next - 1
	}
	return v.next
}

// ExpectLastEvent returns the offset from which the log must be read: that of the last event
// applied. Apply returns a *LogMismatchError if another event, or a later one, comes first. If no
// event was applied, or its instant is unknown, the offset is Next and any event may come.
func (v *Tasks) ExpectLastEvent() (from int64) { return v.expectLastEvent(v.state.At, true) }

// ExpectLastEvent is Tasks.ExpectLastEvent for a reader that may have later records in hand. The
// error for those isn't Permanent.
func (v *Deadlines) ExpectLastEvent() (from int64) { return v.expectLastEvent(v.state.At, false) }

// ExpectLastEvent is Deadlines.ExpectLastEvent.
func (t *Timelines) ExpectLastEvent() (from int64) {
	if t.rows.tally.LastAt == 0 {
		return t.v.expectLastEvent(time.Time{}, false)
	}
	return t.v.expectLastEvent(instant(t.rows.tally.LastAt), false)
}

// CheckReadTo must be called when the committed records of the log were read up to an offset. It
// returns a *LogMismatchError if the event that ExpectLastEvent expects is below that offset and
// hasn't come.
func (v *view) CheckReadTo(offset int64) error {
	if !v.awaitingLast || offset < v.next {
		return nil
	}
	return &LogMismatchError{Partition: v.keys.partition, Offset: v.next - 1, At: v.lastAt, final: true}
}

// CheckReadTo is view.CheckReadTo.
func (t *Timelines) CheckReadTo(offset int64) error { return t.v.CheckReadTo(offset) }

// checkLog checks that a record is of the log that the view knows.
func (v *view) checkLog(r *events.Record) error {
	if !v.awaitingLast || r.Offset < v.next-1 {
		return nil
	}
	other := &LogMismatchError{Partition: v.keys.partition, Offset: v.next - 1, At: v.lastAt, final: v.inOrder}
	if r.Offset == v.next-1 {
		e, err := events.DecodeEnvelope(r)
		if err != nil || e.At.Equal(v.lastAt) {
			v.awaitingLast = false // an unreadable event was unreadable before
			return nil
		}
		other.Found, other.final = e.At, true
	}
	return other
}

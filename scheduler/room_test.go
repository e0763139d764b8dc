package scheduler

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestRoomOfATransaction: the next transaction has the room of the last one's
// records, and nothing of what was in it. Very much room isn't kept.
func TestRoomOfATransaction(t *testing.T) {
	for _, c := range []struct {
		records int
		kept    bool
	}{{3, true}, {recordsKept, true}, {recordsKept + 1, false}} {
		l := &worker{}
		tx := l.begin()
		tx.out = make([]events.Record, 0, c.records)
		for range c.records {
			tx.write(events.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"), Headers: []events.Header{{Key: "h"}}})
		}
		tx.end()
		if kept := cap(l.records) > 0; kept != c.kept || len(l.records) > 0 {
			t.Fatalf("%d records: room for %d was kept, with %d in it", c.records, cap(l.records), len(l.records))
		}
		for i, r := range l.records[:cap(l.records)] {
			if r.Topic != "" || r.Key != nil || r.Value != nil || r.Headers != nil {
				t.Fatalf("%d records: record %d is still there: %v", c.records, i, r)
			}
		}
		next := l.begin()
		if (cap(next.out) == c.records) != c.kept || l.records != nil {
			t.Fatalf("%d records: the next transaction has room for %d, the worker for %d", c.records, cap(next.out), cap(l.records))
		}
	}
}

// TestDecisionsShareRoom: the records of a decision are in the room that it was
// given, and are the same as without.
func TestDecisionsShareRoom(t *testing.T) {
	x := newBench(t)
	alone := Decide(nil, submission(1), x.cause, &x.env)
	x.env.Records, x.env.Room = make([]events.Record, 0, 16), &events.Arena{}
	for range 2 {
		x.env.Room.Reset()
		d := Decide(nil, submission(1), x.cause, &x.env)
		if len(d.Records) != len(alone.Records) || &d.Records[0] != &x.env.Records[:1][0] {
			t.Fatalf("%d records elsewhere, want %d in the room", len(d.Records), len(alone.Records))
		}
		for i := range d.Records {
			if !sameRecord(d.Records[i], alone.Records[i]) {
				t.Errorf("record %d: %v, want %v", i, d.Records[i], alone.Records[i])
			}
		}
	}
}

// TestRoomOfWhatWasRolledBack: what the records of a transaction are made of is used
// again when the log has them, and not when it was rolled back: a client may still be
// about to send some.
func TestRoomOfWhatWasRolledBack(t *testing.T) {
	l := &worker{}
	tx := l.begin()
	room := tx.room
	if tx.end(); l.room != nil {
		t.Error("the room of a transaction that was rolled back is used again")
	}
	tx = l.begin()
	if tx.room == room {
		t.Error("it was given out again")
	}
	room, tx.committed = tx.room, true
	if tx.end(); l.room != room {
		t.Error("the room of a transaction that was committed isn't used again")
	}
	if tx = l.begin(); tx.room != room || l.room != nil {
		t.Error("it isn't the next transaction's")
	}
}

package scheduler

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestArenaOfATransaction checks that the next transaction reuses the memory of the previous one, and that it is
// cleared. Very large memory isn't retained.
func TestArenaOfATransaction(t *testing.T) {
	for _, c := range []struct {
		records int
		kept    bool
	}{{3, true}, {reusedRecordsMax, true}, {reusedRecordsMax + 1, false}} {
		w := &worker{}
		tx := w.beginTransaction()
		tx.out = make([]events.Record, 0, c.records)
		for range c.records {
			tx.write(events.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"), Headers: []events.Header{{Key: "h"}}})
		}
		tx.releaseMemory()
		if kept := cap(w.records) > 0; kept != c.kept || len(w.records) > 0 {
			t.Fatalf("%d records: room for %d was kept, with %d in it", c.records, cap(w.records), len(w.records))
		}
		for i, r := range w.records[:cap(w.records)] {
			if r.Topic != "" || r.Key != nil || r.Value != nil || r.Headers != nil {
				t.Fatalf("%d records: record %d is still there: %v", c.records, i, r)
			}
		}
		next := w.beginTransaction()
		if (cap(next.out) == c.records) != c.kept || w.records != nil {
			t.Fatalf("%d records: the next transaction has room for %d, the worker for %d", c.records, cap(next.out), cap(w.records))
		}
	}
}

// TestDecisionsShareMemory checks that the records of a decision use the memory from Env, and equal those without it.
func TestDecisionsShareMemory(t *testing.T) {
	x := newBench(t)
	alone := Decide(nil, submission(1), x.cause, &x.env)
	x.env.Records, x.env.Arena = make([]events.Record, 0, 16), &events.Arena{}
	for range 2 {
		x.env.Arena.Reset()
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

// TestArenaIsNotReusedAfterRollback checks that the arena of a transaction is reused after a commit but not after a
// rollback, when a client may still send its records.
func TestArenaIsNotReusedAfterRollback(t *testing.T) {
	w := &worker{}
	tx := w.beginTransaction()
	room := tx.arena
	if tx.releaseMemory(); w.arena != nil {
		t.Error("the room of a transaction that was rolled back is used again")
	}
	tx = w.beginTransaction()
	if tx.arena == room {
		t.Error("it was given out again")
	}
	room, tx.committed = tx.arena, true
	if tx.releaseMemory(); w.arena != room {
		t.Error("the room of a transaction that was committed isn't used again")
	}
	if tx = w.beginTransaction(); tx.arena != room || w.arena != nil {
		t.Error("it isn't the next transaction's")
	}
}

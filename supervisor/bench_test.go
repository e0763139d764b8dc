package supervisor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// quiet is a log without records, and an outbox that only counts.
type quiet struct{ sent int }

func (*quiet) Assigned() map[int32]uint64                          { return map[int32]uint64{0: 1} }
func (*quiet) Poll(context.Context) ([]events.Record, error)       { return nil, nil }
func (*quiet) Wake()                                               {}
func (*quiet) HighWatermark(string, int32) (int64, bool)           { return 0, true }
func (*quiet) Position(string, int32) (int64, bool)                { return 0, true }
func (*quiet) Tail(string, int32) (int64, bool)                    { return 0, true }
func (*quiet) Commit(context.Context, map[int32]int64) error       { return nil }
func (q *quiet) Send(_ context.Context, rs ...events.Record) error { q.sent += len(rs); return nil }

// setClock is a clock that a test sets.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

// BenchmarkSweep runs an iteration that finds 10 of 100,000 timers due, requests their recoveries and handles the
// acknowledgement.
func BenchmarkSweep(b *testing.B) {
	const armed, due = 100_000, 10
	const ns = events.Namespace(events.DefaultNamespace)
	store, err := projections.Open("deadlines", projections.Identity{ClusterID: "bench", Namespace: ns, Partitions: 1,
		View: projections.ViewDeadlines}, projections.Options{FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	clock, q := &setClock{now: time.Now()}, &quiet{}
	s, err := New(Config{Namespace: ns, Source: "bench", Outbox: q, Clock: clock,
		Open: func(p int32) (Deadlines, error) { return store.Deadlines(p) }})
	if err != nil {
		b.Fatal(err)
	}
	rs := make([]events.Record, armed)
	for i := range rs {
		at := clock.now.Add(time.Hour * 24 * 365)
		if i < due {
			at = clock.now
		}
		e := &events.Event{Task: fmt.Sprintf("order-%06d", i), Seq: 3, At: clock.now, Due: events.Millis(at),
			Policy: &events.Policy{Timer: events.TimerAttempt, OnError: events.OnErrorUndo,
				Attempts: events.Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 3}},
			Fact: &events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1}}
		rs[i] = e.Record(ns, "bench", 0, e.Value())
		rs[i].Offset = int64(i)
	}
	turn := func(rs []events.Record) {
		if _, err := s.runOnce(b.Context(), q, rs, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	turn(rs)
	s.background.Wait()
	q.sent = 0
	n := 0
	for b.Loop() {
		turn(nil)                                     // handles the acknowledgement
		clock.now = clock.now.Add(2 * RepeatAfterMax) // the snoozes start at the acknowledgement
		turn(nil)
		s.background.Wait()
		n += due
	}
	if q.sent != n {
		b.Fatalf("asked about %d timers, want %d", q.sent, n)
	}
}

// BenchmarkTurn runs an iteration with nothing to do in 12 partitions.
func BenchmarkTurn(b *testing.B) {
	now := time.Now()
	ps := make([]*partition, 12)
	for i := range ps {
		ps[i] = &partition{id: int32(i), restored: true, deadlines: still{now.Add(time.Hour)}, savedAt: now}
	}
	for b.Loop() {
		for _, p := range ps {
			if p.due(now, now) != nil {
				b.Fatal("due")
			}
		}
		if sleepAtMost(ps, now, now, time.Second) != time.Second {
			b.Fatal("awake")
		}
	}
}

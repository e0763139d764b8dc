package logreader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func (s *site) restorer(t testing.TB, l *logreader.RestoreListener) *logreader.Restorer {
	t.Helper()
	r, err := logreader.OpenRestorer(s.Config, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// awaitEnd waits until events/p ends at an offset. The markers of a transaction are written after its end is
// acknowledged.
func (s *site) awaitEnd(t testing.TB, r *logreader.Restorer, p int32, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for {
		ends, err := r.EndOffsets(ctx, s.NS.Events())
		if err != nil {
			t.Fatalf("partition %d doesn't end at %d: %v", p, want, err)
		}
		if ends[p] == want {
			return
		}
	}
}

// read reads events/p to its end.
func (s *site) read(t testing.TB, r *logreader.Restorer, p int32, from int64) (values []string, next int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	next, err := r.Read(ctx, s.NS.Events(), p, from, func(rs []events.Record) error {
		for _, r := range rs {
			values = append(values, string(r.Value))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read partition %d from %d: %v", p, from, err)
	}
	return values, next
}

// TestReadLast checks that ReadLast returns the records within n offsets of the end, and reports whether those are all.
// For a missing topic, its error is permanent.
func TestReadLast(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		s.Transact(t, 0, kgo.TryCommit, "a", "b") // 0 1, marker 2
		s.Transact(t, 0, kgo.TryCommit, "c")      // 3, marker 4
		s.awaitEnd(t, r, 0, 5)
		for n, want := range map[int64]string{1: " false", 2: "c false", 4: "b c false", 5: "a b c true", 1 << 62: "a b c true"} {
			var values []string
			all, err := r.ReadLast(t.Context(), s.NS.Events(), 0, n, func(rs []events.Record) error {
				for _, r := range rs {
					values = append(values, string(r.Value))
				}
				return nil
			})
			if got := fmt.Sprint(strings.Join(values, " "), " ", all); err != nil || got != want {
				t.Errorf("of the last %d: %q, %v; want %q", n, got, err, want)
			}
		}
		_, err := r.ReadLast(t.Context(), s.NS.Events()+"-gone", 0, 9, func([]events.Record) error { return nil })
		var final interface{ Permanent() bool }
		if !errors.As(err, &final) || !final.Permanent() {
			t.Errorf("of a topic that isn't there: %v", err)
		}
	})
}

func TestReadEndsBehindMarkersAndRolledBackRecords(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		if values, next := s.read(t, r, 0, 0); len(values) != 0 || next != 0 {
			t.Fatalf("of an empty partition: %v, next %d", values, next)
		}
		s.Transact(t, 0, kgo.TryCommit, "a", "b")       // 0 1, marker 2
		s.Transact(t, 0, kgo.TryAbort, "never", "seen") // 3 4, marker 5
		s.Transact(t, 0, kgo.TryCommit, "c")            // 6, marker 7
		s.Transact(t, 0, kgo.TryAbort, "never")         // 8, marker 9
		s.awaitEnd(t, r, 0, 10)
		for from, want := range map[int64]string{0: "a b c", 1: "b c", 2: "c", 4: "c", 7: "", 9: "", 10: ""} {
			values, next := s.read(t, r, 0, from)
			if strings.Join(values, " ") != want || next != 10 {
				t.Errorf("from %d: %q, next %d; want %q, 10", from, values, next, want)
			}
		}
	})
}

func TestReadRefusesAnOffsetThatIsNotInTheLog(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		cl := s.Outside(t)
		for range 6 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, "x"))
		}
		s.Trim(t, 1, 4)
		for _, from := range []int64{0, 3, 7, 1000} {
			next, err := r.Read(t.Context(), s.NS.Events(), 1, from, func([]events.Record) error { return nil })
			var out *logreader.OffsetRangeError
			if !errors.As(err, &out) || out.Start != 4 || out.End != 6 || out.Offset != from || next != from {
				t.Errorf("from %d: next %d, %v", from, next, err)
			}
		}
		if values, next := s.read(t, r, 1, 4); len(values) != 2 || next != 6 {
			t.Errorf("from the new start: %v, %d", values, next)
		}
		full := errors.New("store full")
		if _, err := r.Read(t.Context(), s.NS.Events(), 1, 4, func([]events.Record) error { return full }); !errors.Is(err, full) {
			t.Errorf("the error of the taker is lost: %v", err)
		}
	})
}

// TestReadWaitsForATransactionThatIsEnding checks that a read waits for records below the high watermark, even if their
// transaction ends only after the read began.
func TestReadWaitsForATransactionThatIsEnding(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var fenced []string
		r := s.restorer(t, &logreader.RestoreListener{Fenced: func(id string) { fenced = append(fenced, id) }})
		cl := s.Begin(t, string(s.NS)+"scheduler.slow", 2, "a")
		ended := make(chan error, 1)
		time.AfterFunc(200*time.Millisecond, func() { ended <- kafka.EndTransaction(context.Background(), cl, kgo.TryCommit) })
		values, next := s.read(t, r, 2, 0)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(values, []string{"a"}) || next < 1 || len(fenced) != 0 {
			t.Fatalf("%v, next %d, fenced %v", values, next, fenced)
		}
	})
}

func TestReadFencesADeadWorkerAndNobodyElse(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		var mu sync.Mutex
		var fenced []string
		var complaints []error
		ctx, ofForeign := context.WithCancel(bounded(t)) // canceled when the foreign transaction is reported
		defer ofForeign()
		r := s.restorer(t, &logreader.RestoreListener{
			Fenced: func(id string) {
				mu.Lock()
				defer mu.Unlock()
				fenced = append(fenced, id)
			},
			NotFenced: func(_ string, _ int32, err error) {
				mu.Lock()
				defer mu.Unlock()
				if complaints = append(complaints, err); strings.Contains(err.Error(), "another.system") {
					ofForeign()
				}
			},
		})
		dead := string(s.NS) + "scheduler.dead"
		s.Transact(t, 3, kgo.TryCommit, "a")
		cl := s.Begin(t, dead, 3, "open")
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 5, "open too"))

		// Both partitions concurrently, as in a restore.
		began := time.Now()
		var both sync.WaitGroup
		both.Go(func() {
			if values, next := s.read(t, r, 3, 0); !slices.Equal(values, []string{"a"}) || next != 4 {
				t.Errorf("%v, next %d", values, next)
			}
		})
		both.Go(func() { s.read(t, r, 5, 0) })
		both.Wait()
		if took := time.Since(began); took > time.Minute { // the dead worker's transaction lasts twice as long
			t.Errorf("the read took %v", took)
		}
		if err := kafka.EndTransaction(t.Context(), cl, kgo.TryCommit); err == nil {
			t.Error("the dead worker committed after it was fenced")
		}
		if !slices.Equal(fenced, []string{dead}) || len(complaints) != 0 {
			t.Errorf("fenced %v, complaints %v", fenced, complaints)
		}

		foreign := s.Begin(t, "another.system", 4, "foreign")
		if _, err := r.Read(ctx, s.NS.Events(), 4, 0, func([]events.Record) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("read past an open transaction, or told nobody of it: %v", err)
		}
		if err := kafka.EndTransaction(t.Context(), foreign, kgo.TryCommit); err != nil {
			t.Errorf("the other system's transaction was harmed: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(fenced) != 1 {
			t.Errorf("fenced %v, complaints %v", fenced, complaints)
		}
	})
}

// readApart reads two partitions with concurrent calls of fn, each of which waits for the other.
func (s *site) readApart(t *testing.T, r *logreader.Restorer) {
	t.Helper()
	taken := make([]atomic.Int64, testPartitions)
	var both sync.WaitGroup
	both.Add(2)
	_, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{Partitions: []int32{1, 2}, Concurrent: true}, func(rs []events.Record) error {
		if taken[rs[0].Partition].Add(int64(len(rs))) == int64(len(rs)) {
			both.Done()
			both.Wait()
		}
		return nil
	}, nil)
	if n := taken[1].Load() + taken[2].Load(); err != nil || n != 20 {
		t.Errorf("apart: %d records, %v", n, err)
	}
}

func TestReadAll(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		r := s.restorer(t, nil)
		cl := s.Outside(t)
		for p := range int32(testPartitions) {
			for i := range 10 {
				r := kafkatest.Input(s.NS.Events(), p, fmt.Sprintf("%d.%d", p, i))
				r.Timestamp = time.UnixMilli(int64(1_700_000_000_000 + i*1000))
				kafkatest.Submit(t, cl, r)
			}
		}
		s.Transact(t, 0, kgo.TryAbort, "never")
		s.awaitEnd(t, r, 0, 12)
		open := s.Begin(t, string(s.NS)+"scheduler.live", 1, "not yet")

		read := func(in logreader.Range) (values []string, as map[int32]int64, done, total int64) {
			t.Helper()
			last := map[int32]int64{}
			as, err := r.ReadAll(t.Context(), s.NS.Events(), in, func(rs []events.Record) error {
				for _, r := range rs {
					if r.Offset < last[r.Partition] {
						t.Errorf("partition %d: %d after %d", r.Partition, r.Offset, last[r.Partition])
					}
					last[r.Partition] = r.Offset
					values = append(values, string(r.Value))
				}
				return nil
			}, func(d, n int64) {
				if d < done {
					t.Errorf("progress went back from %d to %d", done, d)
				}
				done, total = d, n
			})
			if err != nil {
				t.Fatal(err)
			}
			return values, as, done, total
		}
		var held []int64
		values, as, done, total := read(logreader.Range{Blocked: func(p int32, next, end int64) { held = append(held, int64(p), next, end) }})
		if len(values) != 10*testPartitions || as[0] != 12 || as[1] != 10 || as[2] != 10 {
			t.Errorf("%d records, as of %v", len(values), as)
		}
		if !slices.Equal(held, []int64{1, 10, 11}) {
			t.Errorf("held back: %v, want partition 1 from 10 on, below 11", held)
		}
		if want := int64(10*testPartitions + 2 + 1); total != want || done != want-1 {
			t.Errorf("progress ends at %d of %d, want all of %d but the open one", done, total, want)
		}
		if values, as, _, _ := read(logreader.Range{Partitions: []int32{7}, Since: time.UnixMilli(1_700_000_007_000)}); !slices.Equal(values, []string{"7.7", "7.8", "7.9"}) || len(as) != 1 {
			t.Errorf("partition 7 since 7: %v as of %v", values, as)
		}
		if _, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{Partitions: []int32{99}}, nil, nil); err == nil || !strings.Contains(err.Error(), "no partition 99") {
			t.Errorf("partition 99: %v", err)
		}
		s.readApart(t, r)
		full := errors.New("full")
		// ReadAll returns the error that ended it, and not the cancellation of its other reads.
		for range 300 {
			failed := false
			if _, err := r.ReadAll(t.Context(), s.NS.Events(), logreader.Range{}, func([]events.Record) error {
				if failed {
					return nil
				}
				failed = true
				return full
			}, nil); !errors.Is(err, full) {
				t.Fatalf("error of the taker: %v", err)
			}
		}
		if err := kafka.EndTransaction(t.Context(), open, kgo.TryCommit); err != nil {
			t.Errorf("ReadAll fenced a live worker: %v", err)
		}
		ends, err := r.EndOffsets(t.Context(), s.NS.Events())
		if err != nil || ends[0] != 12 || ends[2] != 10 || len(ends) != testPartitions {
			t.Errorf("ends %v, %v", ends, err)
		}
	})
}

// TestReadOverManyFetchesLeavesOutWhatWasRolledBack checks a partition that takes several fetches. None of them may
// return aborted records.
func TestReadOverManyFetchesLeavesOutWhatWasRolledBack(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		noise := make([]byte, 100_000) // random, so compression doesn't shrink it
		_, err := rand.NewChaCha8([32]byte{}).Read(noise)
		must(t, err)
		body := string(noise)
		for i := range 20 { // 8 MB, a quarter of it aborted
			s.Transact(t, 0, kgo.TryAbort, fmt.Sprintf("never %d %s", i, body))
			s.Transact(t, 0, kgo.TryCommit, body, body, body)
		}
		values, _ := s.read(t, s.restorer(t, nil), 0, 0)
		for _, v := range values {
			if strings.HasPrefix(v, "never") {
				t.Errorf("a rolled back record was read: %.10s", v)
			}
		}
		if len(values) != 60 {
			t.Errorf("%d records, want 60", len(values))
		}
	})
}

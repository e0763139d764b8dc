package schedulerworker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func TestWorkerCommitsOutputAndPositionTogether(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"), kafkatest.Input(s.Inboxes[0], 7, "b"))

		var in []events.Record
		until(t, l, "both records", func(rs []events.Record) bool { in = append(in, rs...); return len(in) == 2 })
		out := s.Reflect(in)
		commit(t, l, len(in), out)
		for _, r := range out {
			var there string
			_, err := s.restorer(t, nil).Read(t.Context(), r.Topic, r.Partition, r.Offset, func(rs []events.Record) error {
				there = string(rs[0].Value)
				return nil
			})
			if err != nil || there != string(r.Value) {
				t.Errorf("at offset %d of partition %d is %q, %v; want %q", r.Offset, r.Partition, there, err, r.Value)
			}
		}
		l.Close()

		l = openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "c"))
		if rs := poll(t, l); len(rs) != 1 || string(rs[0].Value) != "c" || rs[0].Offset != 1 {
			t.Fatalf("after a restart came %+v", rs)
		}
		commit(t, l, 1, nil)
		if seen := s.Reflected(t, 2); len(seen) != 2 {
			t.Fatalf("events: %v", seen)
		}
	})
}

func TestWorkerAbortGivesBackWhatWasPolled(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		kafkatest.Submit(t, s.Outside(t), kafkatest.Input(s.Inboxes[3], 4, "a"))
		first := poll(t, l)
		if err := l.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := poll(t, l)
		if len(first) != 1 || len(second) != 1 || first[0].Offset != second[0].Offset {
			t.Fatalf("polled %v, after the abort %v", first, second)
		}
		commit(t, l, 1, s.Reflect(second))
	})
}

// TestWorkerPollsFewer checks records that were too many for one transaction. After an abort they are polled again in
// parts, and each commit has only the positions of its own part.
func TestWorkerPollsFewer(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		l := openWorker(t, s.worker("one"))
		untilAssigned(t, l, testPartitions)
		cl := s.Outside(t)
		for range 5 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.Inboxes[3], 4, "a"))
		}
		polled := 0
		for polled < 5 {
			polled += len(poll(t, l))
		}
		if err := l.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.PollAtMost(2)
		var offsets []int64
		for len(offsets) < 5 {
			rs := poll(t, l)
			if len(rs) > 2 {
				t.Fatalf("%d records of one poll, want 2 at most", len(rs))
			}
			for i := range rs {
				offsets = append(offsets, rs[i].Offset)
			}
			commit(t, l, len(rs), s.Reflect(rs))
		}
		for i, offset := range offsets {
			if offset != int64(i) {
				t.Errorf("offsets %v, want each once and in order", offsets)
				break
			}
		}
		l.PollAtMost(0)
	})
}

func TestWorkerCommitWithoutPollPanics(t *testing.T) {
	s := embedded(t)
	l := openWorker(t, s.worker("one"))
	defer func() {
		if recover() == nil {
			t.Fatal("a transaction that consumed nothing was committed")
		}
	}()
	_, _ = l.Commit(t.Context(), nil)
}

func TestOpenWorkerRefusesTopicsThatDiffer(t *testing.T) {
	s := embedded(t)
	s.CreateTopics(t, 3, "odd")
	cfg := s.worker("one")
	cfg.Topics = append(slices.Clone(s.Inboxes), "odd", "missing")
	_, err := schedulerworker.Open(t.Context(), cfg)
	for _, want := range []string{fmt.Sprintf("topic odd has 3 partitions instead of %d", testPartitions), "topic missing"} {
		if !contains(err, want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	cfg = s.worker("")
	cfg.SessionTimeout, cfg.TransactionTimeout = 10*time.Second, 10*time.Second
	if _, err := schedulerworker.Open(t.Context(), cfg); !contains(err, "no owner") || !contains(err, "not shorter") {
		t.Errorf("error %v does not name both faults", err)
	}
}

func contains(err error, s string) bool { return err != nil && strings.Contains(err.Error(), s) }

func TestWorkerPausesWhatMayNotAct(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		l := openWorker(t, s.worker("one"))
		for len(l.Assigned()) < testPartitions {
			if rs, err := l.Poll(t.Context()); err != nil || len(rs) > 0 {
				t.Fatal(rs, err)
			}
		}
		for p := range int32(testPartitions) {
			for _, topic := range s.Inboxes {
				kafkatest.Submit(t, cl, kafkatest.Input(topic, p, "x"))
			}
		}
		// polled waits for want records that are allowed, and then checks that no more are returned.
		polled := func(what string, want int, allowed func(events.Record) bool) (got []events.Record) {
			t.Helper()
			for empty := 0; len(got) < want || empty < 6; empty++ { // longer than a record needs to arrive
				rs, err := l.Poll(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					if !allowed(r) {
						t.Fatalf("%s: came %s/%d", what, r.Topic, r.Partition)
					}
					empty = -1
				}
				if got = append(got, rs...); len(got) > want || empty > 100 {
					t.Fatalf("%s: %d records, want %d", what, len(got), want)
				}
			}
			return got
		}
		polled("nothing resumed", 0, func(events.Record) bool { return false })
		l.Pause(inboxgate.AllPartitions, s.Inboxes[3], inboxgate.PausedForAdmission, time.Time{})
		l.Resume(5, inboxgate.PausedForRestore)
		polled("5 resumed, tasks paused", 4, func(r events.Record) bool { return r.Partition == 5 && r.Topic != s.Inboxes[3] })
		l.Resume(inboxgate.AllPartitions, inboxgate.PausedForAdmission, s.Inboxes[3])
		l.Resume(6, inboxgate.PausedForRestore)
		// The five records of 6 and the task of 5.
		got := polled("5 and 6 resumed", 6, func(r events.Record) bool { return r.Partition == 6 || r.Partition == 5 && r.Topic == s.Inboxes[3] })
		commit(t, l, len(got), s.Reflect(got))
		l.Resume(99, inboxgate.PausedForRestore) // not assigned

		of7 := func(topics ...string) func(events.Record) bool {
			return func(r events.Record) bool { return r.Partition == 7 && slices.Contains(topics, r.Topic) }
		}
		l.Resume(7, inboxgate.PausedForRestore, s.Inboxes[1])
		got = polled("one inbox of 7 resumed", 1, of7(s.Inboxes[1]))
		commit(t, l, len(got), s.Reflect(got))
		l.Resume(7, inboxgate.PausedForRestore)
		polled("7 resumed", 4, of7(s.Inboxes[0], s.Inboxes[2], s.Inboxes[3], s.Inboxes[4]))
		l.Pause(7, s.Inboxes[0], inboxgate.PausedForRetry, time.Time{})
		if err := l.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		polled("given back while one inbox of 7 is paused", 3, of7(s.Inboxes[2], s.Inboxes[3], s.Inboxes[4]))
		l.Resume(7, inboxgate.PausedForRetry)
		polled("resumed again", 1, of7(s.Inboxes[0]))
	})
}

// TestNamedWorkerKeepsItsPartitionsOverARestart checks that a static worker that restarts gets its partitions back, and
// that the other worker keeps its own without a change.
func TestNamedWorkerKeepsItsPartitionsOverARestart(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		named := func(owner string) schedulerworker.Config {
			cfg := s.worker(owner)
			cfg.InstanceID = string(s.NS) + owner
			cfg.SessionTimeout, cfg.TransactionTimeout = 20*time.Second, 30*time.Second
			return cfg
		}
		a, b := openWorker(t, named("a")), openWorker(t, named("b"))
		until(t, a, "half", func([]events.Record) bool {
			if _, err := b.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(a.Assigned()) == testPartitions/2 && len(b.Assigned()) == testPartitions/2
		})
		before, others := slices.Sorted(maps.Keys(a.Assigned())), b.Assigned()
		a.Close()
		a = openWorker(t, named("a"))
		untilAssigned(t, a, testPartitions/2)
		if after := slices.Sorted(maps.Keys(a.Assigned())); !slices.Equal(before, after) {
			t.Errorf("had %v, has %v", before, after)
		}
		if !maps.Equal(others, b.Assigned()) {
			t.Errorf("the other worker had %v, has %v", others, b.Assigned())
		}
	})
}

func TestOlderOfTwoWorkersWithOneNameEnds(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.worker("a")
		cfg.InstanceID = string(s.NS) + "a"
		older := openWorker(t, cfg)
		untilAssigned(t, older, testPartitions)
		newer := openWorker(t, cfg)
		untilAssigned(t, newer, testPartitions)
		for deadline := time.Now().Add(suite.Patience); ; {
			_, err := older.Poll(t.Context())
			if errors.Is(err, kerr.FencedInstanceID) {
				return
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("the older worker: %v", err)
			}
		}
	})
}

func TestWakeEndsAPoll(t *testing.T) {
	s := embedded(t)
	cfg := s.worker("one")
	cfg.FetchMaxWait = 2 * time.Minute
	l := openWorker(t, cfg)
	l.Wake() // a wake before the poll is not lost
	begin := time.Now()
	if _, err := l.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, l.Wake)
	if _, err := l.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > cfg.FetchMaxWait/2 {
		t.Fatalf("two woken polls took %v", took)
	}
}

// echo is a scheduler without state. It writes an event for each input, and opens a new worker when the outcome of a
// transaction is unknown.
type echo struct {
	site *site
	cfg  schedulerworker.Config
	mu   sync.Mutex
	bad  []error
	tx   int
	back int
}

func (e *echo) run(ctx context.Context) {
	for ctx.Err() == nil {
		l, err := schedulerworker.Open(ctx, e.cfg)
		if err != nil {
			return
		}
		err = e.loop(ctx, l)
		l.Close()
		if ctx.Err() == nil && err != nil {
			e.mu.Lock()
			e.bad = append(e.bad, err)
			e.mu.Unlock()
		}
	}
}

func (e *echo) loop(ctx context.Context, l *schedulerworker.Worker) error {
	resumed := map[int32]uint64{}
	for {
		rs, err := l.Poll(ctx)
		if err != nil {
			return err
		}
		owned := l.Assigned()
		for p, n := range owned {
			if resumed[p] != n {
				l.Resume(p, inboxgate.PausedForRestore)
				resumed[p] = n
			}
		}
		if len(rs) == 0 {
			continue
		}
		// Not ctx: a shutdown must not make the outcome unknown.
		committed, err := l.Commit(context.Background(), e.site.Reflect(rs))
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.tx++
		if !committed {
			e.back++
		}
		e.mu.Unlock()
	}
}

// TestEachInputIsReflectedOnceUnderRebalances checks that each of 20,000 records leads to one event while workers join
// and leave.
func TestEachInputIsReflectedOnceUnderRebalances(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	each(t, func(t *testing.T, s *site) {
		const records = 20_000
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		workers := map[string]*echo{}
		start := func(ctx context.Context, owner string) {
			e := &echo{site: s, cfg: s.worker(owner)}
			e.cfg.MaxPollRecords = 50
			workers[owner] = e
			running.Go(func() { e.run(ctx) })
		}
		start(ctx, "a")
		start(ctx, "b")
		produced := s.submitOverTime(t, records)
		for i, done := 0, false; !done; i++ {
			short, leave := context.WithCancel(ctx)
			start(short, fmt.Sprint("guest", i))
			select {
			case <-produced:
				done = true
			case <-time.After(1300 * time.Millisecond):
			}
			leave()
		}
		want := s.causes(t)
		if len(want) != records {
			t.Fatalf("%d records in the inboxes", len(want))
		}
		seen := s.Reflected(t, records)
		stop()
		running.Wait()

		tx, back := 0, 0
		for owner, e := range workers {
			for _, err := range e.bad {
				t.Logf("worker %s: %v", owner, err)
			}
			tx, back = tx+e.tx, back+e.back
		}
		t.Logf("%d workers, %d transactions, %d of them rolled back", len(workers), tx, back)
		for cause, n := range seen {
			if n != 1 || !want[cause] {
				t.Errorf("input %s is reflected %d times", cause, n)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d inputs reflected, want %d", len(seen), len(want))
		}
	})
}

// submitOverTime spreads records over inboxes, partitions and ten seconds. The channel is closed when the broker has
// acknowledged all of them.
func (s *site) submitOverTime(t testing.TB, records int) <-chan struct{} {
	t.Helper()
	cl := s.Outside(t)
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		for i := range records {
			r := kafkatest.Input(s.Inboxes[i%len(s.Inboxes)], int32(i/len(s.Inboxes)%testPartitions), fmt.Sprint(i))
			cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			if i%40 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		if err := cl.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	return produced
}

// causes returns the topic, partition and offset of every record in the inboxes.
func (s *site) causes(t testing.TB) map[string]bool {
	t.Helper()
	r := s.restorer(t, nil)
	all := map[string]bool{}
	for _, topic := range s.Inboxes {
		ends, err := r.EndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p, end := range ends {
			for o := range end {
				all[fmt.Sprintf("%s/%d/%d", topic, p, o)] = true
			}
		}
	}
	return all
}

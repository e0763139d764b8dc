package logreader_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

func (s *site) follower() logreader.FollowerConfig {
	return logreader.FollowerConfig{
		Config: s.Config, Group: s.NS.SupervisorGroup(), Topics: []string{s.NS.Events()}, Partitions: testPartitions,
		SessionTimeout: 2 * time.Second, FetchMaxWait: 50 * time.Millisecond,
	}
}

func openFollower(t testing.TB, cfg logreader.FollowerConfig) *logreader.Follower {
	t.Helper()
	f, err := logreader.OpenFollower(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// follow polls until ok.
func follow(t testing.TB, f *logreader.Follower, what string, ok func([]events.Record) bool) {
	t.Helper()
	for deadline := time.Now().Add(suite.Patience); ; {
		rs, err := f.Poll(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok(rs) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time; assigned %v", what, f.Assigned())
		}
	}
}

// caughtUp reports whether a follower has read n partitions up to their ends at the time of assignment.
func caughtUp(f *logreader.Follower, topic string, n int) bool {
	if len(f.Assigned()) != n {
		return false
	}
	for p := range f.Assigned() {
		end, ok := f.HighWatermark(topic, p)
		at, _ := f.Position(topic, p)
		if !ok || at < end {
			return false
		}
	}
	return true
}

func TestFollowerStartsAtGivenOffsetsAndKnowsWhenItCaughtUp(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.Transact(t, 0, kgo.TryCommit, "a", "b", "c") // 0 1 2, marker 3
		s.Transact(t, 0, kgo.TryAbort, "never")        // 4, marker 5: the log ends here
		s.Transact(t, 1, kgo.TryAbort, "never")
		r := s.restorer(t, nil)
		s.awaitEnd(t, r, 0, 6)
		s.awaitEnd(t, r, 1, 2)
		cl := s.Outside(t)
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 2, "d"), kafkatest.Input(s.NS.Events(), 2, "e"))

		cfg := s.follower()
		cfg.Start = func(_ context.Context, _ string, p int32) (int64, bool, error) { return 1, p == 0, nil }
		f := openFollower(t, cfg)
		got := map[string]bool{}
		follow(t, f, "the end", func(rs []events.Record) bool {
			for _, r := range rs {
				got[string(r.Value)] = true
			}
			return caughtUp(f, s.NS.Events(), testPartitions)
		})
		if fmt.Sprint(got) != "map[b:true c:true d:true e:true]" {
			t.Errorf("read %v", got)
		}
		for p, want := range map[int32]int64{0: 6, 1: 2, 2: 2, 3: 0} {
			at, _ := f.Position(s.NS.Events(), p)
			end, _ := f.HighWatermark(s.NS.Events(), p)
			if at != want || end != want {
				t.Errorf("partition %d: at %d of %d, want %d", p, at, end, want)
			}
		}

		// A member without a position of its own begins at the committed offset.
		if err := f.Commit(t.Context(), map[int32]int64{2: 1, 0: 6}); err != nil {
			t.Fatal(err)
		}
		f.Close()
		f = openFollower(t, s.follower())
		var again []string
		follow(t, f, "the end again", func(rs []events.Record) bool {
			for _, r := range rs {
				again = append(again, string(r.Value))
			}
			return caughtUp(f, s.NS.Events(), testPartitions)
		})
		if fmt.Sprint(again) != "[e]" {
			t.Errorf("after the commit came %v", again)
		}
	})
}

// TestFollowerReadsAgain checks IncludePrevious: the follower first returns the record before its start offset. The
// start offset itself must be in the log.
func TestFollowerReadsAgain(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		for i := range 4 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, fmt.Sprint(i)))
		}
		s.Trim(t, 1, 1)
		for begin, want := range map[int64]string{1: "[1 2 3]", 2: "[1 2 3]", 4: "[3]"} {
			cfg := s.follower()
			cfg.IncludePrevious, cfg.Start = true, func(_ context.Context, _ string, p int32) (int64, bool, error) { return begin, p == 1, nil }
			f := openFollower(t, cfg)
			var got []string
			follow(t, f, "the end", func(rs []events.Record) bool {
				for _, r := range rs {
					got = append(got, string(r.Value))
				}
				return caughtUp(f, s.NS.Events(), testPartitions)
			})
			if fmt.Sprint(got) != want {
				t.Errorf("from %d on: %v, want %s", begin, got, want)
			}
			f.Close()
		}
		cfg := s.follower()
		cfg.IncludePrevious, cfg.Start = true, func(_ context.Context, _ string, p int32) (int64, bool, error) { return 5, p == 1, nil }
		var out *logreader.OffsetRangeError
		if err := endOf(t, openFollower(t, cfg), func([]events.Record) {}); !errors.As(err, &out) || out.Offset != 5 || out.End != 4 {
			t.Errorf("past the end: %v", err)
		}
	})
}

// TestFollowerStartsAtWhatCameMeanwhile checks a Start that takes long and returns an offset beyond the end that was
// fetched before it, for example from a snapshot.
func TestFollowerStartsAtWhatCameMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, "before"))
		cfg := s.follower()
		cfg.IncludePrevious, cfg.Start = true, func(_ context.Context, _ string, p int32) (int64, bool, error) {
			if p != 1 {
				return 0, true, nil
			}
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, "meanwhile"))
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, "the last"))
			return 3, true, nil
		}
		f := openFollower(t, cfg)
		var first string
		follow(t, f, "what came meanwhile", func(rs []events.Record) bool {
			for _, r := range rs {
				if r.Partition == 1 && first == "" {
					first = string(r.Value)
				}
			}
			return first != ""
		})
		if first != "the last" {
			t.Errorf("%q came first", first)
		}
	})
}

func TestFollowerStartsThatFail(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		broken := errors.New("store broken")
		pollError := func(start func(context.Context, string, int32) (int64, bool, error)) error {
			cfg := s.follower()
			cfg.Start = start
			f := openFollower(t, cfg)
			defer f.Close()
			for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); {
				if _, err := f.Poll(t.Context()); err != nil {
					return err
				}
			}
			return nil
		}
		if err := pollError(func(context.Context, string, int32) (int64, bool, error) { return 0, false, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		var out *logreader.OffsetRangeError
		err := pollError(func(_ context.Context, _ string, p int32) (int64, bool, error) { return 99, p == 3, nil })
		if !errors.As(err, &out) || out.Partition != 3 || out.Offset != 99 {
			t.Errorf("got %v", err)
		}
	})
}

// TestFollowerWhosePositionIsTrimmedAway trims the log between Start and the first fetch.
func TestFollowerWhosePositionIsTrimmedAway(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		for i := range 6 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, fmt.Sprint(i)))
		}
		cfg := s.follower()
		cfg.Start = func(_ context.Context, _ string, p int32) (int64, bool, error) {
			if p == 1 {
				s.Trim(t, 1, 4)
			}
			return 0, true, nil
		}
		f := openFollower(t, cfg)
		for {
			rs, err := f.Poll(t.Context())
			if err == nil {
				if len(rs) > 0 {
					t.Fatalf("records %v came from another place than was asked for", rs)
				}
				continue
			}
			var out *logreader.OffsetRangeError
			if !errors.As(err, &out) || out.Partition != 1 || out.Offset != 0 || out.Start != 4 || out.End != 6 {
				t.Fatalf("got %v", err)
			}
			return
		}
	})
}

func TestFollowerMovesACommitThatTheLogHasLeftBehind(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cl := s.Outside(t)
		for i := range 6 {
			kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 1, fmt.Sprint(i)))
		}
		f := openFollower(t, s.follower())
		follow(t, f, "the end", func([]events.Record) bool { return caughtUp(f, s.NS.Events(), testPartitions) })
		if err := f.Commit(t.Context(), map[int32]int64{1: 2}); err != nil {
			t.Fatal(err)
		}
		f.Close()
		s.Trim(t, 1, 4)
		cfg := s.follower()
		moved := make(chan string, 1)
		cfg.Listener = &logreader.FollowerListener{Reset: func(_ string, p int32, from, to int64) { moved <- fmt.Sprint(p, from, to) }}
		f = openFollower(t, cfg)
		var got []string
		follow(t, f, "what is left", func(rs []events.Record) bool {
			for _, r := range rs {
				got = append(got, string(r.Value))
			}
			return len(got) == 2
		})
		if m := <-moved; m != "1 2 4" || fmt.Sprint(got) != "[4 5]" {
			t.Errorf("moved %q, read %v", m, got)
		}
	})
}

// TestFollowersShareWithoutGaps checks two followers in a group. Each reads a partition from its beginning without a
// gap after every rebalance.
func TestFollowersShareWithoutGaps(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		cfg := s.follower()
		cfg.Start = func(context.Context, string, int32) (int64, bool, error) { return 0, true, nil }
		a := openFollower(t, cfg)
		cl := s.Outside(t)
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				cl.Produce(context.Background(), kafkatest.Input(s.NS.Events(), int32(i%testPartitions), "x"), nil)
			}
		}()
		defer func() { close(stop); <-stopped }()

		type state struct {
			number map[int32]uint64
			next   map[int32]int64
		}
		take := func(f *logreader.Follower, st *state, rs []events.Record) {
			owned := f.Assigned()
			for p, n := range owned {
				if st.number[p] != n {
					st.number[p], st.next[p] = n, 0
				}
			}
			for _, r := range rs {
				if _, ok := owned[r.Partition]; !ok {
					continue
				}
				if r.Offset != st.next[r.Partition] {
					t.Fatalf("partition %d: came %d, want %d", r.Partition, r.Offset, st.next[r.Partition])
				}
				st.next[r.Partition]++
			}
		}
		fresh := func() *state { return &state{map[int32]uint64{}, map[int32]int64{}} }
		sa := fresh()
		follow(t, a, "all", func(rs []events.Record) bool {
			take(a, sa, rs)
			return len(a.Assigned()) == testPartitions && len(rs) > 0
		})
		for range 3 {
			b, sb := openFollower(t, cfg), fresh()
			both := func(what string, ok func() bool) {
				follow(t, a, what, func(rs []events.Record) bool {
					take(a, sa, rs)
					rs, err := b.Poll(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					take(b, sb, rs)
					return ok()
				})
			}
			both("half each", func() bool {
				return len(a.Assigned()) == testPartitions/2 && caughtUp(b, s.NS.Events(), testPartitions/2)
			})
			b.Close()
			follow(t, a, "all again", func(rs []events.Record) bool { take(a, sa, rs); return caughtUp(a, s.NS.Events(), testPartitions) })
		}
	})
}

func TestFollowerWakes(t *testing.T) {
	s := embedded(t)
	cfg := s.follower()
	cfg.FetchMaxWait = 2 * time.Minute
	f := openFollower(t, cfg)
	began := time.Now()
	time.AfterFunc(20*time.Millisecond, f.Wake)
	if _, err := f.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > cfg.FetchMaxWait/2 {
		t.Fatalf("a woken poll took %v", took)
	}
}

// TestFollowersWithoutAGroup checks that each follower without a group reads all partitions from Start on, and reports
// when it has caught up.
func TestFollowersWithoutAGroup(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.Transact(t, 0, kgo.TryCommit, "a", "b", "c") // 0 1 2, marker 3
		cl := s.Outside(t)
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 2, "d"), kafkatest.Input(s.NS.Events(), 2, "e"))
		cfg := s.follower()
		cfg.Group = ""
		if _, err := logreader.OpenFollower(t.Context(), cfg); err == nil {
			t.Error("it opens without a start")
		}
		cfg.Start = func(_ context.Context, _ string, p int32) (int64, bool, error) { return 1, p == 0, nil }
		followers := []*logreader.Follower{openFollower(t, cfg), openFollower(t, cfg)}
		for _, f := range followers {
			got := map[string]bool{}
			follow(t, f, "the end", func(rs []events.Record) bool {
				for _, r := range rs {
					got[string(r.Value)] = true
				}
				return caughtUp(f, s.NS.Events(), testPartitions)
			})
			if fmt.Sprint(got) != "map[b:true c:true d:true e:true]" {
				t.Errorf("read %v", got)
			}
		}
		kafkatest.Submit(t, cl, kafkatest.Input(s.NS.Events(), 3, "later"))
		for _, f := range followers {
			follow(t, f, "what comes later", func(rs []events.Record) bool { return len(rs) > 0 && string(rs[0].Value) == "later" })
		}
		cfg.Start = func(context.Context, string, int32) (int64, bool, error) { return 1000, true, nil }
		f := openFollower(t, cfg)
		for {
			if _, err := f.Poll(t.Context()); err != nil {
				if out, is := errors.AsType[*logreader.OffsetRangeError](err); !is || out.Offset != 1000 {
					t.Errorf("it begins past the end: %v", err)
				}
				break
			}
		}
	})
}

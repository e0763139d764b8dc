package agentsession_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// requests adds an agent's sessions to a kafkatest.Requests.
type requests struct {
	*kafkatest.Requests
	committed chan [2]int64 // partition, offset
}

func newRequests(t *testing.T, b *kafkatest.Broker, partitions int32) *requests {
	t.Helper()
	return &requests{kafkatest.NewRequests(t, b, partitions), make(chan [2]int64, 10_000)}
}

func (r *requests) open(change ...func(*agentsession.Config)) *agentsession.Session {
	r.T.Helper()
	cfg := agentsession.Config{Config: r.Config, Group: r.Group, Topic: r.Topic, SessionTimeout: 6 * time.Second, CommitEvery: 20 * time.Millisecond,
		Listener: agentsession.Listener{Committed: func(p int32, o int64) { r.committed <- [2]int64{int64(p), o} }}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := agentsession.Open(r.Ctx, cfg)
	must(r.T, err)
	r.T.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func (r *requests) poll(s *agentsession.Session, n int) []string {
	r.T.Helper()
	var values []string
	for len(values) < n {
		rs, err := s.Poll(r.Ctx)
		must(r.T, err)
		for _, rec := range rs {
			values = append(values, string(rec.Value))
		}
	}
	return values
}

func (r *requests) awaitCommit(partition, offset int64) {
	r.T.Helper()
	for {
		select {
		case c := <-r.committed:
			if c == [2]int64{partition, offset} {
				return
			}
		case <-r.Ctx.Done():
			r.T.Fatalf("no commit of %d/%d", partition, offset)
		}
	}
}

func numbers(from, to int) []string {
	var s []string
	for i := from; i < to; i++ {
		s = append(s, strconv.Itoa(i))
	}
	return s
}

func TestTheNextOwnerSkipsWhatWasFinishedOutOfOrder(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		r.Write(0, 0, 10)
		first := r.open()
		if got := r.poll(first, 10); !slices.Equal(got, numbers(0, 10)) {
			t.Fatalf("polled %q", got)
		}
		for _, o := range []int64{0, 1, 2, 4, 5, 9, 7} { // still open: 3, 6, 8
			first.Done(0, o)
		}
		r.awaitCommit(0, 3)
		must(t, first.Close(r.Ctx))
		r.Write(0, 10, 11)

		second := r.open()
		if got := r.poll(second, 4); !slices.Equal(got, []string{"3", "6", "8", "10"}) {
			t.Errorf("the next owner got %q", got)
		}
		for _, o := range []int64{10, 3, 6, 8} {
			second.Done(0, o)
		}
		r.awaitCommit(0, 11)
		if held := first.HeldContext(0); !errors.Is(context.Cause(held), agentsession.ErrPartitionLost) {
			t.Error("a closed session still holds the partition")
		}
	})
}

// TestAMovedPartitionIsCommittedFirst checks that a session commits finished requests when a partition is revoked,
// without waiting for the commit interval. The next owner doesn't get them.
func TestAMovedPartitionIsCommittedFirst(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 2)
		r.Write(0, 0, 5)
		r.Write(1, 0, 5)
		never := func(c *agentsession.Config) { c.CommitEvery = time.Hour }
		first := r.open(never)
		r.poll(first, 10)
		for o := range int64(5) {
			first.Done(0, o)
			first.Done(1, o)
		}
		moved := make(chan int32, 2)
		second := r.open(never, func(c *agentsession.Config) {
			c.Listener.Assigned = func(ps []int32) {
				for _, p := range ps {
					moved <- p
				}
			}
		})
		p := <-moved
		r.Write(p, 5, 6)
		if got := r.poll(second, 1); !slices.Equal(got, []string{"5"}) {
			t.Errorf("the next owner got %q, finished before it came", got)
		}
		if held := first.HeldContext(p); !errors.Is(context.Cause(held), agentsession.ErrPartitionLost) {
			t.Error("the first still holds the partition that moved")
		}
		if held := first.HeldContext(1 - p); held.Err() != nil {
			t.Errorf("the first lost the partition that stayed: %v", context.Cause(held))
		}
	})
}

// TestCommitSoon checks that CommitSoon doesn't wait for the commit interval.
func TestCommitSoon(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		r.Write(0, 0, 3)
		s := r.open(func(c *agentsession.Config) { c.CommitEvery = time.Hour })
		r.poll(s, 3)
		s.Done(0, 0)
		s.CommitSoon()
		r.awaitCommit(0, 1)
		s.Done(0, 1)
		s.CommitSoon()
		s.CommitSoon()
		r.awaitCommit(0, 2)
		must(t, s.Close(r.Ctx))
		s.CommitSoon()
	})
}

// TestSessionsReadCommittedRequestsOnly checks that a session doesn't return aborted records, and that its commits pass
// them and markers, so that the group of an idle agent has no lag.
func TestSessionsReadCommittedRequestsOnly(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		tx := b.Client(t, kgo.TransactionalID(string(r.Config.Namespace)+"tx"))
		transact := func(value int, end kgo.TransactionEndTry) {
			must(t, tx.BeginTransaction())
			must(t, tx.ProduceSync(r.Ctx, &kgo.Record{Topic: r.Topic, Value: []byte(strconv.Itoa(value))}).FirstErr())
			must(t, kafka.EndTransaction(r.Ctx, tx, end))
		}
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			transact(i, end)
		}
		s := r.open()
		if got := r.poll(s, 2); !slices.Equal(got, []string{"0", "2"}) {
			t.Errorf("got %q", got)
		}
		polled := make(chan []events.Record, 1)
		go func() {
			var rs []events.Record
			for len(rs) == 0 {
				var err error
				if rs, err = s.Poll(r.Ctx); err != nil {
					t.Error(err)
					break
				}
			}
			polled <- rs
		}()
		s.Done(0, 0)
		s.Done(0, 4)        // 0, its marker, the aborted record, its marker, 2
		r.awaitCommit(0, 6) // with the last marker
		transact(3, kgo.TryAbort)
		r.awaitCommit(0, 8)
		if lag, err := r.lag(); err != nil || lag != 0 {
			t.Errorf("the lag is %d, %v", lag, err)
		}
		transact(4, kgo.TryCommit)
		if got := <-polled; len(got) != 1 || string(got[0].Value) != "4" {
			t.Errorf("got %v", got)
		}
	})
}

// lag returns the distance of the group's commit in partition 0 from the end.
func (r *requests) lag() (int64, error) {
	admin, err := kafkaadmin.Open(r.Config)
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	all, err := admin.GroupLag(r.Ctx, r.Group)
	return all[r.Topic][0], err
}

// crew is a set of group members that process requests concurrently until each request is finished.
type crew struct {
	*requests
	want int
	all  chan struct{}
	lost atomic.Int32

	mu       sync.Mutex
	finished map[string]int
}

// join adds a member and returns when it has a partition.
func (c *crew) join() (leave func()) {
	assigned := make(chan struct{}, 100)
	s := c.open(func(cfg *agentsession.Config) {
		cfg.MaxPollRecords = 20
		cfg.Listener.Assigned = func([]int32) { assigned <- struct{}{} }
	})
	ctx, cancel := context.WithCancel(c.Ctx)
	var wg sync.WaitGroup
	wg.Go(func() { c.work(ctx, s) })
	select {
	case <-assigned:
	case <-c.Ctx.Done():
		c.T.Error("a member got no partition")
	}
	return func() {
		cancel()
		must(c.T, s.Close(c.Ctx))
		wg.Wait()
	}
}

func (c *crew) work(ctx context.Context, s *agentsession.Session) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		rs, err := s.Poll(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.T.Error(err)
			}
			return
		}
		for _, rec := range rs {
			held := s.HeldContext(rec.Partition)
			wg.Go(func() {
				select { // some take longer, so they finish out of order
				case <-time.After(time.Duration(rec.Offset%7) * time.Millisecond):
				case <-held.Done():
				}
				if held.Err() != nil {
					c.lost.Add(1)
					return
				}
				c.done(s, rec)
			})
		}
	}
}

func (c *crew) done(s *agentsession.Session, rec events.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Done(rec.Partition, rec.Offset)
	v := string(rec.Value)
	if c.finished[v]++; c.finished[v] == 1 && len(c.finished) == c.want {
		close(c.all)
	}
}

// TestRebalancesLoseNoRequest checks that each request is finished while members join and leave and process requests
// concurrently, and that a revoked partition ends the context of its work.
func TestRebalancesLoseNoRequest(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		const partitions, each = 4, 248
		c := &crew{requests: newRequests(t, b, partitions), want: partitions * each, all: make(chan struct{}), finished: make(map[string]int)}
		// Each quarter is written under the current membership, while partitions are moving.
		quarter := func(n int) {
			for p := range partitions {
				c.Write(int32(p), p*each+n*each/4, p*each+(n+1)*each/4)
			}
		}
		firstLeaves := c.join()
		quarter(0)
		secondLeaves := c.join()
		quarter(1)
		firstLeaves()
		quarter(2)
		thirdLeaves := c.join()
		quarter(3)
		select {
		case <-c.all:
		case <-c.Ctx.Done():
			c.mu.Lock()
			t.Errorf("only %d of %d requests were finished", len(c.finished), c.want)
			c.mu.Unlock()
		}
		secondLeaves()
		thirdLeaves()
		again := 0
		for _, n := range c.finished {
			again += n - 1
		}
		t.Logf("%d requests, %d finished again, %d abandoned with their partition", c.want, again, c.lost.Load())
	})
}

func TestPausedSessionsPollNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		s := r.open()
		r.Write(0, 0, 1)
		r.poll(s, 1)
		s.Pause()
		s.Pause()
		r.Write(0, 1, 2)
		ctx, cancel := context.WithTimeout(r.Ctx, time.Second)
		defer cancel()
		if rs, err := s.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a paused session polled %v, %v", rs, err)
		}
		s.Resume()
		if got := r.poll(s, 1); got[0] != "1" {
			t.Errorf("got %q", got)
		}
	})
}

func TestTheOlderOfTwoWithOneInstanceIDEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		static := func(c *agentsession.Config) { c.InstanceID = string(r.Config.Namespace) + "one" }
		older := r.open(static)
		r.Write(0, 0, 1)
		r.poll(older, 1)
		r.open(static)
		var err error
		for err == nil {
			_, err = older.Poll(r.Ctx)
		}
		if !errors.Is(err, kerr.FencedInstanceID) {
			t.Errorf("the older one's poll: %v", err)
		}
	})
}

func TestOpenSessionSaysWhatIsMissing(t *testing.T) {
	b := kafkatest.Embedded(t)
	cfg := configOf(t, b)
	_, err := agentsession.Open(bounded(t), agentsession.Config{Config: cfg, Group: "g", Topic: cfg.Namespace.Requests("nobody")})
	if !errors.Is(err, kafka.ErrNoTopic) {
		t.Errorf("got %v", err)
	}
}

// TestAReplyIsNeverWrittenAfterItsTime checks a reply whose deadline passes while the broker is unavailable. It is not
// written later, and doesn't fail replies whose deadline has not passed.
func TestAReplyIsNeverWrittenAfterItsTime(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		g := &kafkatest.Link{}
		s := r.open(func(c *agentsession.Config) { c.Dial = g.Dial })
		replies := r.Config.Namespace.Inbox(events.Replies)
		reply := func(v string) events.Record {
			return events.Record{Topic: replies, Partition: -1, Key: []byte("task"), Value: []byte(v)}
		}
		must(t, s.Send(r.Ctx, reply("before")))
		g.Set(true)
		var wg sync.WaitGroup
		for i := range 20 {
			// The first two replies begin two batches and are in time. Behind them, late ones and ones in time are
			// mixed. The client itself checks only the deadline of the first record in a batch.
			if i < 3 {
				<-time.After(20 * time.Millisecond)
			}
			if i < 2 || i%2 == 0 {
				wg.Go(func() {
					if err := s.Send(r.Ctx, reply(fmt.Sprint("in time ", i))); err != nil {
						t.Errorf("a reply with time left: %v", err)
					}
				})
				continue
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(r.Ctx, time.Duration(50+10*i)*time.Millisecond)
				defer cancel()
				if err := s.Send(ctx, reply("late")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a reply whose time is over: %v", err)
				}
			})
		}
		late := time.Now().Add(300 * time.Millisecond)
		<-time.After(time.Until(late))
		g.Set(false)
		wg.Wait()
		must(t, s.Send(r.Ctx, reply("after")))
		ended, cancel := context.WithCancel(r.Ctx)
		cancel()
		if err := s.Send(ended, reply("late")); !errors.Is(err, context.Canceled) {
			t.Errorf("a reply that began late: %v", err)
		}

		a, err := kafkaadmin.Open(r.Config)
		must(t, err)
		defer a.Close()
		var got []string
		must(t, a.ReadCompacted(r.Ctx, replies, func(rec events.Record) error {
			got = append(got, string(rec.Value))
			return nil
		}))
		if slices.Contains(got, "late") {
			t.Errorf("a late reply was written: %q", got)
		}
		slices.Sort(got)
		if unique := len(slices.Compact(slices.Clone(got))); unique != 13 {
			t.Errorf("%d different replies, want 13: %q", unique, got)
		}
		t.Logf("%d replies written for 13", len(got))
	})
}

package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	testNamespace  = events.Namespace("t.")
	testPartitions = 12
)

var inboxes = testNamespace.InboxTopics()

// fake starts an in-process broker with the inboxes and events.
func fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.SeedTopics(testPartitions, append(testNamespace.InboxTopics(), testNamespace.Events(), testNamespace.Requests("a"))...),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	}, opts...)
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, kafka.Config{Brokers: c.ListenAddrs(), Namespace: testNamespace, ClientID: "test"}
}

func laneConfig(c kafka.Config, owner string) kafka.LaneConfig {
	return kafka.LaneConfig{
		Config: c, Group: testNamespace.SchedulerGroup(), Owner: owner,
		Topics: inboxes, Partitions: testPartitions,
		SessionTimeout: 2 * time.Second, TransactionTimeout: 6 * time.Second, FetchMaxWait: 50 * time.Millisecond,
	}
}

func openLane(t testing.TB, cfg kafka.LaneConfig) *kafka.Lane {
	t.Helper()
	l, err := kafka.OpenLane(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// outside is a client that is no part of what is tested.
func outside(t testing.TB, c kafka.Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func submit(t testing.TB, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func input(topic string, p int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: []byte(value)}
}

// until polls and resumes everything until ok, or fails.
func until(t testing.TB, l *kafka.Lane, what string, ok func(rs []events.Record) bool) {
	t.Helper()
	const longest = 30 * time.Second
	for deadline := time.Now().Add(longest); ; {
		rs, err := l.Poll(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for p := range l.Assigned() {
			l.Resume(p)
		}
		if ok(rs) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v; assigned %v", what, longest, l.Assigned())
		}
	}
}

func untilAssigned(t testing.TB, l *kafka.Lane, n int) {
	t.Helper()
	until(t, l, fmt.Sprintf("%d partitions", n), func([]events.Record) bool { return len(l.Assigned()) == n })
}

// poll waits for records.
func poll(t testing.TB, l *kafka.Lane) (got []events.Record) {
	t.Helper()
	until(t, l, "a record", func(rs []events.Record) bool { got = rs; return len(rs) > 0 })
	return got
}

// reflect is what the test's scheduler decides: one event for each input.
func reflect(rs []events.Record) []events.Record {
	out := make([]events.Record, len(rs))
	for i, r := range rs {
		out[i] = events.Record{
			Topic: testNamespace.Events(), Partition: r.Partition, Key: r.Key,
			Value: fmt.Appendf(nil, "%s/%d/%d", r.Topic, r.Partition, r.Offset),
		}
	}
	return out
}

func commit(t testing.TB, l *kafka.Lane, out []events.Record) {
	t.Helper()
	committed, err := l.Commit(t.Context(), out)
	if err != nil || !committed {
		t.Fatalf("committed %v, %v", committed, err)
	}
}

// reflected counts, from outside, how often each input is in the committed
// events, until at least n are.
func reflected(t testing.TB, c kafka.Config, n int) map[string]int {
	t.Helper()
	cl := outside(t, c, kgo.ConsumeTopics(testNamespace.Events()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	seen := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	quiet := 0
	// A little past the last one, so that a doubled one shows.
	for len(seen) < n || quiet < 3 {
		short, stop := context.WithTimeout(ctx, 150*time.Millisecond)
		fs := cl.PollFetches(short)
		stop()
		if ctx.Err() != nil {
			t.Fatalf("%d of %d inputs in the committed events", len(seen), n)
		}
		if fs.NumRecords() == 0 {
			quiet++
			continue
		}
		quiet = 0
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	return seen
}

func TestLaneCommitsOutputAndPositionTogether(t *testing.T) {
	_, c := fake(t)
	cl := outside(t, c)
	l := openLane(t, laneConfig(c, "one"))
	untilAssigned(t, l, testPartitions)
	submit(t, cl, input(inboxes[3], 4, "a"), input(inboxes[0], 7, "b"))

	var in []events.Record
	until(t, l, "both records", func(rs []events.Record) bool { in = append(in, rs...); return len(in) == 2 })
	out := reflect(in)
	commit(t, l, out)
	for _, r := range out {
		if r.Offset != 0 {
			t.Errorf("output to partition %d has offset %d, want 0", r.Partition, r.Offset)
		}
	}
	l.Close()

	l = openLane(t, laneConfig(c, "one"))
	untilAssigned(t, l, testPartitions)
	submit(t, cl, input(inboxes[3], 4, "c"))
	if rs := poll(t, l); len(rs) != 1 || string(rs[0].Value) != "c" || rs[0].Offset != 1 {
		t.Fatalf("after a restart came %+v", rs)
	}
	commit(t, l, nil)
	if seen := reflected(t, c, 2); len(seen) != 2 {
		t.Fatalf("events: %v", seen)
	}
}

func TestLaneAbortGivesBackWhatWasPolled(t *testing.T) {
	_, c := fake(t)
	l := openLane(t, laneConfig(c, "one"))
	untilAssigned(t, l, testPartitions)
	submit(t, outside(t, c), input(inboxes[3], 4, "a"))
	first := poll(t, l)
	if err := l.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := poll(t, l)
	if len(first) != 1 || len(second) != 1 || first[0].Offset != second[0].Offset {
		t.Fatalf("polled %v, after the abort %v", first, second)
	}
	commit(t, l, reflect(second))
}

func TestLaneCommitWithoutPollPanics(t *testing.T) {
	_, c := fake(t)
	l := openLane(t, laneConfig(c, "one"))
	defer func() {
		if recover() == nil {
			t.Fatal("a transaction that consumed nothing was committed")
		}
	}()
	_, _ = l.Commit(t.Context(), nil)
}

func TestOpenLaneRefusesTopicsThatDiffer(t *testing.T) {
	_, c := fake(t, kfake.SeedTopics(3, "t.odd"))
	cfg := laneConfig(c, "one")
	cfg.Topics = append(slices.Clone(inboxes), "t.odd", "t.missing")
	_, err := kafka.OpenLane(t.Context(), cfg)
	for _, want := range []string{"t.odd has 3 partitions instead of 12", "t.missing"} {
		if err == nil || !contains(err, want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	cfg = laneConfig(c, "")
	cfg.SessionTimeout, cfg.TransactionTimeout = 10*time.Second, 10*time.Second
	if _, err := kafka.OpenLane(t.Context(), cfg); !contains(err, "no owner") || !contains(err, "not shorter") {
		t.Errorf("error %v does not name both faults", err)
	}
}

func contains(err error, s string) bool { return err != nil && strings.Contains(err.Error(), s) }

func TestLanePausesWhatMayNotAct(t *testing.T) {
	_, c := fake(t)
	cl := outside(t, c)
	l := openLane(t, laneConfig(c, "one"))
	for len(l.Assigned()) < testPartitions {
		if rs, err := l.Poll(t.Context()); err != nil || len(rs) > 0 {
			t.Fatal(rs, err)
		}
	}
	for p := range int32(testPartitions) {
		for _, topic := range inboxes {
			submit(t, cl, input(topic, p, "x"))
		}
	}
	quiet := func(what string, allowed func(events.Record) bool) (got []events.Record) {
		t.Helper()
		for range 6 { // longer than a record needs to arrive
			rs, err := l.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if !allowed(r) {
					t.Fatalf("%s: came %s/%d", what, r.Topic, r.Partition)
				}
			}
			got = append(got, rs...)
		}
		return got
	}
	quiet("nothing resumed", func(events.Record) bool { return false })
	l.PauseTopic(inboxes[3])
	l.Resume(5)
	if got := quiet("5 resumed, tasks paused", func(r events.Record) bool { return r.Partition == 5 && r.Topic != inboxes[3] }); len(got) != 3 {
		t.Fatalf("%d records of partition 5, want 3", len(got))
	}
	l.ResumeTopic(inboxes[3])
	l.Resume(6)
	got := quiet("5 and 6 resumed", func(r events.Record) bool { return r.Partition == 6 || r.Partition == 5 && r.Topic == inboxes[3] })
	if len(got) != 5 {
		t.Fatalf("%d records, want the four of 6 and the task of 5", len(got))
	}
	commit(t, l, reflect(got))
	l.Resume(99) // nobody's
}

func TestWakeEndsAPoll(t *testing.T) {
	_, c := fake(t)
	cfg := laneConfig(c, "one")
	cfg.FetchMaxWait = 20 * time.Second
	l := openLane(t, cfg)
	l.Wake() // before the poll: not lost
	begin := time.Now()
	if _, err := l.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, l.Wake)
	if _, err := l.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Fatalf("two woken polls took %v", took)
	}
}

// echo is a scheduler without state: it reflects whatever comes, and opens a
// new lane when the outcome is unknown.
type echo struct {
	cfg  kafka.LaneConfig
	mu   sync.Mutex
	bad  []error
	tx   int
	back int
}

func (e *echo) run(ctx context.Context) {
	for ctx.Err() == nil {
		l, err := kafka.OpenLane(ctx, e.cfg)
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

func (e *echo) loop(ctx context.Context, l *kafka.Lane) error {
	resumed := map[int32]uint64{}
	for {
		rs, err := l.Poll(ctx)
		if err != nil {
			return err
		}
		owned := l.Assigned()
		for p, n := range owned {
			if resumed[p] != n {
				l.Resume(p)
				resumed[p] = n
			}
		}
		if len(rs) == 0 {
			continue
		}
		// A shutdown must not make the outcome unknown, so not ctx.
		committed, err := l.Commit(context.Background(), reflect(rs))
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

// Lanes come and go while 20,000 records pass; each is reflected once.
func TestEachInputIsReflectedOnceUnderRebalances(t *testing.T) {
	const records = 20_000
	_, c := fake(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	lanes := map[string]*echo{}
	start := func(ctx context.Context, owner string) {
		e := &echo{cfg: laneConfig(c, owner)}
		e.cfg.MaxPollRecords = 50
		lanes[owner] = e
		running.Go(func() { e.run(ctx) })
	}
	start(ctx, "a")
	start(ctx, "b")

	cl := outside(t, c)
	produced := make(chan struct{})
	want := map[string]bool{}
	go func() {
		defer close(produced)
		for i := range records {
			r := input(inboxes[i%len(inboxes)], int32(i*7%testPartitions), fmt.Sprint(i))
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			if i%40 == 0 {
				time.Sleep(20 * time.Millisecond) // spread over the rebalances
			}
		}
		_ = cl.Flush(context.Background())
	}()
	for i := 0; ; i++ {
		short, leave := context.WithCancel(ctx)
		start(short, fmt.Sprint("guest", i))
		done := false
		select {
		case <-produced:
			done = true
		case <-time.After(1300 * time.Millisecond):
		}
		leave()
		if done {
			break
		}
	}
	ends, err := endOffsets(t, c, inboxes...)
	if err != nil {
		t.Fatal(err)
	}
	for topic, ps := range ends {
		for p, end := range ps {
			for o := range end {
				want[fmt.Sprintf("%s/%d/%d", topic, p, o)] = true
			}
		}
	}
	if len(want) != records {
		t.Fatalf("%d records in the inboxes", len(want))
	}
	seen := reflected(t, c, records)
	stop()
	running.Wait()
	tx, back := 0, 0
	for owner, e := range lanes {
		for _, err := range e.bad {
			t.Logf("lane %s: %v", owner, err)
		}
		tx, back = tx+e.tx, back+e.back
	}
	t.Logf("%d lanes, %d transactions, %d of them rolled back", len(lanes), tx, back)
	for cause, n := range seen {
		if n != 1 || !want[cause] {
			t.Errorf("input %s is reflected %d times", cause, n)
		}
	}
	if !maps.EqualFunc(want, seen, func(bool, int) bool { return true }) {
		t.Errorf("%d inputs reflected, want %d", len(seen), len(want))
	}
}

func endOffsets(t testing.TB, c kafka.Config, topics ...string) (map[string]map[int32]int64, error) {
	t.Helper()
	r, err := kafka.OpenRestorer(c, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ends := map[string]map[int32]int64{}
	for _, topic := range topics {
		if ends[topic], err = r.EndOffsets(t.Context(), topic); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

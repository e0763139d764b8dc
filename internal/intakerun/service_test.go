package intakerun

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/registry"
)

const foreignPartitions = 4

// site is a namespace without schedulers, and a topic of another application.
type site struct {
	t     *testing.T
	b     *kafkatest.Broker
	cfg   kafka.Config
	admin *kafkaadmin.Admin
	topic string
	write *kafka.Producer
}

func newSite(t *testing.T, b *kafkatest.Broker) *site {
	cfg := kafkatest.ConfigOf(t, b)
	s := &site{t: t, b: b, cfg: cfg, admin: kafkatest.OpenAdmin(t, cfg), topic: "shop." + strconv.Itoa(rand.Int())}
	if _, err := s.admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	b.CreateTopics(t, foreignPartitions, s.topic)
	s.write = kafkatest.OpenProducer(t, cfg)
	return s
}

// apply applies an intake. rest is the end of its YAML.
func (s *site) apply(name, rest string) {
	s.t.Helper()
	p, err := intake.Parse("intake.yaml", fmt.Appendf(nil, "intake: %s\ntopic: %s\n%s", name, s.topic, rest), s.cfg.Namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	d := events.NamedDefinition{Kind: events.IntakeDefinition, Name: name, Body: p.Definition.Canonical()}
	if _, err := registry.ApplyNamed(s.t.Context(), s.cfg, d, nil); err != nil {
		s.t.Fatal(err)
	}
}

// start runs a process with intakes until stop is called.
func (s *site) start(name string, wrap func(Client) Client) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	svc := New(Config{Kafka: s.cfg, Admin: s.admin, Owner: name, Workers: 2, Session: 2 * time.Second, Transaction: 6 * time.Second, FetchMaxWait: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Wrap: wrap, Listener: &Listener{Failed: func(name string, err error) { s.t.Logf("%s: %v", name, err) }}})
	var running sync.WaitGroup
	running.Go(func() {
		if err := svc.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			running.Wait()
		})
	}
	s.t.Cleanup(stop)
	return stop
}

// placing reports the partitions that have a position.
type placing struct {
	Client
	placed chan<- int32
}

func (p placing) PlaceStart(ctx context.Context, partition int32, start schedulerworker.Start) (bool, error) {
	placed, err := p.Client.PlaceStart(ctx, partition, start)
	if err == nil {
		p.placed <- partition
	}
	return placed, err
}

// startPlaced is start, and returns when each partition has a position.
func (s *site) startPlaced(name string) (stop func()) {
	s.t.Helper()
	placed := make(chan int32, 100)
	stop = s.start(name, func(c Client) Client { return placing{c, placed} })
	for seen := map[int32]bool{}; len(seen) < foreignPartitions; {
		seen[<-placed] = true
	}
	return stop
}

// produce writes records with the values, over all partitions.
func (s *site) produce(values ...string) {
	s.t.Helper()
	rs := make([]events.Record, len(values))
	for i, v := range values {
		rs[i] = events.Record{Topic: s.topic, Partition: -1, Key: []byte("k" + strconv.Itoa(i)), Value: []byte(v)}
	}
	if err := s.write.Send(s.t.Context(), rs...); err != nil {
		s.t.Fatal(err)
	}
}

func orders(from, to int) (values []string) {
	for i := from; i < to; i++ {
		values = append(values, fmt.Sprintf(`{"id":"o-%d"}`, i))
	}
	return values
}

// await waits until the inboxes and dead letters have n records, and returns them by topic.
func (s *site) await(n int) map[string][]events.Record {
	s.t.Helper()
	ns := s.cfg.Namespace
	return s.b.AwaitRecords(s.t, n, ns.Inbox(events.Tasks), ns.Inbox(events.Signals), ns.Deadletters())
}

// onceEach checks that all records of the topic led to one result each.
func (s *site) onceEach(got map[string][]events.Record, n int) {
	s.t.Helper()
	seen := map[string]int{}
	for _, rs := range got {
		for i := range rs {
			ref := events.IntakeOf(&rs[i])
			if ref == nil {
				s.t.Fatalf("%s/%d has no place", rs[i].Topic, rs[i].Offset)
			}
			seen[ref.String()]++
		}
	}
	for at, times := range seen {
		if times > 1 {
			s.t.Errorf("%s was taken %d times", at, times)
		}
	}
	if len(seen) != n {
		s.t.Errorf("%d places, want %d", len(seen), n)
	}
}

// unsure is a client whose commits sometimes fail after they were done, as if the coordinator's answer was lost.
type unsure struct {
	Client
	commits *atomic.Int32
}

func (u unsure) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := u.Client.Commit(ctx, out)
	if err == nil && u.commits.Add(1)%3 == 2 {
		return false, fmt.Errorf("the connection was closed")
	}
	return committed, err
}

const submitOrders = "when: \"${ has(value.id) || has(value.bad) }\"\nsubmit: {workflow: order, id: '${ value.id }'}\n"

func TestEachRecordOnce(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		s := newSite(t, b)
		s.apply("orders", submitOrders)
		var commits atomic.Int32
		wrap := func(c Client) Client { return unsure{c, &commits} }
		stop := s.start("a", wrap)
		s.produce(orders(0, 500)...)
		s.start("b", wrap) // a rebalance
		s.produce(orders(500, 1000)...)
		s.produce(`{"bad":1}`, `{"other":1}`, `no JSON`)
		s.await(100)
		stop() // another one
		s.produce(orders(1000, 1500)...)
		got := s.await(1502)
		s.onceEach(got, 1502)
		if n := len(got[s.cfg.Namespace.Inbox(events.Tasks)]); n != 1500 {
			t.Errorf("%d submissions, want 1500", n)
		}
	})
}

func TestStartAndPause(t *testing.T) {
	b := kafkatest.Embedded(t)
	s := newSite(t, b)
	s.produce(orders(0, 10)...)
	s.apply("orders", "start: latest\n"+submitOrders)
	stop := s.startPlaced("a")
	stop()
	s.produce(orders(10, 20)...) // while no process runs
	s.start("b", nil)
	s.onceEach(s.await(10), 10)
	if _, err := registry.PauseNamed(t.Context(), s.cfg, events.IntakeDefinition, "orders", events.By{Who: "ada"}); err != nil {
		t.Fatal(err)
	}
	s.apply("others", "submit: {workflow: order, id: 'other-${ value.id }'}\n") // from the start
	s.await(10 + 20)
	s.produce(orders(20, 30)...)
	s.onceEach(s.await(10+30), 10+30)
	if _, err := registry.ResumeNamed(t.Context(), s.cfg, events.IntakeDefinition, "orders", events.By{}); err != nil {
		t.Fatal(err)
	}
	s.onceEach(s.await(20+30), 20+30)
	v := s.view("orders")
	if len(v.Partitions) != foreignPartitions || v.Fault != "" || v.State != intake.StateRunning {
		t.Errorf("%+v", v)
	}
	for _, p := range v.Partitions {
		if !strings.HasPrefix(p.Worker, "orders.b.") || p.End == nil || p.Position == nil {
			t.Errorf("%+v", p)
		}
	}
}

// TestDefinitionsAreReadToTheirEndFirst checks that nothing runs by an earlier record of an intake while the later one isn't
// read yet: it may have paused or deleted the intake.
func TestDefinitionsAreReadToTheirEndFirst(t *testing.T) {
	s := newSite(t, kafkatest.Embedded(t))
	s.apply("orders", submitOrders)
	s.apply("others", submitOrders)
	ctx, cancel := context.WithCancel(t.Context())
	var first []string
	svc := New(Config{Kafka: s.cfg, Admin: s.admin, Owner: "a", Session: 2 * time.Second, Transaction: 6 * time.Second, Log: slog.New(slog.DiscardHandler),
		Listener: &Listener{Running: func(topics map[string]string) {
			if ctx.Err() == nil {
				first = slices.Sorted(maps.Keys(topics))
			}
			cancel()
		}}})
	if err := svc.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{"orders", "others"}; !slices.Equal(first, want) {
		t.Errorf("at first %q run, want %q", first, want)
	}
}

// view returns the state of an intake.
func (s *site) view(name string) intake.IntakeStatus {
	s.t.Helper()
	list, err := Views(s.t.Context(), s.admin, s.cfg.Namespace)
	i := slices.IndexFunc(list, func(v intake.IntakeStatus) bool { return v.Name == name })
	if err != nil || i < 0 {
		s.t.Fatal(list, err)
	}
	return list[i]
}

func TestRecreatedTopic(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		s := newSite(t, b)
		s.apply("orders", submitOrders)
		stop := s.start("a", nil)
		s.produce(orders(0, 40)...)
		s.await(40)
		stop()
		s.b.DeleteTopic(t, s.topic)
		s.b.CreateTopics(t, foreignPartitions, s.topic)
		s.write = kafkatest.OpenProducer(t, s.cfg)
		s.produce(orders(100, 120)...) // at lower offsets than the positions
		s.start("b", nil)
		s.onceEach(s.await(60), 60)
	})
}

// A topic that is recreated while an intake runs is read from its start, wherever the intake began.
func TestTopicRecreatedWhileItRuns(t *testing.T) {
	s := newSite(t, kafkatest.Embedded(t))
	s.apply("orders", "start: latest\n"+submitOrders)
	s.startPlaced("a")
	s.produce(orders(0, 10)...)
	s.await(10)
	s.b.DeleteTopic(t, s.topic)
	s.b.CreateTopics(t, foreignPartitions, s.topic)
	s.write = kafkatest.OpenProducer(t, s.cfg)
	s.produce(orders(100, 120)...)
	got := s.b.AwaitRecords(t, 30, s.cfg.Namespace.Inbox(events.Tasks))
	s.onceEach(got, 30)
}

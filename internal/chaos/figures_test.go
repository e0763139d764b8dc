package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

const (
	// figureRunnable keeps a scheduler from pausing: all tasks can be active.
	figureRunnable = 1_000_000
)

// figureSystem is a namespace of a broker for measurements: many tasks of an agent that never replies, and as few
// observers as possible.
type figureSystem struct {
	t        *testing.T
	broker   *kafkatest.Broker
	cfg      kafka.Config
	dir      string
	producer *kafka.Producer
	restorer *logreader.Restorer
}

// newFigureSystem creates topics. It applies a workflow with one attempt for each duration in within. Their names are
// "w0", "w1" and so on.
func newFigureSystem(t *testing.T, b *kafkatest.Broker, within ...time.Duration) *figureSystem {
	t.Helper()
	s := &figureSystem{t: t, broker: b, dir: t.TempDir(), cfg: kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test"}}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	admin, err := kafkaadmin.Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: systemPartitions, Agents: map[string]int32{systemAgent: systemPartitions}}); err != nil {
		t.Fatal(err)
	}
	if s.producer, err = kafka.OpenProducer(s.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.producer.Close)
	if s.restorer, err = logreader.OpenRestorer(s.cfg, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.restorer.Close)
	for i, d := range within {
		text := fmt.Sprintf("workflow: w%d\nversion: 1\ncomplete_within: 100h\non_error: hold\nsteps:\n  work: {agent: %s, operation: work, input: \"${ input }\", complete_within: %s, retry: {max_attempts: 1}}\n", i, systemAgent, d)
		def, err := workflow.ParseYAML("figures.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = s.producer.Send(ctx, events.Record{Topic: s.cfg.Namespace.Definitions(), Partition: -1, Key: []byte(def.Key()), Value: def.Stored(),
			Headers: events.CloudHeaders(events.TypeDefinition, string(s.cfg.Namespace)+"workflow", def.Key())})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts a role as a static member with its own data directory.
func (s *figureSystem) start(kind string) *process {
	s.t.Helper()
	return startProcess(s.t, s.dir, s.spec(kind))
}

func (s *figureSystem) spec(kind string) childSpec {
	return childSpec{Kind: kind, Name: kind, Instance: kind, Brokers: s.cfg.Brokers, Namespace: s.cfg.Namespace, DataDir: filepath.Join(s.dir, kind),
		OwnClock: s.broker.Kind == kafkatest.EmbeddedKind, Workers: systemPartitions / 2, MaxRunnable: figureRunnable, AnyNumber: true}
}

// submit sends n tasks of a workflow, evenly over a duration; 0: at once. It returns when all are acknowledged.
func (s *figureSystem) submit(workflow string, n int, over time.Duration) {
	s.t.Helper()
	began, failed := time.Now(), atomic.Pointer[error]{}
	for i := range n {
		if over > 0 {
			time.Sleep(time.Until(began.Add(over * time.Duration(i) / time.Duration(n))))
		}
		in := events.Submission{ID: fmt.Sprintf("%s-%06d", workflow, i), Workflow: workflow, Input: []byte(`{"customer":"c-4711","items":["a","b"],"total":12.50}`)}
		s.producer.SendAsync(context.Background(), in.Record(s.cfg.Namespace, "test"), func(_ events.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), suite.Patience)
	defer cancel()
	if err := s.producer.Flush(ctx); err != nil {
		s.t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		s.t.Fatalf("a submission failed: %v", *err)
	}
}

// arrival is a record and the local time at which it was received.
type arrival struct {
	events.Record
	seen time.Time
}

// follow calls fn with the committed records of a topic from now on, on its own goroutine, until stop is called.
func (s *figureSystem) follow(topic string, fn func(arrival)) (stop func()) {
	s.t.Helper()
	ends, err := s.restorer.EndOffsets(s.t.Context(), topic)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: s.cfg, Group: fmt.Sprintf("%swatch.%d", s.cfg.Namespace, time.Now().UnixNano()), Partitions: systemPartitions,
		Topics: []string{topic}, Start: func(_ context.Context, _ string, p int32) (int64, bool, error) { return ends[p], true, nil }})
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			rs, err := f.Poll(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.t.Errorf("follow %s: %v", topic, err)
				return
			}
			now := time.Now()
			for _, r := range rs {
				fn(arrival{r, now})
			}
		}
	}()
	return func() {
		cancel()
		<-done
		f.Close()
	}
}

// awaitCount waits until n records of a topic were received.
func (s *figureSystem) awaitCount(topic string, n int, act func()) {
	s.t.Helper()
	var seen atomic.Int64
	all := make(chan struct{})
	stop := s.follow(topic, func(arrival) {
		if seen.Add(1) == int64(n) {
			close(all)
		}
	})
	defer stop()
	act()
	select {
	case <-all:
	case <-time.After(suite.Patience):
		s.t.Fatalf("%d of %d records in %s, within %s", seen.Load(), n, topic, suite.Patience)
	}
}

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/workflow"
)

// The system of a zombie's test is small, so that several run in parallel.
const (
	systemPartitions = 4
	systemAgent      = "shop"
	systemWorkflow   = `
workflow: shop
version: 1
complete_within: 2h
on_error: undo
defaults:
  complete_within: 2s
  retry: {max_attempts: 1000, backoff: 50ms, factor: 1.5, max: 500ms}
steps:
  reserve: {agent: shop, operation: reserve, input: "${ input }", undo: {operation: release}}
  charge: {needs: [reserve], agent: shop, operation: charge, input: {fail: 0}, undo: {operation: refund}}
`
	groupInterval = 50 * time.Millisecond // at which a group's members are polled
)

// system is a namespace of a broker, with its roles in separate processes.
type system struct {
	t       *testing.T
	broker  *kafkatest.Broker
	cfg     kafka.Config
	dir     string
	session time.Duration
	txn     time.Duration
	admin   *kafkaadmin.Admin
	service service
	seen    *watch
	load    *slowLoad
	running []*process
}

// newSystem creates topics and applies the workflow. It starts no process.
func newSystem(t *testing.T, b *kafkatest.Broker, session, txn time.Duration) *system {
	t.Helper()
	s := &system{t: t, broker: b, dir: t.TempDir(), session: session, txn: txn,
		cfg: kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test"}}
	s.service = service{filepath.Join(s.dir, "service")}
	if err := os.Mkdir(s.service.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	var err error
	if s.admin, err = kafkaadmin.Open(s.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.admin.Close)
	if _, err := s.admin.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: systemPartitions, Agents: map[string]int32{systemAgent: systemPartitions}}); err != nil {
		t.Fatal(err)
	}
	producer, err := kafka.OpenProducer(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	d, err := workflow.ParseYAML("shop.yaml", []byte(systemWorkflow))
	if err != nil {
		t.Fatal(err)
	}
	err = producer.Send(ctx, events.Record{Topic: s.cfg.Namespace.Definitions(), Partition: -1, Key: []byte(d.Key()), Value: d.Stored(),
		Headers: events.CloudHeaders(events.TypeDefinition, string(s.cfg.Namespace)+"workflow", d.Key())})
	if err != nil {
		t.Fatal(err)
	}
	s.seen = newWatch(t, s.cfg)
	s.load = &slowLoad{ns: s.cfg.Namespace, producer: producer, acked: map[string]time.Time{}}
	return s
}

// spec returns the spec of a child of this system. static makes it a static member.
func (s *system) spec(kind, name string, static bool) childSpec {
	spec := childSpec{Kind: kind, Name: name, Brokers: s.cfg.Brokers, Namespace: s.cfg.Namespace, DataDir: filepath.Join(s.dir, name),
		OwnClock: s.broker.Kind == kafkatest.EmbeddedKind, Session: s.session, Transaction: s.txn, Workers: 1, Agent: systemAgent, Service: s.service.dir}
	if static {
		spec.Instance = name
	}
	return spec
}

func (s *system) start(kind, name string, static bool) *process {
	s.t.Helper()
	return s.startAs(s.spec(kind, name, static))
}

func (s *system) startAs(spec childSpec) *process {
	s.t.Helper()
	p := startProcess(s.t, s.dir, spec)
	s.running = append(s.running, p)
	return p
}

// end kills all processes.
func (s *system) end() {
	for _, p := range s.running {
		p.kill()
	}
	if _, err := s.load.end(); err != nil {
		s.t.Error(err)
	}
}

// group returns the group of a role, and the topic whose partitions the members own.
func (s *system) group(kind string) (group, topic string) {
	ns := s.cfg.Namespace
	switch kind {
	case schedulerChild:
		return ns.SchedulerGroup(), ns.Inbox(events.Tasks)
	case supervisorChild:
		return ns.SupervisorGroup(), ns.Events()
	}
	return ns.AgentGroup(systemAgent), ns.Requests(systemAgent)
}

// owned returns the partitions of each member of a role's group, by client id.
func (s *system) owned(kind string) (state string, of map[string][]int32) {
	s.t.Helper()
	group, topic := s.group(kind)
	g, err := s.admin.DescribeGroup(s.t.Context(), group)
	if err != nil {
		s.t.Fatal(err)
	}
	of = map[string][]int32{}
	for _, m := range g.Members {
		of[m.ClientID] = append(of[m.ClientID], m.Partitions[topic]...)
	}
	return g.State, of
}

// awaitMembers waits until a role's group is stable and each of the members owns a partition. It polls, because a group
// doesn't notify of changes.
func (s *system) awaitMembers(kind string, within time.Duration, names ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(groupInterval) {
		state, of := s.owned(kind)
		total := 0
		ready := state == "Stable" && len(of) == len(names)
		for _, name := range names {
			ready = ready && len(of[name]) > 0
			total += len(of[name])
		}
		if ready && total == systemPartitions {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the group of the %s isn't %q within %s: %s, %v", kind, names, within, state, of)
		}
	}
}

// drain ends the load and waits until all tasks have ended.
func (s *system) drain() {
	s.t.Helper()
	n, err := s.load.end()
	if err != nil {
		s.t.Fatal(err)
	}
	s.seen.await(s.t, "all tasks ended", suite.Patience, func() bool { return len(s.seen.ended) >= n })
}

// slowLoad submits tasks one after another, until it is ended.
type slowLoad struct {
	ns       events.Namespace
	producer *kafka.Producer
	stop     chan struct{}
	done     chan struct{}
	next     int

	mu    sync.Mutex
	acked map[string]time.Time
	err   error
}

// begin submits a task at each interval. The first attempt of every second task fails, so that a supervisor is needed.
func (l *slowLoad) begin(t *testing.T, every time.Duration) {
	l.stop, l.done = make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { _, _ = l.end() }) // errors were reported by an earlier end
	go func() {
		defer close(l.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
				l.submit()
			}
		}
	}()
}

func (l *slowLoad) submit() {
	id := fmt.Sprintf("t-%05d", l.next)
	in := serviceInput{Fail: l.next % 2}
	l.next++
	s := events.Submission{ID: id, Workflow: "shop", Input: in.json()}
	l.producer.SendAsync(context.Background(), s.Record(l.ns, "test"), func(_ events.Record, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil && l.err == nil {
			l.err = err
			return
		}
		l.acked[id] = time.Now()
	})
}

// end stops submitting and returns how many tasks were acknowledged. acked then has them.
func (l *slowLoad) end() (int, error) {
	if l.stop == nil {
		return 0, nil
	}
	select {
	case <-l.done:
	default:
		close(l.stop)
		<-l.done
	}
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	if err := l.producer.Flush(ctx); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked), l.err
}

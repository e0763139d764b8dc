package scheduler

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/listener"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// site is a scheduler process with a cluster and a real store.
type site struct {
	t       *testing.T
	cluster *cluster
	cfg     Config
	catalog *catalog
	clock   *testClock
	agents  map[string]int32
	// leaderless are the partitions without a leader, by agent.
	leaderless map[string][]int32
	committed  []Committed
	mu         sync.Mutex
	failed     []error // errors of workers
}

// catalog holds the definitions that have been read, and those that a read to the end finds.
type catalog struct {
	CompiledDefinitions
	unread []events.Record
	reads  int
	err    error
}

func (c *catalog) ReadToEndNow(context.Context) error {
	c.reads++
	for i := range c.unread {
		c.Apply(&c.unread[i])
	}
	c.unread = nil
	return c.err
}

type testClock struct {
	mu     sync.Mutex
	now    time.Time
	offset time.Duration
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newSite(t *testing.T, partitions int32) *site {
	t.Helper()
	s := &site{t: t, cluster: newCluster(partitions), catalog: &catalog{}, agents: map[string]int32{"inventory": 2, "payments": 2},
		clock: &testClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	store, err := projections.Open("tasks", projections.Identity{ClusterID: "c", Namespace: ns, Partitions: partitions, View: projections.ViewTasks}, projections.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	s.catalog.Rejected = func(key string, err error) { t.Errorf("%s: %v", key, err) }
	s.catalog.unread = []events.Record{definition(t, "w", "inventory"), definition(t, "pay", "payments")}
	if err := s.catalog.ReadToEndNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The timeout is long, so that a worker on a slow machine still decides on all inputs. Tests of slow decisions set
	// the timeout themselves, in a bubble.
	s.cfg = Config{Namespace: ns, Partitions: partitions, Owner: "s", Workers: 1, MaxRunnable: 1000, TransactionTimeout: time.Hour,
		History: s.cluster, Tasks: func(p int32) (Tasks, error) { return store.Tasks(p) }, Catalog: s.catalog, Clock: s.clock,
		RequestTopics: func(context.Context) (map[string]int32, map[string][]int32, error) {
			return maps.Clone(s.agents), maps.Clone(s.leaderless), nil
		},
		Listener: listener.Complete(&Listener{
			Committed: func(c Committed) { s.committed = append(s.committed, c) },
			WorkerFailed: func(_ string, err error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.failed = append(s.failed, err)
			}})}
	s.cfg.token = testToken
	s.cfg.views = newViews(2)
	s.cfg.flushed = &flushedInput{}
	return s
}

// definition returns the record of a workflow with one step.
func definition(t *testing.T, name, agent string) events.Record {
	t.Helper()
	d, err := workflow.New(name, 1).CompleteWithin(time.Minute).AttemptWithin(10 * time.Second).
		Retry(workflow.Retry{MaxAttempts: 3, Backoff: workflow.Duration(time.Second)}).
		Step(workflow.Step{ID: "a", Agent: agent, Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return events.Record{Key: []byte(d.Key()), Value: d.JSON()}
}

// worker returns a worker that a test runs iteration by iteration.
func (s *site) worker(log *fakeLog) *worker {
	s.t.Helper()
	requests := &requestTopics{fetch: s.cfg.RequestTopics}
	if err := requests.readMetadata(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	w := newWorker(&s.cfg, "s/0", log, requests)
	s.t.Cleanup(func() { w.close(func() {}) })
	return w
}

// maxTurns is the most iterations of until.
const maxTurns = 500

// until runs a worker until a condition holds.
func (s *site) until(w *worker, what string, so func() bool) {
	s.t.Helper()
	for range maxTurns {
		if so() {
			return
		}
		if err := w.runOnce(s.t.Context()); err != nil {
			s.t.Fatalf("waiting until %s: %v", what, err)
		}
	}
	s.t.Fatalf("after %d turns it isn't so that %s", maxTurns, what)
}

// drained reports whether all inputs have been consumed.
func (s *site) drained() bool {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for _, topic := range ns.InboxTopics() {
		for p, log := range s.cluster.logs[topic] {
			if s.cluster.committed[topic][p] < int64(len(log)) {
				return false
			}
		}
	}
	return true
}

func (s *site) drain(w *worker) { s.t.Helper(); s.until(w, "all inboxes are consumed", s.drained) }

// submit writes submissions.
func (s *site) submit(workflow string, ids ...string) {
	for _, id := range ids {
		s.cluster.write((&events.Submission{ID: id, Workflow: workflow, Input: []byte("{}")}).Record(ns, "test"))
	}
}

// complete answers all requests that an agent has received so far.
func (s *site) complete(agent string) {
	s.t.Helper()
	for _, r := range s.cluster.all(ns.Requests(agent)) {
		q, err := events.DecodeRequest(&r)
		if err != nil {
			s.t.Fatal(err)
		}
		s.cluster.write((&events.Reply{Task: q.Task, Ref: q.Ref, Token: q.Token, Outcome: events.Completed, Body: []byte("{}")}).Record(ns, "test"))
	}
}

// events returns the types of a task's events, or of the claims if task is empty. It also verifies the whole log.
func (s *site) events(task string) []string {
	s.t.Helper()
	log := verify.NewLog()
	var types []string
	for _, r := range s.cluster.all(ns.Events()) {
		log.Add(&r)
		if string(r.Key) == task {
			ceType, _ := r.Header(events.HeaderType)
			types = append(types, ceType)
		}
	}
	for _, f := range log.Faults {
		s.t.Error(f)
	}
	return types
}

// ofPartition returns an id that belongs to a partition.
func (s *site) ofPartition(p int32, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint(name, "-", i); events.Partition([]byte(id), s.cfg.Partitions) == p {
			return id
		}
	}
}

// headers returns one header of all records of a topic.
func (s *site) headers(topic, name string) []string {
	var values []string
	for _, r := range s.cluster.all(topic) {
		v, _ := r.Header(name)
		values = append(values, v)
	}
	return values
}

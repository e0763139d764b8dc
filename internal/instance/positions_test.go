package instance_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

// positionsLog is a namespace of one partition with a scheduler and a supervisor. A test recreates its topics and
// resets its group.
type positionsLog struct {
	t      *testing.T
	broker *kafkatest.Broker
	cfg    kafka.Config
	admin  *kafkaadmin.Admin
	lines  *lineLog
	dir    string

	mu    sync.Mutex
	found []*events.Event
	more  chan struct{}
}

// lineLog keeps the log lines of a process.
type lineLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lineLog) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func newPositionsLog(t *testing.T, b *kafkatest.Broker) *positionsLog {
	t.Helper()
	l := &positionsLog{t: t, broker: b, lines: &lineLog{}, dir: t.TempDir(), more: make(chan struct{}, 1),
		cfg: kafka.Config{Brokers: b.Addrs, Namespace: b.Namespace(t), ClientID: "test", Dial: b.Dial}}
	var err error
	if l.admin, err = kafkaadmin.Open(l.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.admin.Close)
	l.createTopics()
	d, err := workflow.New("w", 1).CompleteWithin(time.Hour).AttemptWithin(time.Hour).OnError(events.OnErrorHold).
		Step(workflow.Step{ID: "a", Agent: "one", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	brief, err := workflow.New("brief", 1).CompleteWithin(time.Hour).AttemptWithin(time.Second).
		Retry(workflow.Retry{MaxAttempts: 100, Backoff: workflow.Duration(100 * time.Millisecond)}).
		Step(workflow.Step{ID: "a", Agent: "one", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := workflow.New("prompt", 1).CompleteWithin(time.Hour).AttemptWithin(20 * time.Second).
		Step(workflow.Step{ID: "a", Agent: "one", Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*workflow.Definition{d, brief, prompt} {
		b.Produce(t, events.Record{Topic: l.cfg.Namespace.Definitions(), Key: []byte(d.Key()), Value: d.JSON()})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.lines.text.String())
		}
	})
	go l.follow()
	return l
}

func (l *positionsLog) createTopics() {
	l.t.Helper()
	_, err := l.admin.CreateTopics(l.t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 1, Replication: 1, Agents: map[string]int32{"one": 1}})
	if err != nil {
		l.t.Fatal(err)
	}
}

// recreate deletes an inbox and creates it again, as an operator does.
func (l *positionsLog) recreate(topic string) {
	l.t.Helper()
	if err := kafkatest.DeleteTopic(l.broker.Addrs, topic); err != nil {
		l.t.Fatal(err)
	}
	l.createTopics()
}

// follow reads new events.
func (l *positionsLog) follow() {
	tail, err := logreader.OpenTail(l.cfg, l.cfg.Namespace.Events(), map[int32]int64{0: 0})
	if err != nil {
		l.t.Error(err)
		return
	}
	defer tail.Close()
	for {
		rs, err := tail.Poll(l.t.Context())
		if err != nil {
			return // the test ends
		}
		l.mu.Lock()
		for i := range rs {
			e, err := events.DecodeEvent(&rs[i])
			if err != nil {
				l.t.Error(err)
				continue
			}
			l.found = append(l.found, e)
		}
		l.mu.Unlock()
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}

// await waits for an event. It fails the test after a timeout.
func (l *positionsLog) await(what string, is func(e *events.Event) bool) {
	l.t.Helper()
	late := time.After(suite.Patience)
	for {
		if l.count(is) > 0 {
			return
		}
		select {
		case <-l.more:
		case <-late:
			l.t.Fatalf("no event that %s", what)
		}
	}
}

func (l *positionsLog) count(is func(e *events.Event) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.found {
		if is(e) {
			n++
		}
	}
	return n
}

func received(task string) func(*events.Event) bool {
	return func(e *events.Event) bool { return e.Task == task && e.Seq == 1 }
}

func of[F events.Fact](task string) func(*events.Event) bool {
	return func(e *events.Event) bool {
		_, is := e.Fact.(F)
		return is && e.Task == task
	}
}

func (l *positionsLog) submit(workflow string, ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		r := (&events.Submission{ID: id, Workflow: workflow, Input: []byte("{}")}).Record(l.cfg.Namespace, "test")
		r.Partition = 0
		l.broker.Produce(l.t, r)
	}
}

func (l *positionsLog) submitted(workflow string, ids ...string) {
	l.t.Helper()
	l.submit(workflow, ids...)
	for _, id := range ids {
		l.await(id+" is received", received(id))
	}
}

// reply completes the attempt of a task.
func (l *positionsLog) reply(task string) {
	l.t.Helper()
	l.await(task+"'s attempt begins", of[*events.AttemptStarted](task))
	q := l.request(task)
	r := (&events.Reply{Task: task, Ref: q.Ref, Token: q.Token, Outcome: events.Completed, Body: []byte("{}")}).Record(l.cfg.Namespace, "test")
	r.Partition = 0
	l.broker.Produce(l.t, r)
	l.await(task+" is processed", of[*events.TaskProcessed](task))
}

// request reads the request of a task's attempt, because only the request has the token.
func (l *positionsLog) request(task string) *events.Request {
	l.t.Helper()
	tail, err := logreader.OpenTail(l.cfg, l.cfg.Namespace.Requests("one"), map[int32]int64{0: 0})
	if err != nil {
		l.t.Fatal(err)
	}
	defer tail.Close()
	for {
		rs, err := tail.Poll(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		for i := range rs {
			if string(rs[i].Key) != task {
				continue
			}
			q, err := events.DecodeRequest(&rs[i])
			if err != nil {
				l.t.Fatal(err)
			}
			return q
		}
	}
}

func (l *positionsLog) cancel(task, id string) {
	l.t.Helper()
	r := (&events.Control{Task: task, ID: id, Command: events.Cancel, By: events.By{Who: "test", Why: "test", RequestID: id}}).Record(l.cfg.Namespace, "test")
	r.Partition = 0
	l.broker.Produce(l.t, r)
	l.await(task+" is undoing", of[*events.TaskUndoing](task))
}

// expire waits until an attempt of a task has expired.
func (l *positionsLog) expire(task string) {
	l.t.Helper()
	l.await(task+"'s attempt expires", of[*events.AttemptExpired](task))
}

// run starts a scheduler and a supervisor. stop ends them and leaves their groups empty.
func (l *positionsLog) run() (stop func()) {
	l.t.Helper()
	n, err := instance.Open(l.t.Context(), l.cfg, instance.Config{DataDir: l.dir, Metrics: instance.NewMetrics(), Log: slog.New(slog.NewTextHandler(l.lines, nil)), OwnClock: true})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(ctx context.Context) error {
			if err := n.StartSupervisor(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 1})
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		n.Close()
	})
	l.t.Cleanup(stop)
	return stop
}

// TestRecreatedInboxes: each inbox is deleted and created again while a scheduler runs. All records of the new topic
// are processed from the first one on, although their offsets are below those that the log has.
func TestRecreatedInboxes(t *testing.T) {
	suite.NeedAll(t, "kcat")
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newPositionsLog(t, b)
		ns := l.cfg.Namespace
		l.run()
		l.submitted("w", "t-1", "t-2", "t-3", "r-1", "r-2", "c-1", "c-2")
		l.submitted("brief", "x-1")
		l.reply("r-1")
		l.cancel("c-1", "control-1")
		l.expire("x-1")

		l.recreate(ns.Inbox(events.Tasks))
		l.submitted("w", "t-4", "t-5")
		l.submitted("brief", "x-2")
		l.expire("x-2")

		l.recreate(ns.Inbox(events.Replies))
		l.reply("r-2")

		l.recreate(ns.Inbox(events.Controls))
		l.cancel("c-2", "control-2")

		l.recreate(ns.Inbox(events.Recoveries))
		l.submitted("brief", "x-3")
		l.expire("x-3")
		if !l.lines.has("an inbox was deleted and created again; it is read from its start") {
			t.Error("the scheduler doesn't say that an inbox was recreated")
		}
		l.verify()
	})
}

// TestGroupResetByAnOperator: while no scheduler runs and orders wait, the group's offsets are set or deleted. No order
// is skipped, and none is processed twice.
func TestGroupResetByAnOperator(t *testing.T) {
	suite.NeedAll(t, "kcat")
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newPositionsLog(t, b)
		ns := l.cfg.Namespace
		stop := l.run()
		l.broker.Produce(t, events.Record{Topic: ns.Inbox(events.Tasks), Value: []byte("no JSON")})
		l.submitted("w", "before")
		var all []string
		for i, how := range kafkatest.Resets() {
			stop()
			var ids []string
			for n := range 5 {
				ids = append(ids, fmt.Sprintf("o-%d-%d", i, n))
			}
			l.submit("w", ids...)
			b.ResetGroup(t, ns.SchedulerGroup(), how, ns.InboxTopics()...)
			stop = l.run()
			for _, id := range ids {
				l.await(fmt.Sprintf("%s is received after %s", id, how), received(id))
			}
			all = append(all, ids...)
		}
		for _, id := range all {
			if n := l.count(received(id)); n != 1 {
				t.Errorf("%s was received %d times", id, n)
			}
		}
		dead := b.ReadTopic(t, ns.Deadletters())
		if len(dead) != 1 {
			t.Errorf("%d dead letters of one record", len(dead))
		}
		if !l.lines.has("was not committed by a scheduler") {
			t.Error("the scheduler doesn't say that the group's offsets were set by somebody else")
		}
	})
}

// TestAgentOfARecreatedTopic: the topic of an agent's requests is deleted and created again, twice, while the agent
// runs. The agent continues with the new topic on its own. Then partitions are added. No attempt expires in a partition
// that is not read.
func TestAgentOfARecreatedTopic(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newPositionsLog(t, b)
		l.run()
		l.agent()
		n := 0
		works := func(tasks int) {
			t.Helper()
			var ids []string
			for range tasks {
				n++
				ids = append(ids, fmt.Sprintf("a-%d", n))
			}
			l.submit("prompt", ids...)
			for _, id := range ids {
				l.await(id+" is processed", of[*events.TaskProcessed](id))
			}
		}
		works(2)
		topic := l.cfg.Namespace.Requests("one")
		for range 2 {
			l.recreate(topic)
			works(2)
		}
		expired := func(e *events.Event) bool { _, is := e.Fact.(*events.AttemptExpired); return is }
		before := l.count(expired) // requests that were deleted with the topic
		b.AddPartitions(t, 4, topic)
		works(12)
		if got := l.count(expired); got != before {
			t.Errorf("%d attempts expired after partitions were added", got-before)
		}
	})
}

// agent runs agent one, which completes every request.
func (l *positionsLog) agent() {
	l.t.Helper()
	n, err := instance.Open(l.t.Context(), l.cfg, instance.Config{Metrics: instance.NewMetrics(), Log: slog.New(slog.NewTextHandler(l.lines, nil)), OwnClock: true})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(ctx context.Context) error {
			n.StartAgent(ctx, "one", 4, agent.Breaker{}, agent.HandlerFunc(func(context.Context, agent.Request) (any, error) { return struct{}{}, nil }))
			return nil
		})
	}()
	l.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		n.Close()
	})
}

// verify checks the log against its inboxes, as `waybill verify` does.
func (l *positionsLog) verify() {
	l.t.Helper()
	ids, err := l.admin.InboxTopicIDs(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	c := verify.New(verify.Options{Namespace: l.cfg.Namespace, Partitions: 1, Inputs: true, Deadletters: true, TopicIDs: ids})
	for i, topic := range l.cfg.Namespace.InboxTopics() {
		records := l.broker.ReadTopic(l.t, topic)
		if len(records) == 0 {
			continue
		}
		for i := range records {
			c.Input(&records[i])
		}
		c.InputsRead(events.Inbox(i), 0, records[0].Offset, records[len(records)-1].Offset+1)
	}
	records := l.broker.ReadTopic(l.t, l.cfg.Namespace.Events())
	for i := range records {
		c.Event(&records[i])
	}
	if report := c.Finish(time.Now()); report.Broken > 0 || report.Inputs == 0 {
		l.t.Errorf("verify: %s", report)
	}
}

//go:build synctests

package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

const (
	flowWithin = 10 * time.Second // an attempt
	flowTake   = 400 * time.Millisecond
	flowAtOnce = 8 // concurrent calls of the agent
	// flowCapacity is the agent's throughput in tasks per second.
	flowCapacity = int(flowAtOnce * time.Second / flowTake)
	// flowConfigured is the configured limit of outstanding requests. The agent completes as many in 3 s.
	flowConfigured = 3 * flowCapacity
	flowJoins      = 15 * time.Second
	// flowTolerance is how long after complete-by a reply may be written. An agent with a backlog sends at the last
	// moment.
	flowTolerance = 100 * time.Millisecond
	flowGone      = 3 * time.Minute
	flowAwayRate  = 5 // tasks per second meanwhile
	// flowProbes bounds the number of probes until an agent that was unavailable has joined.
	flowProbes = partitions * int((flowGone+2*flowJoins)/flowWithin+1)
)

// noBreaker never opens. Calls without time left would open the circuit, and requests refused by an open circuit say
// nothing about the agent's throughput.
var noBreaker = agent.Breaker{Failures: math.MaxUint32}

// flowRun is a workflow of one step, an agent with a limited throughput, and the figures that are read from the log.
type flowRun struct {
	*simulation
	n        int
	expired  int
	started  int
	most     int            // most requests outstanding at once
	later    int            // the same, after the first requests that timed out have ended
	attempts map[string]int // by task
	capacity map[string]int // the configured capacity
	observe  bool
}

// TestFlow: an agent gets twice its throughput, or is unavailable. Its capacity is configured, or workers observe it.
func TestFlow(t *testing.T) {
	suite.NeedAll(t, "much computing")
	t.Run("overload", func(t *testing.T) { synctest.Test(t, overload) })
	t.Run("away", func(t *testing.T) { synctest.Test(t, away) })
	t.Run("overload observed", func(t *testing.T) { synctest.Test(t, overloadObserved) })
	t.Run("away observed", func(t *testing.T) { synctest.Test(t, awayObserved) })
}

// overload: for a minute twice the agent's throughput is offered, then half of it. No attempt times out, so none is
// repeated. The agent's topic never holds more than its capacity. The backlog drains at the agent's throughput.
func overload(t *testing.T) {
	f := newFlowRun(t)
	f.capacity = map[string]int{agents[0]: flowConfigured}
	f.overload()
	if f.expired > 0 || f.started != f.n {
		t.Errorf("%d tasks took %d attempts, %d of them timed out", f.n, f.started, f.expired)
	}
	if f.most > flowConfigured {
		t.Errorf("%d requests were outstanding, at most %d", f.most, flowConfigured)
	}
	t.Logf("%d tasks, %d attempts timed out, at most %d requests outstanding", f.n, f.expired, f.most)
}

func (f *flowRun) overload() {
	stop := f.start(f.t.Context(), 0)
	time.Sleep(flowJoins)
	f.offer(2*flowCapacity, time.Minute)
	f.offer(flowCapacity/2, time.Minute)
	f.await(time.Minute) // by now half of the minute's surplus is done
	stop()
	f.reckon()
}

// overloadObserved: the agent's capacity isn't configured. The requests sent before its first late replies time out.
// They are about as many as it completes in the time of one attempt, or a few more, because it doesn't reply in order.
// No task uses up its attempts. Afterwards the topic is bounded, and the backlog drains as with a configured limit.
func overloadObserved(t *testing.T) {
	f := newFlowRun(t)
	f.observe = true
	f.overload()
	inTime := flowCapacity * int(flowWithin/time.Second)
	if f.expired > 2*inTime {
		t.Errorf("%d attempts timed out; %d are answered in the time of one", f.expired, inTime)
	}
	if f.later > inTime {
		t.Errorf("%d requests were outstanding later, %d can be answered in time", f.later, inTime)
	}
	f.fewAttempts(4)
	t.Logf("%d tasks, %d attempts timed out, at most %d requests outstanding, %d later", f.n, f.expired, f.most, f.later)
}

// fewAttempts checks that no task had more than most attempts.
func (f *flowRun) fewAttempts(most int) {
	for task, n := range f.attempts {
		if n > most {
			f.t.Errorf("%s took %d attempts", task, n)
		}
	}
}

// away: the agent starts after three minutes. Until then only probes lose attempts, at most two for each task. Then the
// backlog drains soon.
func away(t *testing.T) {
	f := newFlowRun(t)
	f.capacity = map[string]int{agents[0]: flowConfigured}
	f.away()
	// The bound counts the first requests, and a few before the agent counts as silent. Then each partition sends one
	// probe at a time until the agent has joined. The rest are some of the many requests that the agent finds then.
	if bound := 2*flowConfigured + 3*partitions + flowProbes; f.expired > bound {
		t.Errorf("%d attempts timed out; at most %d", f.expired, bound)
	}
	f.fewAttempts(3)
	t.Logf("%d tasks, %d attempts timed out", f.n, f.expired)
}

// awayObserved is away without a configured capacity. Only the requests sent in the time of one attempt are lost in
// addition to the probes. The agent isn't flooded when it starts.
func awayObserved(t *testing.T) {
	f := newFlowRun(t)
	f.observe = true
	f.away()
	if bound := 2*int(flowWithin/time.Second)*flowAwayRate + 3*partitions + flowProbes; f.expired > bound {
		t.Errorf("%d attempts timed out; at most %d", f.expired, bound)
	}
	f.fewAttempts(3)
	t.Logf("%d tasks, %d attempts timed out, at most %d requests outstanding", f.n, f.expired, f.most)
}

func (f *flowRun) away() {
	stop := f.start(f.t.Context(), flowGone+flowJoins)
	time.Sleep(flowJoins)
	f.offer(flowAwayRate, flowGone)
	f.await(flowJoins + 3*flowWithin + time.Duration(f.n/flowCapacity)*time.Second)
	stop()
	f.reckon()
}

func newFlowRun(t *testing.T) *flowRun {
	f := &flowRun{simulation: newSimulation(t, 1), attempts: map[string]int{}}
	f.prepare(t.Context())
	d, err := workflow.New("one", 1).CompleteWithin(time.Hour).AttemptWithin(flowWithin).
		Retry(workflow.Retry{MaxAttempts: 5, Backoff: workflow.Duration(200 * time.Millisecond), Factor: 2, Max: workflow.Duration(30 * time.Second)}).
		Step(workflow.Step{ID: "a", Agent: agents[0], Operation: "do"}).Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.load.producer.Send(t.Context(), definitionRecord(f.ns, d)); err != nil {
		t.Fatal(err)
	}
	return f
}

// start starts a process of each role, and the agent's after a delay.
func (f *flowRun) start(ctx context.Context, away time.Duration) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	ant := role{"agent", nil, func(ctx context.Context, _ *simulation, n *instance.Instance) error {
		n.StartAgent(ctx, agents[0], flowAtOnce, noBreaker, agent.HandlerFunc(func(ctx context.Context, _ agent.Request) (any, error) {
			select {
			case <-time.After(flowTake):
				return "done", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
		return nil
	}}
	scheduler := schedulerRole
	scheduler.start = func(ctx context.Context, _ *simulation, n *instance.Instance) error {
		return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 2, AgentCapacity: f.capacity, ObserveCapacity: f.observe})
	}
	var group sync.WaitGroup
	for i, r := range []role{scheduler, supervisorRole, ant} {
		p := &process{w: f.simulation, name: r.name, role: r, rnd: rand.New(rand.NewPCG(f.seed, uint64(i))), disk: vfs.NewCrashableMem()}
		if r.name == ant.name {
			p.down = time.Now().Add(away)
		}
		f.procs = append(f.procs, p)
		group.Go(func() { p.run(running) })
	}
	return func() {
		cancel()
		for _, p := range f.procs {
			p.mu.Lock()
			p.life.cancel()
			p.mu.Unlock()
		}
		group.Wait()
		for _, p := range f.procs {
			p.until.Wait()
		}
		f.load.producer.Close()
	}
}

// offer submits rate tasks per second for a while.
func (f *flowRun) offer(rate int, during time.Duration) {
	for range rate * int(during/time.Second) {
		s := events.Submission{ID: fmt.Sprintf("task-%d", f.n), Workflow: "one", Input: json.RawMessage("{}"), Priority: f.n % 3}
		f.n++
		f.load.producer.SendAsync(f.t.Context(), s.Record(f.ns, "sim"), func(_ events.Record, err error) {
			if err != nil {
				f.t.Error(err)
			}
		})
		time.Sleep(time.Second / time.Duration(rate))
	}
}

// await waits until every task is processed.
func (f *flowRun) await(bound time.Duration) {
	reader, err := logreader.OpenRestorer(f.config("sim"), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer reader.Close()
	for begin := time.Now(); ; time.Sleep(time.Second) {
		processed := 0
		f.read(f.t.Context(), f.ns.Events(), func(r *events.Record) {
			if ceType, _ := r.Header(events.HeaderType); ceType == (*events.TaskProcessed)(nil).Type() {
				processed++
			}
		})
		if processed == f.n {
			f.t.Logf("drained after %s", time.Since(begin))
			return
		}
		if time.Since(begin) > bound {
			f.t.Errorf("%d of %d tasks are processed after %s", processed, f.n, time.Since(begin))
			return
		}
	}
}

// reckon reads the log and checks it against the guarantees.
func (f *flowRun) reckon() {
	c := verify.New(verify.Options{Namespace: f.ns, Partitions: partitions, Keep: true, Inputs: true, Deadletters: true, Alerts: true, Requests: true, Whole: true,
		ReplyTolerance: flowTolerance})
	ctx := context.WithoutCancel(f.t.Context())
	for _, topic := range f.ns.InboxTopics() {
		f.read(ctx, topic, c.Input)
	}
	var changes []change
	var lost time.Time // the time of the first
	f.read(ctx, f.ns.Events(), func(r *events.Record) {
		e := c.Event(r)
		if e == nil {
			return
		}
		switch e.Fact.(type) {
		case *events.AttemptStarted:
			f.started++
			f.attempts[e.Task]++
			changes = append(changes, change{e.At, 1})
		case *events.AttemptExpired:
			f.expired++
			if lost.IsZero() || e.At.Before(lost) {
				lost = e.At
			}
			changes = append(changes, change{e.At, -1})
		case *events.AttemptCompleted, *events.AttemptFailed, *events.AttemptRejected:
			changes = append(changes, change{e.At, -1})
		}
	})
	f.most, f.later = mostOf(changes, time.Time{}), mostOf(changes, lost.Add(flowWithin+flowWithin/2))
	f.read(ctx, f.ns.Requests(agents[0]), c.Request)
	if report := c.Finish(time.Now()); report.Broken > 0 {
		f.t.Errorf("%s", report)
	}
}

// change is a change of the number of outstanding requests.
type change struct {
	at time.Time
	by int
}

// mostOf returns the largest number of outstanding requests from an instant on.
func mostOf(changes []change, from time.Time) (most int) {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n := 0
	for _, x := range changes {
		if n += x.by; !x.at.Before(from) {
			most = max(most, n)
		}
	}
	return most
}

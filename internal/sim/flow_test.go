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
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/workflow"
)

const (
	flowWithin = 10 * time.Second // an attempt
	flowTake   = 400 * time.Millisecond
	flowAtOnce = 8 // calls of the agent
	// flowCapacity is how many tasks a second the agent can do.
	flowCapacity = int(flowAtOnce * time.Second / flowTake)
	// flowConfigured is what may be outstanding: it is done in three seconds.
	flowConfigured = 3 * flowCapacity
	flowJoins      = 15 * time.Second
	// flowTolerance is how long after complete-by a reply may be written: an agent
	// that is behind sends at the last instant.
	flowTolerance = 100 * time.Millisecond
	flowGone      = 3 * time.Minute
	flowAwayRate  = 5 // tasks a second meanwhile
	// flowProbes is how many probes there may be until an agent that was away is there.
	flowProbes = partitions * int((flowGone+2*flowJoins)/flowWithin+1)
)

// noBreaker never opens: calls that had no time left open a circuit, and what it fails
// at once is not what the agent can do.
var noBreaker = agent.Breaker{Failures: math.MaxUint32}

// flowRun is one workflow of one step, one agent that can do so much, and what the
// log says of it.
type flowRun struct {
	*world
	n        int
	expired  int
	started  int
	most     int            // requests outstanding at once
	later    int            // likewise, once the first that timed out have ended
	attempts map[string]int // by task
	capacity map[string]int // that is configured
	observe  bool
}

// TestFlow: an agent that is offered twice what it can do, and one that is away; with
// a capacity that is configured, and one that workers find out.
func TestFlow(t *testing.T) {
	suite.NeedAll(t, "much computing")
	t.Run("overload", func(t *testing.T) { synctest.Test(t, overload) })
	t.Run("away", func(t *testing.T) { synctest.Test(t, away) })
	t.Run("overload observed", func(t *testing.T) { synctest.Test(t, overloadObserved) })
	t.Run("away observed", func(t *testing.T) { synctest.Test(t, awayObserved) })
}

// overload: for a minute twice of what the agent can do is offered, then half.
// Nothing times out, so nothing is tried again; the agent's topic holds no more than
// its capacity, and the backlog is worked off as fast as the agent can.
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
	f.await(time.Minute) // of a minute's surplus half is done by now
	stop()
	f.reckon()
}

// overloadObserved: nobody has said what the agent can do. What was sent before its
// answers came too late times out, which is as many as are answered in the time of an
// attempt, or a little more, for it doesn't answer in order; no task loses all that it
// has, the topic is bounded from then on, and the backlog is worked off as if the
// bound had been there.
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

// fewAttempts: no task took more than so many.
func (f *flowRun) fewAttempts(most int) {
	for task, n := range f.attempts {
		if n > most {
			f.t.Errorf("%s took %d attempts", task, n)
		}
	}
}

// away: the agent comes after three minutes. Until then only probes lose attempts,
// and no task more than two; then everything is done soon.
func away(t *testing.T) {
	f := newFlowRun(t)
	f.capacity = map[string]int{agents[0]: flowConfigured}
	f.away()
	// The first requests of all, a few before the silence is one, and then in each
	// partition one after another until the agent has joined; and some of the many
	// that it finds then.
	if bound := 2*flowConfigured + 3*partitions + flowProbes; f.expired > bound {
		t.Errorf("%d attempts timed out; at most %d", f.expired, bound)
	}
	f.fewAttempts(3)
	t.Logf("%d tasks, %d attempts timed out", f.n, f.expired)
}

// awayObserved is the same without a capacity. Only what is sent in the time of one
// attempt is lost beside the probes, and the agent isn't flooded when it comes.
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
	f := &flowRun{world: newWorld(t, 1), attempts: map[string]int{}}
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

// start starts a process of each role, the agent's after a while.
func (f *flowRun) start(ctx context.Context, away time.Duration) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	ant := role{"agent", nil, func(ctx context.Context, _ *world, n *instance.Instance) error {
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
	scheduler.start = func(ctx context.Context, _ *world, n *instance.Instance) error {
		return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 2, AgentCapacity: f.capacity, ObserveCapacity: f.observe})
	}
	var group sync.WaitGroup
	for i, r := range []role{scheduler, supervisorRole, ant} {
		p := &process{w: f.world, name: r.name, role: r, rnd: rand.New(rand.NewPCG(f.seed, uint64(i))), disk: vfs.NewCrashableMem()}
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

// offer submits so many tasks a second for a while.
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
	reader, err := kafka.OpenRestorer(f.config("sim"), nil)
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

// reckon reads the log, and holds it against the promises.
func (f *flowRun) reckon() {
	c := verify.New(verify.Options{Namespace: f.ns, Partitions: partitions, Keep: true, Inputs: true, Deadletters: true, Alerts: true, Requests: true, Whole: true,
		ReplyTolerance: flowTolerance})
	ctx := context.WithoutCancel(f.t.Context())
	for _, topic := range f.ns.InboxTopics() {
		f.read(ctx, topic, c.Input)
	}
	var changes []change
	var lost time.Time // the first
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

// change is one of the number of requests outstanding.
type change struct {
	at time.Time
	by int
}

// mostOf is the most that there were at once, from an instant on.
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

package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/congestion"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
	"github.com/waybill-run/waybill/internal/verify"
)

const (
	flowGraphs        = 500
	flowGraphsQuick   = 30
	graphsPerScenario = 10 // graphs per scenario
	flowMoves         = 60
	flowPartitions    = 2
)

// TestFlowOfRandomGraphs runs tasks of random graphs against one worker. Its agents have few slots, fail, recover and
// reply late. Its transactions are rolled back, and its partitions are reassigned. After each move the test checks
// three invariants. The worker's flow control equals what the tasks imply. No agent has more requests than its limit.
// Every queued step will be started by some input. At the end every task has ended or is held, and the log keeps all
// promises.
func TestFlowOfRandomGraphs(t *testing.T) {
	graphs := flowGraphs
	if !suite.All(t) || raced {
		graphs = flowGraphsQuick
	}
	seed := uint64(firstSeed)
	if *seedFlag != 0 {
		seed, graphs = *seedFlag, graphsPerScenario
	}
	counts := map[string]int{}
	for n := 0; n < graphs && !t.Failed(); n += graphsPerScenario {
		w := newFlowScenario(t, seed+uint64(n/graphsPerScenario))
		w.play()
		for what, k := range w.counts {
			counts[what] += k
		}
	}
	for _, what := range []string{"queued", "probes", "refused retries", "rolled back", "restored", "stale replies", "observed bounds", "other flags", "inherited", "checks", "topics that came", "ended processed", "ended undone"} {
		if counts[what] == 0 && graphs == flowGraphs {
			t.Errorf("no scenario had any %s: %v", what, counts)
		}
	}
	tally.Add(t, "random graphs that flow through a worker", graphs)
	t.Logf("%v", counts)
}

// flowScenario is a worker, its agents and its supervisor.
type flowScenario struct {
	dice
	*site
	seed   uint64
	worker *worker
	log    *fakeLog
	counts map[string]int
	tasks  []string
	states map[string]*events.Task
	timers map[string]*events.Timers
	asked  map[string]int // number of recoveries that were requested, by task and timer
	again  map[string]time.Time
	seen   map[int32]int
	taken  map[string]map[int32]int
	open   map[string][]*events.Request // unanswered requests, by agent
	dead   map[string]bool
	old    []*events.Reply
	n      int
	// inherited is the number of unslotted steps at the start of an assignment, by its generation.
	inherited map[uint64]int
	// found is the number of requests that were outstanding at the start of an assignment, by agent and generation. It
	// may exceed the capacity.
	found map[runName]int
}

func newFlowScenario(t *testing.T, seed uint64) *flowScenario {
	w := &flowScenario{dice: newDice(seed), site: newSite(t, flowPartitions), seed: seed, counts: map[string]int{}, states: map[string]*events.Task{},
		timers: map[string]*events.Timers{}, asked: map[string]int{}, again: map[string]time.Time{}, seen: map[int32]int{},
		taken: map[string]map[int32]int{}, inherited: map[uint64]int{}, found: map[runName]int{}, open: map[string][]*events.Request{}, dead: map[string]bool{}}
	for _, a := range agents {
		w.agents[a] = 2
		w.taken[a] = map[int32]int{}
	}
	w.cfg.Capacity = w.drawCapacity()
	for i := range graphsPerScenario {
		g := drawGraph(w.dice, w.oneIn(6))
		if d := newDice(seed ^ repeatSeed + uint64(i)); d.coin() {
			g.repeat(d, false)
		}
		if d := newDice(seed ^ checkSeed + uint64(i)); !d.oneIn(4) {
			g.check(d)
		}
		d, err := g.build(1)
		if err != nil {
			t.Fatal(err)
		}
		d.Name = fmt.Sprint("w", i)
		w.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
	}
	w.log = w.cluster.join(0, 1)
	w.worker = w.site.worker(w.log)
	return w
}

// drawCapacity draws the capacity flags of a process.
func (w *flowScenario) drawCapacity() Capacity {
	c := Capacity{Agents: map[string]int{}, Observe: w.coin()}
	for _, a := range agents {
		if !w.oneIn(4) {
			c.Agents[a] = w.between(1, 8)
		}
	}
	return c
}

func (w *flowScenario) play() {
	for range flowMoves {
		w.move()
		w.step()
	}
	clear(w.dead)
	w.log.end = nil
	for _, a := range agents {
		w.agents[a] = 2
	}
	for range maxSweeps {
		if w.settled() {
			break
		}
		w.answerAll()
		w.step()
		if w.busy() {
			continue
		}
		w.jump()
		w.sweep()
		w.step()
	}
	for _, id := range w.tasks {
		t := w.states[id]
		if t == nil || !t.State.Terminal() && t.State != events.StateError {
			w.t.Fatalf("seed %d: task %s hasn't ended: %+v; flow %+v", w.seed, id, t, w.worker.agentFlows())
		}
		w.counts["ended "+string(t.State)]++
	}
	w.verified()
	w.worker.close(func() {})
}

func (w *flowScenario) move() {
	switch n := w.IntN(24); {
	case n < 5:
		for range w.between(1, 6) {
			w.submitOne()
		}
	case n < 10:
		w.answer()
	case n < 13:
		w.sweep()
	case n < 15:
		w.clock.pass(w.span(10*time.Millisecond, 10*time.Second))
	case n < 16:
		w.jump()
	case n < 17:
		a := pick(w.dice, agents)
		w.dead[a] = !w.dead[a]
	case n < 18:
		if len(w.old) > 0 {
			w.counts["stale replies"]++
			w.cluster.write(pick(w.dice, w.old).Record(ns, "test"))
		}
	case n < 19 && len(w.tasks) > 0:
		w.command()
	default:
		w.harm()
	}
}

// harm injects one fault: it deletes or recreates an agent's topic, rolls back the next transactions, reassigns a
// partition, or moves all partitions to a process with another capacity.
func (w *flowScenario) harm() {
	switch {
	case w.oneIn(4):
		a := pick(w.dice, agents)
		if _, there := w.agents[a]; there {
			delete(w.agents, a)
		} else {
			w.agents[a] = 2
			w.counts["topics that came"]++
		}
		if w.coin() { // otherwise an attempt detects it
			if err := w.worker.requests.readMetadata(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
		}
		return
	case w.oneIn(3):
		w.counts["other flags"]++
		if w.cfg.Capacity = (Capacity{}); !w.oneIn(3) {
			w.cfg.Capacity = w.drawCapacity()
		}
		for p := range int32(flowPartitions) {
			w.log.assign(p)
		}
		return
	case w.coin():
		w.counts["restored"]++
		w.log.assign(int32(w.IntN(flowPartitions)))
		return
	}
	rolledBack := w.between(1, 3)
	w.log.end = func(func()) (bool, bool, error) {
		if rolledBack--; rolledBack < 0 {
			return false, false, nil
		}
		w.counts["rolled back"]++
		return false, true, nil
	}
}

func (w *flowScenario) submitOne() {
	w.n++
	id := fmt.Sprint("t", w.n)
	w.tasks = append(w.tasks, id)
	s := &events.Submission{ID: id, Workflow: fmt.Sprint("w", w.IntN(graphsPerScenario)), Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.IntN(5))), Priority: w.IntN(3)}
	w.cluster.write(s.Record(ns, "test"))
}

func (w *flowScenario) command() {
	for range w.between(1, 3) {
		x := &events.Control{Task: pick(w.dice, w.tasks), ID: fmt.Sprint("x", w.IntN(1<<30)), Command: pick(w.dice, []events.Command{events.Cancel, events.UndoTask, events.Resubmit, events.Resubmit, events.Release, events.Release})}
		x.By = events.By{Who: "op", RequestID: x.ID}
		if t := w.states[x.Task]; t != nil && x.Command == events.Release {
			x.Step, x.As, x.Output = w.stepOf(t), pick(w.dice, []events.StepState{events.StepCompleted, events.StepCompleted, events.StepUndone}), json.RawMessage("1")
		}
		x.Keep = x.Command == events.Cancel && w.coin()
		w.cluster.write(x.Record(ns, "test"))
	}
}

// stepOf returns the id of a step, preferably one that can be released.
func (w *flowScenario) stepOf(t *events.Task) string {
	of := w.Perm(len(t.Steps))
	for _, i := range of {
		if s := t.Steps[i].State; s == events.StepError || s == events.StepFailed || s == events.StepCancelled {
			return t.Plan.Steps[i].ID
		}
	}
	return t.Plan.Steps[of[0]].ID
}

// step runs the worker, follows its output and checks everything.
func (w *flowScenario) step() {
	w.until(w.worker, "the partitions are there", func() bool {
		for p, generation := range w.log.Assigned() {
			if x := w.worker.partitions[p]; x == nil || !x.ready() || x.generation != generation {
				return false
			}
		}
		return true
	})
	w.drain(w.worker)
	w.follow()
	w.check()
}

// follow reads the new events and requests.
func (w *flowScenario) follow() {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	for p, log := range w.cluster.logs[ns.Events()] {
		for ; w.seen[p] < len(log); w.seen[p]++ {
			w.followOne(&log[w.seen[p]])
		}
	}
	for _, a := range agents {
		for p, log := range w.cluster.logs[ns.Requests(a)] {
			for ; w.taken[a][p] < len(log); w.taken[a][p]++ {
				q, err := events.DecodeRequest(&log[w.taken[a][p]])
				if err != nil {
					w.t.Fatal(err)
				}
				w.open[a] = append(w.open[a], q)
			}
		}
	}
}

func (w *flowScenario) followOne(r *events.Record) {
	e, err := events.DecodeEvent(r)
	if err != nil {
		w.t.Fatal(err)
	}
	if e.Task == "" {
		return
	}
	ceType, _ := r.Header(events.HeaderType)
	if w.states[e.Task], err = events.Evolve(w.states[e.Task], e, events.Hash(ceType, r.Value)); err != nil {
		w.t.Fatal(err)
	}
	if w.timers[e.Task] == nil {
		w.timers[e.Task] = &events.Timers{}
	}
	w.timers[e.Task].Evolve(e)
	if e.Queued {
		w.counts["queued"]++
	}
	if f, ok := e.Fact.(*events.AttemptStarted); ok && w.worker.health.isSilent(f.Agent) {
		w.counts["probes"]++
	}
}

// answer lets live agents answer some of their requests.
func (w *flowScenario) answer() {
	for _, a := range agents {
		for range w.IntN(4) {
			if len(w.open[a]) > 0 && !w.dead[a] {
				q := w.open[a][0]
				w.open[a] = w.open[a][1:]
				w.reply(q, w.IntN(8))
			}
		}
	}
}

func (w *flowScenario) answerAll() {
	for _, a := range agents {
		for _, q := range w.open[a] {
			w.reply(q, 0)
		}
		w.open[a] = nil
	}
}

func (w *flowScenario) reply(q *events.Request, luck int) {
	if !w.clock.Now().Before(q.CompleteBy) {
		return // an agent drops a late request
	}
	r := answerTo(q, events.Completed, events.EffectNone, `{"ref":1}`)
	if q.Ref.Kind == events.Check {
		w.counts["checks"]++
		r.Body = json.RawMessage(pick(w.dice, checkAnswers))
	}
	switch luck {
	case 1:
		if r = answerTo(q, events.Failed, events.EffectUnknown, `{"code":"busy"}`); w.oneIn(3) {
			r = deferredTo(q)
		}
	case 2:
		if w.oneIn(4) {
			r = answerTo(q, events.Rejected, events.EffectNone, `{"code":"no"}`)
		}
	case 3:
		return // the reply is lost
	}
	w.old = append(w.old, r)
	for n := 0; n == 0 || luck == 4 && n == 1; n++ { // one of them is written twice
		w.cluster.write(r.Record(ns, "test"))
	}
}

// checkAnswers are answers to checks. The last one says nothing.
var checkAnswers = []string{`{"outcome":"completed","output":{"ref":2}}`, `{"outcome":"none"}`, `{"outcome":"unknown"}`, `{"outcome":"perhaps"}`}

// jump advances the time to the next timer.
func (w *flowScenario) jump() {
	var next time.Time
	for id, ts := range w.timers {
		for _, a := range ts.Armed {
			at := a.Timer.Due
			if again := w.again[timerName(id, a)]; again.After(at) {
				at = again
			}
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	if d := next.Sub(w.clock.Now()); !next.IsZero() && d > 0 {
		w.clock.pass(d)
	}
}

func timerName(task string, a events.Armed) string { return fmt.Sprint(task, "/", a.Timer.Seq) }

// sweep simulates the supervisor. It repeats each request after 1 s, doubling to 30 s.
func (w *flowScenario) sweep() {
	now := events.Millis(w.clock.Now())
	for _, id := range slices.Sorted(maps.Keys(w.timers)) {
		for _, a := range w.timers[id].Armed {
			name := timerName(id, a)
			if a.Timer.Due.After(now) || w.again[name].After(now) {
				continue
			}
			w.again[name] = now.Add(min(30*time.Second, time.Second<<min(w.asked[name], 5)))
			w.asked[name]++
			r := a.Recovery(id, a.Policy.Next(id, a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now))
			w.cluster.write(r.Record(ns, "supervisor", events.Partition([]byte(id), flowPartitions)))
		}
	}
}

// busy reports whether an agent has requests to answer.
func (w *flowScenario) busy() bool {
	return slices.ContainsFunc(agents, func(a string) bool { return len(w.open[a]) > 0 })
}

func (w *flowScenario) settled() bool {
	for _, id := range w.tasks {
		if t := w.states[id]; t == nil || !t.State.Terminal() && t.State != events.StateError {
			return false
		}
	}
	return true
}

// check compares the worker's flow control with its tasks.
func (w *flowScenario) check() {
	for _, c := range w.committed {
		w.counts["refused retries"] += c.Ignored[IgnoredQueued]
	}
	w.committed = nil
	now := w.worker.cfg.Clock.Now()
	for id, p := range w.worker.partitions {
		w.checkUncounted(p, now)
		fresh := newFlow(w.cfg.Capacity, id, flowPartitions)
		over := map[string]bool{} // tasks whose complete-by has passed: none of their steps start
		near := map[string]int{}  // number of runs that a supervisor requests soon, by agent
		if fresh == nil {
			continue
		}
		p.tasks.EachOpen(func(t *events.Task) {
			fresh.refreshTask(t, now, true)
			eachSpot(t, now, func(s *agentRun) {
				if s.state == runBackingOff && !s.due.After(now.Add(probePause)) || s.state == runQueued && s.attempt > 0 {
					near[s.agent]++
				}
			})
			over[t.ID] = !p.tasks.State().At.Before(t.CompleteBy)
		})
		for _, a := range p.flow.order {
			if a.capacity == 0 && p.flow.slots(a) < congestion.Unlimited {
				w.counts["observed bounds"]++
			}
			w.checkAgent(a, fresh.agent(a.name), over, now)
			w.checkWaits(p.generation, p.flow, a, near[a.name])
		}
	}
}

// checkUncounted checks that no step waits for an agent without a limit. Steps that an earlier owner queued may wait
// until the next input.
func (w *flowScenario) checkUncounted(p *partition, now time.Time) {
	left := map[unslottedStep]bool{}
	for _, x := range p.unslottedSteps {
		left[x] = true
	}
	if _, seen := w.inherited[p.generation]; !seen {
		w.inherited[p.generation] = len(left)
		w.counts["inherited"] += len(left)
	}
	if first := w.inherited[p.generation]; p.claimed && len(left) > max(0, first-startsPerInputMax) {
		w.t.Fatalf("seed %d: of %d steps that were inherited %d wait after an input", w.seed, first, len(left))
	}
	p.tasks.EachOpen(func(t *events.Task) {
		for _, x := range p.flow.unslotted(nil, t, now) {
			if !left[x] && p.tasks.State().At.Before(t.CompleteBy) {
				w.t.Fatalf("seed %d: step %d of %s waits, and nothing will ever come", w.seed, x.step, t.ID)
			}
		}
	})
}

func (w *flowScenario) checkAgent(a, fresh *agentFlow, over map[string]bool, now time.Time) {
	if a.outstanding != fresh.outstanding {
		w.t.Fatalf("seed %d: %s has %d outstanding, by the tasks %d", w.seed, a.name, a.outstanding, fresh.outstanding)
	}
	name := func(p *agentRun) string { return fmt.Sprint(p.task, "/", p.step, "/", p.kind) }
	live, known := map[string]bool{}, map[string]bool{}
	for _, p := range a.queue {
		live[name(p)] = true
	}
	for _, p := range fresh.queue {
		known[name(p)] = true
		if waits := p.attempt == 0; waits && !live[name(p)] && !over[p.task] {
			w.t.Fatalf("seed %d: %s waits for %s, and isn't in its queue", w.seed, name(p), a.name)
		}
	}
	for n := range live {
		if !known[n] {
			w.t.Fatalf("seed %d: %s is in the queue of %s, and doesn't wait", w.seed, n, a.name)
		}
	}
}

// eachSpot calls fn for each run of a task.
func eachSpot(t *events.Task, now time.Time, fn func(*agentRun)) {
	for i := range t.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			if s, is := agentRunOf(t, i, k, now); is {
				fn(&s)
			}
		}
	}
}

// checkWaits checks that the capacity is kept, and that queued steps will be started by a later input.
func (w *flowScenario) checkWaits(generation uint64, f *flow, a *agentFlow, timers int) {
	do := 0
	for _, p := range f.runs {
		if p.agent == a.name && p.state == runOutstanding && p.kind == events.Do {
			do++
		}
	}
	key := runName{a.name, int(generation)}
	if _, seen := w.found[key]; !seen {
		w.found[key] = do
	}
	if most := max(a.capacity+probeSlots, w.found[key]); a.capacity > 0 && do > most {
		w.t.Fatalf("seed %d: %s has %d requests outstanding; at most %d", w.seed, a.name, do, most)
	}
	if f.slots(a) < congestion.SlotsMin {
		w.t.Fatalf("seed %d: %s may have %d requests", w.seed, a.name, f.slots(a))
	}
	if len(a.queue) > 0 && a.outstanding+timers == 0 {
		w.t.Fatalf("seed %d: %d steps wait for %s, and nothing will ever come", w.seed, len(a.queue), a.name)
	}
}

// verified checks all written records against the promises.
func (w *flowScenario) verified() {
	c := verify.New(verify.Options{Namespace: ns, Partitions: flowPartitions, Keep: true, Inputs: true, Deadletters: true, Alerts: true, Requests: true,
		Whole: true, ReplyTolerance: math.MaxInt64}) // old replies may be repeated at any time
	feed := func(topic string, fn func(*events.Record)) {
		for _, r := range w.cluster.all(topic) {
			fn(&r)
		}
	}
	for _, topic := range ns.InboxTopics() {
		feed(topic, c.Input)
	}
	feed(ns.Events(), func(r *events.Record) { c.Event(r) })
	for _, a := range agents {
		feed(ns.Requests(a), c.Request)
	}
	feed(ns.Deadletters(), c.Deadletter)
	feed(ns.Alerts(), c.Alert)
	if r := c.Finish(w.clock.Now()); r.Broken > 0 {
		w.t.Fatalf("seed %d: %s", w.seed, r)
	}
}

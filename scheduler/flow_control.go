package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/congestion"
	"github.com/waybill-run/waybill/workflow"
)

const (
	// probePause prevents a second probe. A probe that timed out blocks others if its retry is due within this time.
	probePause = 2 * time.Second
	// startsPerInputMax bounds how many queued steps one input starts.
	startsPerInputMax = 64
	// probeSlots are extra slots for a probe, since requests from before the silence may occupy all others.
	probeSlots = 1
	// slotsNone means that no request may be sent. It is lower than any number of slots that one decision can free.
	slotsNone = -1 << 20
)

// Capacity limits the requests that agents may have outstanding.
type Capacity struct {
	// Agents is the configured limit by agent. It applies to all partitions together; each partition has at least one
	// slot.
	Agents map[string]int
	// Observe makes a worker measure a window (package congestion) for each agent that isn't in Agents. Otherwise such
	// an agent has no limit.
	Observe bool
}

// flow is the flow control of a partition. It counts the requests that are outstanding at each agent, and queues the
// steps that wait for a slot. It is derived from the tasks (update), so a restore rebuilds it, and a rollback can
// recompute it. It reads no clock. A nil flow delays nothing, since no agent has a limit.
type flow struct {
	capacity   Capacity
	number     int // of the partition
	partitions int
	health     *agentHealth // the worker's

	agents map[string]*agentFlow
	order  []*agentFlow // sorted by name
	runs   map[runName]*agentRun
	queued int
}

// agentFlow is the flow of one partition to one agent.
type agentFlow struct {
	name        string
	capacity    int // the partition's share of the configured capacity; 0: not configured
	outstanding int
	queue       queue
	waiting     map[string]int // queued steps, by workflow
	// probe is the last request that was sent while the agent was silent. Requests from before the silence don't show
	// whether the agent has recovered.
	probe *agentRun
	// lastTimedOut is the run that timed out last. While its timer is due soon, no other run probes a silent agent,
	// since the recovery of that timer is the next input.
	lastTimedOut *agentRun
}

// newFlow returns a flow without tasks, or nil if no agent has a limit. agentHealth.addPartition replaces its health by
// the worker's.
func newFlow(capacity Capacity, number, partitions int32) *flow {
	if len(capacity.Agents) == 0 && !capacity.Observe {
		return nil
	}
	return &flow{capacity: capacity, number: int(number), partitions: int(partitions), health: newAgentHealth(),
		agents: map[string]*agentFlow{}, runs: map[runName]*agentRun{}}
}

// agent returns the flow to an agent. It is nil if the agent has no limit and receives every request at once.
func (f *flow) agent(name string) *agentFlow {
	if a := f.agents[name]; a != nil {
		return a
	}
	capacity := f.capacity.Agents[name]
	if capacity == 0 && !f.capacity.Observe {
		return nil
	}
	a := &agentFlow{name: name, waiting: map[string]int{}}
	if capacity > 0 {
		a.capacity = f.share(capacity)
	}
	f.agents[name] = a
	f.order = append(f.order, a)
	slices.SortFunc(f.order, func(a, b *agentFlow) int { return cmp.Compare(a.name, b.name) })
	return a
}

// share returns the partition's share of an agent's capacity, at least one. A partition without a slot could never
// start a step: a transaction writes only to partitions whose inputs it consumes, so only a reply in this partition can
// start its next step.
func (f *flow) share(capacity int) int {
	n := capacity / f.partitions
	if f.number < capacity%f.partitions {
		n++
	}
	return max(n, congestion.SlotsMin)
}

// slots returns how many requests of this partition may be outstanding at an agent.
func (f *flow) slots(a *agentFlow) int {
	if a.capacity > 0 {
		return a.capacity
	}
	return f.health.windowShare(a.name)
}

// freeSlots returns how many more requests may be sent to an agent that isn't silent. These are the partition's own
// free slots, or the part of the window that other partitions don't use.
func (f *flow) freeSlots(a *agentFlow) int {
	n := f.slots(a) - a.outstanding
	if a.capacity == 0 && n <= 0 {
		n = f.health.unusedWindow(a.name)
	}
	return n
}

// timerIsNear reports whether the recovery of lastTimedOut is due within probePause and belongs to another task.
func (a *agentFlow) timerIsNear(now time.Time, task string) bool {
	p := a.lastTimedOut
	return p != nil && p.state == runBackingOff && p.task != task && !p.due.After(now.Add(probePause))
}

// isProbing reports whether a probe is outstanding.
func (a *agentFlow) isProbing() bool { return a.probe != nil && a.probe.state == runOutstanding }

// Free implements Slots. Queued steps have precedence.
func (f *flow) Free(agent, task string, now time.Time) int {
	a := f.agent(agent)
	if a == nil {
		return congestion.Unlimited
	}
	switch {
	case len(a.queue) > 0:
		return slotsNone
	case !f.health.isSilent(agent):
		return f.freeSlots(a)
	case a.timerIsNear(now, task), a.isProbing():
		return slotsNone
	}
	return min(1, f.slots(a)+probeSlots-a.outstanding)
}

// Waits implements Slots.
func (f *flow) Waits(t *events.Task, step int, k events.Kind) bool {
	p := f.runs[nameOf(t, step, k)]
	return p != nil && p.state == runQueued
}

// nextToStart returns the queued run to start now, or nil. If runs stay queued, another input will come, because a
// request is outstanding or a timer is due soon.
func (f *flow) nextToStart(a *agentFlow, now time.Time) *agentRun {
	if len(a.queue) == 0 {
		return nil
	}
	switch {
	case !f.health.isSilent(a.name):
		if f.freeSlots(a) > 0 {
			return a.queue[0]
		}
		return nil
	case a.isProbing() || a.timerIsNear(now, ""):
		return nil
	case a.outstanding >= f.slots(a)+probeSlots:
		return nil
	}
	return a.queue.bestProbe()
}

// recordReply records that an agent has replied to any request.
func (f *flow) recordReply(agent string, at time.Time) {
	if f == nil || f.agent(agent) == nil {
		return
	}
	v := f.health.modify(agent)
	v.lastReply, v.timedOut = at, nil
}

// observe updates what is known about an agent by an event of a decision. It must be called before update. written is
// when the reply was written. The time until a busy worker read it isn't the agent's latency.
func (f *flow) observe(t *events.Task, e *events.Event, written time.Time) {
	switch a := e.Fact.About(); a.Phase {
	case events.PhaseExpired:
		if p := f.running(t, a.Step, a.Kind, a.Attempt); p != nil {
			f.recordTimeout(p, e.At)
		}
	case events.PhaseReplied:
		f.recordAnswer(f.running(t, a.Step, a.Kind, a.Attempt), written, e.At)
	default: // no attempt has ended
	}
}

// recordAnswer records that an attempt was answered.
func (f *flow) recordAnswer(p *agentRun, written, at time.Time) {
	if p == nil || f.agents[p.agent].capacity > 0 {
		return
	}
	v, a := f.health.modify(p.agent), f.agents[p.agent]
	// In slow start the partition's own numbers suffice, and they are cheaper.
	got := congestion.Answer{Started: p.began, Written: written, Within: p.within, Waiting: len(a.queue) > 0, Outstanding: a.outstanding}
	if v.Limited() || v.Unused(at) {
		got.Waiting, got.Outstanding = f.health.hasWaiting(p.agent), f.health.outstanding(p.agent)
	}
	v.Answered(got, at)
}

// recordTimeout records that an attempt timed out. It resets the window of an agent that becomes silent, and shrinks
// the window of an overloaded one. An attempt that had less than complete_within, because the task's own deadline was
// earlier, doesn't show an overload.
func (f *flow) recordTimeout(p *agentRun, at time.Time) {
	v := f.health.modify(p.agent)
	silent := v.isSilent()
	v.recordTimeout(p.task, p.first)
	if f.agents[p.agent].capacity > 0 {
		return
	}
	switch overloaded := p.due.Sub(p.began) >= p.within && v.TimedOut(p.began, at, p.within); {
	case v.isSilent() && !silent:
		v.Reset(at)
	case overloaded:
		v.Shrink(at, len(f.health.flows))
	}
}

// running returns the run of an outstanding attempt; nil: there is none.
func (f *flow) running(t *events.Task, step string, k events.Kind, attempt int) *agentRun {
	i, ok := t.Plan.Step(step)
	if !ok {
		return nil
	}
	if p := f.runs[nameOf(t, i, k)]; p != nil && p.state == runOutstanding && p.attempt == attempt {
		return p
	}
	return nil
}

// update applies the events of one decision about a task. Most events concern one step and its dependents. Only those
// are updated, so that a task of a thousand steps isn't scanned for each event.
func (f *flow) update(t *events.Task, es []*events.Event, now time.Time) {
	if _, received := es[0].Fact.(*events.TaskReceived); received {
		f.addTask(t, now)
		return
	}
	if slices.ContainsFunc(es, func(e *events.Event) bool { return e.Fact.About().Verb == events.VerbMigrated }) {
		f.dropTask(t.ID)
		f.refreshTask(t, now, true) // attempts that run began before
		return
	}
	if !t.Open() {
		f.refreshTask(t, now, false)
		return
	}
	for _, e := range es {
		if s, one := e.Slot(); !one || s.Step == "" {
			f.refreshTask(t, now, false)
			return
		}
	}
	further := false
	for _, e := range es {
		s, _ := e.Slot()
		i, ok := t.Plan.Step(s.Step)
		if !ok {
			continue
		}
		f.setRun(t, i, s.Kind, now, false)
		further = isDone(t.Steps[i].State) && f.updateDependents(t, i, now) || further
	}
	if further {
		f.updatePending(t, now)
	}
}

// updateDependents updates the steps that need a done step. further reports that one of them is done already (skipped
// or released), so its own dependents may start, too.
func (f *flow) updateDependents(t *events.Task, i int, now time.Time) (further bool) {
	for j := range t.Steps {
		state := t.Steps[j].State
		if state != events.StepPending && !isDone(state) || !slices.Contains(t.Plan.Steps[j].Needs, i) {
			continue
		}
		if further = further || isDone(state); state == events.StepPending {
			f.setRun(t, j, events.Do, now, false)
		}
	}
	return further
}

func (f *flow) updatePending(t *events.Task, now time.Time) {
	for j := range t.Steps {
		if t.Steps[j].State == events.StepPending {
			f.setRun(t, j, events.Do, now, false)
		}
	}
}

// dropTask removes all runs of a task whose plan has changed: they are named by the indices of its steps.
func (f *flow) dropTask(task string) {
	for i := range runKinds * workflow.MaxSteps {
		if p := f.runs[runName{task, i}]; p != nil {
			f.removeRun(f.agents[p.agent], p)
		}
	}
	for _, a := range f.order {
		if p := a.lastTimedOut; p != nil && p.task == task {
			a.lastTimedOut = nil
		}
	}
}

// refreshTask updates all runs of a task. A run whose retry is due by now counts as queued, since a supervisor asks for
// it. restored says that the task was read from the log or rolled back, not decided on.
func (f *flow) refreshTask(t *events.Task, now time.Time, restored bool) {
	if f == nil {
		return
	}
	for i := range t.Plan.Steps {
		f.setRun(t, i, events.Do, now, restored)
		// An undo or a check that hasn't started has no run, unless its start was rolled back. An ended task may have
		// dropped its steps.
		for _, k := range [...]events.Kind{events.Undo, events.Check} {
			if t.Plan.Has(i, k) && (restored || i >= len(t.Steps) || t.Run(i, k) != nil) {
				f.setRun(t, i, k, now, restored)
			}
		}
	}
}

// unslottedStep is a step that an earlier owner of the partition queued for its agent, while the present owner has no
// limit for that agent. It is in no queue, and no timer starts it. The worker starts it with its next inputs.
type unslottedStep struct {
	task string
	step int
}

// unslotted appends the unslotted steps of a restored task.
func (f *flow) unslotted(all []unslottedStep, t *events.Task, now time.Time) []unslottedStep {
	for i := range t.Steps {
		if t.Steps[i].State != events.StepPending {
			continue
		}
		p, is := agentRunOf(t, i, events.Do, now)
		if is && p.state == runQueued && (f == nil || f.agent(p.agent) == nil) {
			all = append(all, unslottedStep{t.ID, i})
		}
	}
	return all
}

// addTask adds the runs of a new task.
func (f *flow) addTask(t *events.Task, now time.Time) {
	for i := range t.Plan.Steps {
		if _, is := agentRunOf(t, i, events.Do, now); is {
			f.setRun(t, i, events.Do, now, false)
		}
	}
}

// retryAsked updates a run whose retry was asked for. The request may be early by up to clockTolerance.
func (f *flow) retryAsked(t *events.Task, of events.Slot, now time.Time) {
	if i, ok := t.Plan.Step(of.Step); ok {
		f.setRun(t, i, of.Kind, now.Add(clockTolerance), false)
	}
}

// setRun updates one run.
func (f *flow) setRun(t *events.Task, i int, k events.Kind, now time.Time, restored bool) {
	if !t.Plan.StepKindOf(i, k).CallsAgent() {
		return
	}
	agent, _ := t.Plan.Agent(i, k)
	a := f.agent(agent)
	if a == nil {
		return
	}
	name := nameOf(t, i, k)
	old := f.runs[name]
	what, is := agentRunOf(t, i, k, now)
	switch {
	case old == nil && !is && a.lastTimedOut == nil:
		return
	case old != nil && is && old.equal(&what):
		return
	}
	var next *agentRun
	if is {
		next = what.clone()
	}
	if old != nil {
		f.removeRun(a, old)
	}
	piloted := a.lastTimedOut != nil && a.lastTimedOut.runName == name
	if next != nil && next.state == runBackingOff && (old != nil || piloted) {
		a.lastTimedOut = next
	} else if piloted {
		a.lastTimedOut = nil
	}
	if next != nil && next.state != runBackingOff {
		if next.state == runOutstanding && !restored {
			next.began = now
		}
		f.addRun(a, next, restored)
	}
}

func (p *agentRun) equal(q *agentRun) bool {
	return p.state == q.state && p.attempt == q.attempt && p.agent == q.agent && p.priorityTime.Equal(q.priorityTime) && p.due.Equal(q.due)
}

func (f *flow) addRun(a *agentFlow, p *agentRun, restored bool) {
	f.runs[p.runName] = p
	switch p.state {
	case runOutstanding:
		a.outstanding++
		if !restored && f.health.isSilent(p.agent) {
			a.probe = p
		}
	case runQueued:
		a.queue.add(p)
		a.waiting[p.workflow]++
		f.queued++
	case runBackingOff, runRemoved: // take no place
	}
}

func (f *flow) removeRun(a *agentFlow, p *agentRun) {
	switch p.state {
	case runOutstanding:
		a.outstanding--
	case runQueued:
		a.queue.remove(p)
		decrement(a.waiting, p.workflow)
		f.queued--
	case runBackingOff, runRemoved: // had no place
	}
	p.state = runRemoved
	delete(f.runs, p.runName)
}

// dropQueued removes a queued run that can't start after all.
func (f *flow) dropQueued(p *agentRun) { f.removeRun(f.agents[p.agent], p) }

// agentRunOf derives a run from its task. is reports whether the run is outstanding, queued or backing off. It is
// called far more often than a run changes, so it returns a value instead of allocating.
func agentRunOf(t *events.Task, i int, k events.Kind, now time.Time) (p agentRun, is bool) {
	if !t.Open() || !t.Plan.StepKindOf(i, k).CallsAgent() {
		return p, false
	}
	r := t.Run(i, k)
	if r == nil {
		return p, false
	}
	p = agentRun{runName: nameOf(t, i, k), workflow: t.Workflow, step: i, kind: k, attempt: r.Attempt, failures: r.FailureCount,
		first: r.StartedAt, within: t.Plan.AttemptsOf(i, k).CompleteWithin}
	switch since := r.Timer.Due; {
	case r.State == events.StepRunning:
		p.state, p.due = runOutstanding, r.CompleteBy
		p.began = r.CompleteBy.Add(-p.within)
	case !canContinue(t, k):
		return p, false
	case k == events.Do && t.Steps[i].IsChecking():
		return p, false
	case r.State == events.StepPending && k == events.Do && ancestorsDone(t, i):
		p.state, p.priorityTime = runQueued, priorityTimeOf(readySince(t, i), t.Priority)
	case r.State == events.StepWaiting && !since.After(now):
		p.state, p.priorityTime = runQueued, priorityTimeOf(since, t.Priority)
	case r.State == events.StepWaiting || r.State == events.StepFailed && r.Timer.Armed():
		p.state, p.due = runBackingOff, since
	default:
		return p, false
	}
	p.agent, _ = t.Plan.Agent(i, k)
	return p, true
}

// Ready reports whether a run of a step could start an attempt at an instant if its agent had a free slot.
func Ready(t *events.Task, i int, k events.Kind, now time.Time) bool {
	p, is := agentRunOf(t, i, k, now)
	return is && p.state == runQueued
}

// readySince returns when the last step that a step needs was done. That is the start of its wait.
func readySince(t *events.Task, i int) time.Time {
	since := t.SubmittedAt
	for _, n := range t.Plan.Steps[i].Needs {
		if at := t.Steps[n].EndedAt; at.After(since) {
			since = at
		}
	}
	return since
}

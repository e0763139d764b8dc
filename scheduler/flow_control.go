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
//
// A request to an agent without a limit is unslotted: it takes no slot and waits in no queue.
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
	run := a.lastTimedOut
	return run != nil && run.state == runBackingOff && run.task != task && !run.due.After(now.Add(probePause))
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
	run := f.runs[nameOf(t, step, k)]
	return run != nil && run.state == runQueued
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
	record := f.health.modify(agent)
	record.lastReply, record.timedOut = at, nil
}

// observe updates what is known about an agent by an event of a decision. It must be called before update. written is
// when the reply was written. The time until a busy worker read it isn't the agent's latency.
func (f *flow) observe(t *events.Task, e *events.Event, written time.Time) {
	switch a := e.Fact.About(); a.Phase {
	case events.PhaseExpired:
		if run := f.running(t, a.Step, a.Kind, a.Attempt); run != nil {
			f.recordTimeout(run, e.At)
		}
	case events.PhaseReplied:
		f.recordAnswer(f.running(t, a.Step, a.Kind, a.Attempt), written, e.At)
	default: // no attempt has ended
	}
}

// recordAnswer records that an attempt was answered.
func (f *flow) recordAnswer(run *agentRun, written, at time.Time) {
	if run == nil || f.agents[run.agent].capacity > 0 {
		return
	}
	record, a := f.health.modify(run.agent), f.agents[run.agent]
	// In slow start the partition's own numbers suffice, and they are cheaper.
	got := congestion.Answer{Started: run.began, Written: written, Within: run.within, Waiting: len(a.queue) > 0, Outstanding: a.outstanding}
	if record.Limited() || record.Unused(at) {
		got.Waiting, got.Outstanding = f.health.hasWaiting(run.agent), f.health.outstanding(run.agent)
	}
	record.Answered(got, at)
}

// recordTimeout records that an attempt timed out. It resets the window of an agent that becomes silent, and shrinks
// the window of an overloaded one. An attempt that had less than complete_within, because the task's own deadline was
// earlier, doesn't show an overload.
func (f *flow) recordTimeout(run *agentRun, at time.Time) {
	record := f.health.modify(run.agent)
	silent := record.isSilent()
	record.recordTimeout(run.task, run.first)
	if f.agents[run.agent].capacity > 0 {
		return
	}
	switch overloaded := run.due.Sub(run.began) >= run.within && record.TimedOut(run.began, at, run.within); {
	case record.isSilent() && !silent:
		record.Reset(at)
	case overloaded:
		record.Shrink(at, len(f.health.flows))
	}
}

// running returns the run of an outstanding attempt; nil: there is none.
func (f *flow) running(t *events.Task, step string, k events.Kind, attempt int) *agentRun {
	i, ok := t.Plan.Step(step)
	if !ok {
		return nil
	}
	if run := f.runs[nameOf(t, i, k)]; run != nil && run.state == runOutstanding && run.attempt == attempt {
		return run
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
	cascades := false
	for _, e := range es {
		s, _ := e.Slot()
		i, ok := t.Plan.Step(s.Step)
		if !ok {
			continue
		}
		f.setRun(t, i, s.Kind, now, false)
		cascades = isDone(t.Steps[i].State) && f.updateDependents(t, i, now) || cascades
	}
	if cascades {
		f.updatePending(t, now)
	}
}

// updateDependents updates the steps that need a done step. cascades reports that one of them is done already (skipped
// or released), so its own dependents may start, too.
func (f *flow) updateDependents(t *events.Task, i int, now time.Time) (cascades bool) {
	for j := range t.Steps {
		state := t.Steps[j].State
		if state != events.StepPending && !isDone(state) || !slices.Contains(t.Plan.Steps[j].Needs, i) {
			continue
		}
		if cascades = cascades || isDone(state); state == events.StepPending {
			f.setRun(t, j, events.Do, now, false)
		}
	}
	return cascades
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
		if run := f.runs[runName{task, i}]; run != nil {
			f.removeRun(f.agents[run.agent], run)
		}
	}
	for _, a := range f.order {
		if run := a.lastTimedOut; run != nil && run.task == task {
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
		run, exists := agentRunOf(t, i, events.Do, now)
		if exists && run.state == runQueued && (f == nil || f.agent(run.agent) == nil) {
			all = append(all, unslottedStep{t.ID, i})
		}
	}
	return all
}

// addTask adds the runs of a new task.
func (f *flow) addTask(t *events.Task, now time.Time) {
	for i := range t.Plan.Steps {
		if _, exists := agentRunOf(t, i, events.Do, now); exists {
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

// setRun derives one run from its task, and replaces the one that was derived before if it has changed.
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
	derived, exists := agentRunOf(t, i, k, now)
	switch {
	case old == nil && !exists && a.lastTimedOut == nil:
		return
	case old != nil && exists && old.equal(&derived):
		return
	}
	var run *agentRun
	if exists {
		run = derived.clone()
	}
	if old != nil {
		f.removeRun(a, old)
	}
	a.updateLastTimedOut(name, run, old != nil)
	if run != nil && run.state != runBackingOff {
		if run.state == runOutstanding && !restored {
			run.began = now
		}
		f.addRun(a, run, restored)
	}
}

// updateLastTimedOut sets lastTimedOut to a run that backs off now, if it was outstanding or queued before (hadPlace) or
// was the last one already. It clears lastTimedOut if that run no longer backs off. run is nil if the run has ended.
func (a *agentFlow) updateLastTimedOut(name runName, run *agentRun, hadPlace bool) {
	wasLast := a.lastTimedOut != nil && a.lastTimedOut.runName == name
	switch {
	case run != nil && run.state == runBackingOff && (hadPlace || wasLast):
		a.lastTimedOut = run
	case wasLast:
		a.lastTimedOut = nil
	}
}

func (r *agentRun) equal(q *agentRun) bool {
	return r.state == q.state && r.attempt == q.attempt && r.agent == q.agent && r.priorityTime.Equal(q.priorityTime) && r.due.Equal(q.due)
}

func (f *flow) addRun(a *agentFlow, run *agentRun, restored bool) {
	f.runs[run.runName] = run
	switch run.state {
	case runOutstanding:
		a.outstanding++
		if !restored && f.health.isSilent(run.agent) {
			a.probe = run
		}
	case runQueued:
		a.queue.add(run)
		a.waiting[run.workflow]++
		f.queued++
	case runBackingOff, runRemoved: // take no place
	}
}

func (f *flow) removeRun(a *agentFlow, run *agentRun) {
	switch run.state {
	case runOutstanding:
		a.outstanding--
	case runQueued:
		a.queue.remove(run)
		decrement(a.waiting, run.workflow)
		f.queued--
	case runBackingOff, runRemoved: // had no place
	}
	run.state = runRemoved
	delete(f.runs, run.runName)
}

// dropQueued removes a queued run that can't start after all.
func (f *flow) dropQueued(run *agentRun) { f.removeRun(f.agents[run.agent], run) }

// agentRunOf derives a run from its task. exists reports whether the run is outstanding, queued or backing off. It is
// called far more often than a run changes, so it returns a value instead of allocating.
func agentRunOf(t *events.Task, i int, k events.Kind, now time.Time) (run agentRun, exists bool) {
	if !t.Open() || !t.Plan.StepKindOf(i, k).CallsAgent() {
		return run, false
	}
	r := t.Run(i, k)
	if r == nil {
		return run, false
	}
	run = agentRun{runName: nameOf(t, i, k), workflow: t.Workflow, step: i, kind: k, attempt: r.Attempt, failures: r.FailureCount,
		first: r.StartedAt, within: t.Plan.AttemptsOf(i, k).CompleteWithin}
	switch since := r.Timer.Due; {
	case r.State == events.StepRunning:
		run.state, run.due = runOutstanding, r.CompleteBy
		run.began = r.CompleteBy.Add(-run.within)
	case !canContinue(t, k):
		return run, false
	case k == events.Do && t.Steps[i].IsChecking():
		return run, false
	case r.State == events.StepPending && k == events.Do && ancestorsDone(t, i):
		run.state, run.priorityTime = runQueued, priorityTimeOf(readySince(t, i), t.Priority)
	case r.State == events.StepWaiting && !since.After(now):
		run.state, run.priorityTime = runQueued, priorityTimeOf(since, t.Priority)
	case r.State == events.StepWaiting || r.State == events.StepFailed && r.Timer.Armed():
		run.state, run.due = runBackingOff, since
	default:
		return run, false
	}
	run.agent, _ = t.Plan.Agent(i, k)
	return run, true
}

// Ready reports whether a run of a step could start an attempt at an instant if its agent had a free slot.
func Ready(t *events.Task, i int, k events.Kind, now time.Time) bool {
	run, exists := agentRunOf(t, i, k, now)
	return exists && run.state == runQueued
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

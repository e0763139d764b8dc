package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// probePause is the longest wait of a probe that timed out for which no other
	// takes its spot.
	probePause = 2 * time.Second
	// startsMost bounds what one input starts, beside what it is about.
	startsMost = 64
	// slotsLeast is the least share of a partition in what an agent may have: with
	// nothing outstanding no reply would wake the queue.
	slotsLeast = 1
	// probeSlots is for a probe beside what is outstanding from before the silence.
	probeSlots = 1
	// noRoom is less than any number of slots that a decision frees; anyRoom is what
	// an agent has that nobody watches, and more than any other has.
	noRoom  = -1 << 20
	anyRoom = 1 << 20
)

// Capacity is how many requests agents may have outstanding.
type Capacity struct {
	// Agents is that of some, in all partitions together; at least one in each.
	Agents map[string]int
	// Observe: of each other agent a lane finds out by itself how many. Without it, such an
	// agent may have any number.
	Observe bool
}

// flow is how a partition uses the agents: which requests are outstanding, and which
// steps wait until one is not. It follows from the tasks (update), so a restore has
// it again, and a transaction that is rolled back leaves nothing. It reads no clock.
// A nil flow, where no agent has a bound, holds nobody back.
type flow struct {
	capacity   Capacity
	number     int // of the partition
	partitions int
	voices     *voices // the lane's

	agents map[string]*agentFlow
	order  []*agentFlow // by name
	spots  map[spotName]*spot
	queued int
}

// agentFlow is an agent within a partition.
type agentFlow struct {
	name        string
	capacity    int // the partition's share of what is configured; 0: that isn't
	outstanding int
	queue       queue
	waiting     map[string]int // the steps in the queue, by workflow
	// probe is the request that was sent last while the agent was silent. What is
	// outstanding from before says nothing of whether it is there now.
	probe *spot
	// pilot is what timed out last. While its timer is near nothing else probes
	// a silent agent: its recovery is the input that comes.
	pilot *spot
}

// newFlow is one without tasks. The lane that owns the partition sets voices.
func newFlow(capacity Capacity, number, partitions int32) *flow {
	if len(capacity.Agents) == 0 && !capacity.Observe {
		return nil
	}
	return &flow{capacity: capacity, number: int(number), partitions: int(partitions), voices: newVoices(),
		agents: map[string]*agentFlow{}, spots: map[spotName]*spot{}}
}

// agent is one that may have a bound; nil: it gets every request at once.
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

// share is the partition's part of an agent's capacity, at least one: a transaction needs an input
// of each partition that it writes to, so only a reply in this partition can wake its queue. With
// nothing outstanding here there would be no reply.
func (f *flow) share(capacity int) int {
	n := capacity / f.partitions
	if f.number < capacity%f.partitions {
		n++
	}
	return max(n, slotsLeast)
}

// slots is the partition's share of how many requests of an agent may be outstanding.
func (f *flow) slots(a *agentFlow) int {
	if a.capacity > 0 {
		return a.capacity
	}
	return f.voices.share(a.name)
}

// room is how many more requests an agent that isn't silent may be sent: what is left
// of the partition's share, or of what other partitions don't use.
func (f *flow) room(a *agentFlow) int {
	n := f.slots(a) - a.outstanding
	if a.capacity == 0 && n <= 0 {
		n = f.voices.spare(a.name)
	}
	return n
}

// near reports whether the pilot's recovery is about to come, for another task
// than this.
func (a *agentFlow) near(now time.Time, task string) bool {
	p := a.pilot
	return p != nil && p.state == spotLater && p.task != task && !p.due.After(now.Add(probePause))
}

// probing reports whether a probe is under way.
func (a *agentFlow) probing() bool { return a.probe != nil && a.probe.state == spotRunning }

// Free implements Slots: what waits goes first.
func (f *flow) Free(agent, task string, now time.Time) int {
	a := f.agent(agent)
	if a == nil {
		return anyRoom
	}
	switch {
	case len(a.queue) > 0:
		return noRoom
	case !f.voices.silent(agent):
		return f.room(a)
	case a.near(now, task), a.probing():
		return noRoom
	}
	return min(1, f.slots(a)+probeSlots-a.outstanding)
}

// Waits implements Slots.
func (f *flow) Waits(t *events.Task, step int, k events.Kind) bool {
	p := f.spots[nameOf(t, step, k)]
	return p != nil && p.state == spotQueued
}

// next is the step to start now; nil: none may, or none waits. Either something
// is outstanding then, or a timer is near: another input will come.
func (f *flow) next(a *agentFlow, now time.Time) *spot {
	if len(a.queue) == 0 {
		return nil
	}
	switch {
	case !f.voices.silent(a.name):
		if f.room(a) > 0 {
			return a.queue[0]
		}
		return nil
	case a.probing() || a.near(now, ""):
		return nil
	case a.outstanding >= f.slots(a)+probeSlots:
		return nil
	}
	return a.queue.probe()
}

// hears: the agent has replied, to whatever it was.
func (f *flow) hears(agent string, at time.Time) {
	if f == nil || f.agent(agent) == nil {
		return
	}
	v := f.voices.change(agent)
	v.heard, v.lost = at, nil
}

// observe learns from what a decision recorded of a task, before update takes it over.
// written is when the reply was that it is about: what a busy lane takes to come to it
// says nothing of the agent.
func (f *flow) observe(t *events.Task, e *events.Event, written time.Time) {
	switch a := e.Fact.About(); a.Phase {
	case events.PhaseExpired:
		if p := f.running(t, a.Step, a.Kind, a.Attempt); p != nil {
			f.loses(p, e.At)
		}
	case events.PhaseReplied:
		f.answers(f.running(t, a.Step, a.Kind, a.Attempt), written, e.At)
	}
}

// answers: an attempt was answered.
func (f *flow) answers(p *spot, written, at time.Time) {
	if p == nil || f.agents[p.agent].capacity > 0 {
		return
	}
	v, a := f.voices.change(p.agent), f.agents[p.agent]
	// Where no bound is to be judged the partition says enough, and is quick to ask.
	got := answer{began: p.began, written: written, within: p.within, waiting: len(a.queue) > 0, outstanding: a.outstanding}
	if v.bound > 0 || v.lapses(at) {
		got.waiting, got.outstanding = f.voices.waiting(p.agent), f.voices.outstanding(p.agent)
	}
	v.answers(got, at)
}

// loses: an attempt timed out. If its agent is behind now it has a bound from here on. One
// whose time was cut short by its task's says nothing of that.
func (f *flow) loses(p *spot, at time.Time) {
	v := f.voices.change(p.agent)
	silent := v.silent()
	v.loses(p.task, p.first)
	if f.agents[p.agent].capacity > 0 {
		return
	}
	switch behind := p.due.Sub(p.began) >= p.within && v.expires(p.began, at, p.within); {
	case v.silent() && !silent:
		v.restart(at)
	case behind:
		v.lower(at, len(f.voices.flows))
	}
}

// running finds the spot of an attempt that runs.
func (f *flow) running(t *events.Task, step string, k events.Kind, attempt int) *spot {
	i, ok := t.Plan.Step(step)
	if !ok {
		return nil
	}
	if p := f.spots[nameOf(t, i, k)]; p != nil && p.state == spotRunning && p.attempt == attempt {
		return p
	}
	return nil
}

// update takes over what events have made of a task. Most are about one step, and
// what needed it: a task of a thousand steps isn't looked through for each.
func (f *flow) update(t *events.Task, es []*events.Event, now time.Time) {
	if _, received := es[0].Fact.(*events.TaskReceived); received {
		f.begin(t, now)
		return
	}
	if !t.Open() {
		f.restate(t, now, false)
		return
	}
	for _, e := range es {
		if s, one := e.Slot(); !one || s.Step == "" {
			f.restate(t, now, false)
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
		f.set(t, i, s.Kind, now, false)
		further = isDone(t.Steps[i].State) && f.after(t, i, now) || further
	}
	if further {
		f.pending(t, now)
	}
}

// after takes over what needs a step that is done. further: some of that is done
// already, skipped or released, and what comes after it may start, too.
func (f *flow) after(t *events.Task, i int, now time.Time) (further bool) {
	for j := range t.Steps {
		state := t.Steps[j].State
		if state != events.StepPending && !isDone(state) || !slices.Contains(t.Plan.Steps[j].Needs, i) {
			continue
		}
		if further = further || isDone(state); state == events.StepPending {
			f.set(t, j, events.Do, now, false)
		}
	}
	return further
}

func (f *flow) pending(t *events.Task, now time.Time) {
	for j := range t.Steps {
		if t.Steps[j].State == events.StepPending {
			f.set(t, j, events.Do, now, false)
		}
	}
}

// restate takes over all that a task is now. What waits for a retry and is due by now
// is what a supervisor has asked for, or is about to. restored: the task was
// read, and not decided on.
func (f *flow) restate(t *events.Task, now time.Time, restored bool) {
	if f == nil {
		return
	}
	for i := range t.Plan.Steps {
		f.set(t, i, events.Do, now, restored)
		// An undo that hasn't begun has no spot, unless that it began was rolled back. An
		// ended task may have forgotten its steps.
		if t.Plan.Steps[i].Undo != nil && (restored || i >= len(t.Steps) || t.Run(i, events.Undo) != nil) {
			f.set(t, i, events.Undo, now, restored)
		}
	}
}

// inherited is a step that waits for its agent, since who owned its partition before
// counted the agent's requests. Here nobody does, so it has no place in a queue; and it
// has no timer, for it was never tried.
type inherited struct {
	task string
	step int
}

// inherit adds those of a task that was read.
func (f *flow) inherit(all []inherited, t *events.Task, now time.Time) []inherited {
	for i := range t.Steps {
		if t.Steps[i].State != events.StepPending {
			continue
		}
		p, is := spotOf(t, i, events.Do, now)
		if is && p.state == spotQueued && (f == nil || f.agent(p.agent) == nil) {
			all = append(all, inherited{t.ID, i})
		}
	}
	return all
}

// begin takes over a new task: there is nothing that it leaves.
func (f *flow) begin(t *events.Task, now time.Time) {
	for i := range t.Plan.Steps {
		if _, is := spotOf(t, i, events.Do, now); is {
			f.set(t, i, events.Do, now, false)
		}
	}
}

// ask takes over that the retry of a run was asked for, a little early perhaps.
func (f *flow) ask(t *events.Task, of events.Slot, now time.Time) {
	if i, ok := t.Plan.Step(of.Step); ok {
		f.set(t, i, of.Kind, now.Add(clockTolerance), false)
	}
}

// set takes over what a run is now.
func (f *flow) set(t *events.Task, i int, k events.Kind, now time.Time, restored bool) {
	agent, _ := t.Plan.Agent(i, k)
	a := f.agent(agent)
	if a == nil {
		return
	}
	name := nameOf(t, i, k)
	old := f.spots[name]
	what, is := spotOf(t, i, k, now)
	switch {
	case old == nil && !is && a.pilot == nil:
		return
	case old != nil && is && old.same(&what):
		return
	}
	var next *spot
	if is {
		next = what.kept()
	}
	if old != nil {
		f.leave(a, old)
	}
	piloted := a.pilot != nil && a.pilot.spotName == name
	if next != nil && next.state == spotLater && (old != nil || piloted) {
		a.pilot = next
	} else if piloted {
		a.pilot = nil
	}
	if next != nil && next.state != spotLater {
		if next.state == spotRunning && !restored {
			next.began = now
		}
		f.enter(a, next, restored)
	}
}

// same: nothing has changed.
func (p *spot) same(q *spot) bool {
	return p.state == q.state && p.attempt == q.attempt && p.agent == q.agent && p.turn.Equal(q.turn) && p.due.Equal(q.due)
}

func (f *flow) enter(a *agentFlow, p *spot, restored bool) {
	f.spots[p.spotName] = p
	switch p.state {
	case spotRunning:
		a.outstanding++
		if !restored && f.voices.silent(p.agent) {
			a.probe = p
		}
	case spotQueued:
		a.queue.add(p)
		a.waiting[p.workflow]++
		f.queued++
	}
}

func (f *flow) leave(a *agentFlow, p *spot) {
	switch p.state {
	case spotRunning:
		a.outstanding--
	case spotQueued:
		a.queue.remove(p)
		decrement(a.waiting, p.workflow)
		f.queued--
	}
	p.state = spotGone
	delete(f.spots, p.spotName)
}

// drop takes a step out of the queue that can't start after all.
func (f *flow) drop(p *spot) { f.leave(f.agents[p.agent], p) }

// spotOf is what a run does to its agent, if it does anything. It is asked for more often
// than there is news.
func spotOf(t *events.Task, i int, k events.Kind, now time.Time) (p spot, is bool) {
	if !t.Open() {
		return p, false
	}
	r := t.Run(i, k)
	if r == nil {
		return p, false
	}
	p = spot{spotName: nameOf(t, i, k), workflow: t.Workflow, step: i, kind: k, attempt: r.Attempt, failures: r.FailureCount,
		first: r.StartedAt, within: t.Plan.AttemptsOf(i, k).CompleteWithin}
	switch since := r.Timer.Due; {
	case r.State == events.StepRunning:
		p.state, p.due = spotRunning, r.CompleteBy
		p.began = r.CompleteBy.Add(-p.within)
	case !goesOn(t, k):
		return p, false
	case r.State == events.StepPending && k == events.Do && satisfied(t, i):
		p.state, p.turn = spotQueued, turnOf(readySince(t, i), t.Priority)
	case r.State == events.StepWaiting && !since.After(now):
		p.state, p.turn = spotQueued, turnOf(since, t.Priority)
	case r.State == events.StepWaiting || r.State == events.StepFailed && r.Timer.Armed():
		p.state, p.due = spotLater, since
	default:
		return p, false
	}
	p.agent, _ = t.Plan.Agent(i, k)
	return p, true
}

// Ready reports whether a run of a step could begin an attempt at an instant, if its agent had room.
func Ready(t *events.Task, i int, k events.Kind, now time.Time) bool {
	p, is := spotOf(t, i, k, now)
	return is && p.state == spotQueued
}

// readySince is when the last thing that a step needs was done.
func readySince(t *events.Task, i int) time.Time {
	since := t.SubmittedAt
	for _, n := range t.Plan.Steps[i].Needs {
		if at := t.Steps[n].EndedAt; at.After(since) {
			since = at
		}
	}
	return since
}

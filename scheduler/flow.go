package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// silentAfter so many tasks whose attempts timed out, one after another and
	// with no reply of the agent meanwhile, it is tried with one probe at a time.
	silentAfter = 3
	// probePause is the longest wait of a probe that timed out for which no other
	// takes its spot.
	probePause = 5 * time.Second
	// startsMost bounds what one input starts, beside what it is about.
	startsMost = 64
	// slotsLeast is the least share of a partition in an agent's capacity: with
	// nothing outstanding no reply would wake the queue.
	slotsLeast = 1
	// probeSlots is for a probe beside what is outstanding from before the silence.
	probeSlots = 1
	// noRoom is less than any number of slots that a decision frees; anyRoom is what
	// an agent without a capacity has.
	noRoom  = -1 << 20
	anyRoom = 1 << 20
)

// voice is what a lane has heard of an agent.
type voice struct {
	heard time.Time // the last reply; zero: none
	lost  []string  // tasks whose attempts timed out since, at most silentAfter
}

// voices are a lane's, by agent: what one partition hears, all know.
type voices struct {
	agents map[string]*voice
	before map[string]voice // the transaction
}

func newVoices() *voices { return &voices{agents: map[string]*voice{}, before: map[string]voice{}} }

// silent reports whether nothing was heard of an agent for too long.
func (vs *voices) silent(agent string) bool {
	v := vs.agents[agent]
	return v != nil && len(v.lost) >= silentAfter
}

// change returns what is known of an agent, to be changed.
func (vs *voices) change(agent string) *voice {
	v := vs.agents[agent]
	if v == nil {
		v = &voice{}
		vs.agents[agent] = v
	}
	if _, kept := vs.before[agent]; !kept {
		vs.before[agent] = *v
	}
	return v
}

// settle: what was heard is true.
func (vs *voices) settle() { clear(vs.before) }

// forget: the transaction was rolled back, and its inputs will be heard again.
func (vs *voices) forget() {
	for agent, v := range vs.before {
		*vs.agents[agent] = v
	}
	vs.settle()
}

// flow is how a partition uses the agents that have a capacity: which requests are
// outstanding, and which steps wait until one is not. It follows from the tasks
// (update), so a restore has it again, and a transaction that is rolled back leaves
// nothing. It reads no clock. A nil flow, where no agent has a capacity, holds nobody
// back.
type flow struct {
	capacity   map[string]int // of agents, in all partitions together
	number     int            // of the partition
	partitions int
	voices     *voices // the lane's

	agents map[string]*agentFlow
	order  []*agentFlow // by name
	spots  map[string][]*spot
	queued int
}

// agentFlow is an agent within a partition.
type agentFlow struct {
	name        string
	slots       int // the partition's share
	outstanding int
	queue       queue
	// probe is the request that was sent last while the agent was silent. What is
	// outstanding from before says nothing of whether it is there now.
	probe *spot
	// pilot is what timed out last. While its timer is near nothing else probes
	// a silent agent: its recovery is the input that comes.
	pilot *spot
}

// newFlow is one without tasks. The lane that owns the partition sets voices.
func newFlow(capacity map[string]int, number, partitions int32) *flow {
	if len(capacity) == 0 {
		return nil
	}
	return &flow{capacity: capacity, number: int(number), partitions: int(partitions), voices: newVoices(),
		agents: map[string]*agentFlow{}, spots: map[string][]*spot{}}
}

// agent is one that has a capacity; nil: it has none.
func (f *flow) agent(name string) *agentFlow {
	a := f.agents[name]
	if a == nil && f.capacity[name] > 0 {
		a = &agentFlow{name: name, slots: f.share(f.capacity[name])}
		f.agents[name] = a
		f.order = append(f.order, a)
		slices.SortFunc(f.order, func(a, b *agentFlow) int { return cmp.Compare(a.name, b.name) })
	}
	return a
}

// share is the partition's part of an agent's capacity, at least one.
func (f *flow) share(capacity int) int {
	n := capacity / f.partitions
	if f.number < capacity%f.partitions {
		n++
	}
	return max(n, slotsLeast)
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
	switch {
	case a == nil:
		return anyRoom
	case len(a.queue) > 0:
		return noRoom
	case !f.voices.silent(agent):
		return a.slots - a.outstanding
	case a.near(now, task), a.probing():
		return noRoom
	}
	return min(1, a.slots+probeSlots-a.outstanding)
}

// next is the step to start now; nil: none may, or none waits. Either something
// is outstanding then, or a timer is near: another input will come.
func (f *flow) next(a *agentFlow, now time.Time) *spot {
	switch {
	case len(a.queue) == 0:
		return nil
	case !f.voices.silent(a.name):
		if a.outstanding < a.slots {
			return a.queue[0]
		}
		return nil
	case a.probing() || a.near(now, ""):
		return nil
	case a.outstanding >= a.slots+probeSlots:
		return nil
	}
	return a.queue.probe()
}

// hears: the agent has replied, to whatever it was.
func (f *flow) hears(agent string, at time.Time) {
	if f == nil || f.capacity[agent] == 0 {
		return
	}
	v := f.voices.change(agent)
	v.heard, v.lost = at, nil
}

// loses: an attempt timed out that began then. It says something of the agent
// only if that has said nothing meanwhile.
func (f *flow) loses(p *spot, at time.Time) {
	v := f.voices.change(p.agent)
	if v.heard.After(p.began) || len(v.lost) >= silentAfter || slices.Contains(v.lost, p.task) {
		return
	}
	v.lost = append(slices.Clip(v.lost), p.task)
}

// observe learns from what a decision recorded, before update takes it over.
func (f *flow) observe(e *events.Event) {
	if x, ok := e.Fact.(*events.AttemptExpired); ok {
		if p := f.running(e.Task, x.Step, x.Kind, x.Attempt); p != nil {
			f.loses(p, e.At)
		}
	}
}

// running finds the spot of an attempt that runs.
func (f *flow) running(task, step string, k events.Kind, attempt int) *spot {
	for _, p := range f.spots[task] {
		if p.state == spotRunning && p.name == step && p.kind == k && p.attempt == attempt {
			return p
		}
	}
	return nil
}

// update takes over what a task is now. What waits for a retry and is due by now
// is what a supervisor has asked for, or is about to. restored: the task was
// read, and not decided on.
func (f *flow) update(t *events.Task, now time.Time, restored bool) {
	if f != nil {
		f.replace(t, f.spotsOf(t, now, events.Slot{}), now, restored)
	}
}

// ask is update where the retry of a run was asked for, a little early perhaps.
func (f *flow) ask(t *events.Task, of events.Slot, now time.Time) {
	if f != nil {
		f.replace(t, f.spotsOf(t, now, of), now, false)
	}
}

func (f *flow) replace(t *events.Task, next []*spot, now time.Time, restored bool) {
	old := f.spots[t.ID]
	if len(old)+len(next) == 0 {
		return
	}
	for i, p := range next {
		if before := find(old, p); before != nil && before.same(p) {
			next[i] = before
			continue
		}
		if p.state == spotRunning && !restored {
			p.began = now
		}
	}
	for _, p := range old {
		if !slices.Contains(next, p) {
			f.leave(p, find(next, p))
		}
	}
	for _, p := range next {
		if !slices.Contains(old, p) {
			f.enter(p, restored)
		}
	}
	if len(next) == 0 {
		delete(f.spots, t.ID)
	} else {
		f.spots[t.ID] = next
	}
}

// find returns the spot of the same run.
func find(ps []*spot, p *spot) *spot {
	for _, q := range ps {
		if q.step == p.step && q.kind == p.kind {
			return q
		}
	}
	return nil
}

// same: nothing has changed.
func (p *spot) same(q *spot) bool {
	return p.state == q.state && p.attempt == q.attempt && p.agent == q.agent && p.turn.Equal(q.turn) && p.due.Equal(q.due)
}

func (f *flow) enter(p *spot, restored bool) {
	a := f.agent(p.agent)
	switch p.state {
	case spotRunning:
		a.outstanding++
		if !restored && f.voices.silent(p.agent) {
			a.probe = p
		}
	case spotQueued:
		a.queue.add(p)
		f.queued++
	}
}

// leave ends a spot; next is what the run is instead, nil: nothing.
func (f *flow) leave(p, next *spot) {
	a := f.agent(p.agent)
	switch p.state {
	case spotRunning:
		a.outstanding--
	case spotQueued:
		a.queue.remove(p)
		f.queued--
	}
	p.state = spotGone
	if next != nil && next.state == spotLater {
		a.pilot = next
	}
}

// drop takes a step out of the queue that can't start after all.
func (f *flow) drop(p *spot) {
	f.leave(p, nil)
	f.spots[p.task] = slices.DeleteFunc(f.spots[p.task], func(q *spot) bool { return q == p })
}

// waits is how many steps wait for agents that are not silent.
func (f *flow) waits() int {
	if f == nil {
		return 0
	}
	n := f.queued
	for _, a := range f.order {
		if n > 0 && f.voices.silent(a.name) {
			n -= len(a.queue)
		}
	}
	return n
}

// spotsOf are the spots of a task.
func (f *flow) spotsOf(t *events.Task, now time.Time, asked events.Slot) []*spot {
	if !t.Open() {
		return nil
	}
	var all []*spot
	for i := range t.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo} {
			r := t.Run(i, k)
			if r == nil {
				continue
			}
			if agent, _ := t.Plan.Agent(i, k); f.capacity[agent] > 0 {
				by := now
				if asked == (events.Slot{Step: t.Plan.Steps[i].ID, Kind: k}) {
					by = now.Add(clockTolerance)
				}
				if p := spotOf(t, i, k, r, by); p != nil {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

func spotOf(t *events.Task, i int, k events.Kind, r *events.Run, now time.Time) *spot {
	p := &spot{task: t.ID, step: i, kind: k, attempt: r.Attempt, failures: r.FailureCount}
	switch since := r.Timer.Due; {
	case r.State == events.StepRunning:
		p.state, p.due = spotRunning, r.CompleteBy
		p.began = r.CompleteBy.Add(-t.Plan.AttemptsOf(i, k).CompleteWithin)
	case !goesOn(t, k):
		return nil
	case r.State == events.StepPending && k == events.Do && satisfied(t, i):
		p.state, p.turn = spotQueued, turnOf(readySince(t, i), t.Priority)
	case r.State == events.StepWaiting && !since.After(now):
		p.state, p.turn = spotQueued, turnOf(since, t.Priority)
	case r.State == events.StepWaiting || r.State == events.StepFailed && r.Timer.Armed():
		p.state, p.due = spotLater, since
	default:
		return nil
	}
	p.agent, _ = t.Plan.Agent(i, k)
	p.name = t.Plan.Steps[i].ID
	return p
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

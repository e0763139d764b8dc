package verify

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

func init() {
	taskRules[events.VerbMigrated] = &factRule{from: byControls, only: true, checkCourse: (*eventCheck).checkMigrated, arms: migratedTimer,
		count: (*eventCheck).countMigrated, lead: leadMigrated}
}

// checkMigrated checks that what happened to the task fits the plan of its new version (P2): the plan has each step that
// has begun, as the same work, and no step has begun before one that it needs.
func (s *eventCheck) checkMigrated() *Fault {
	f, ok := s.e.Fact.(*events.TaskMigrated)
	if !ok || f.Plan == nil {
		return nil
	}
	t := s.t
	for i := range t.steps {
		id := t.plan.Steps[i].ID
		if !t.hasBegun(i) {
			continue
		}
		j, ok := f.Plan.Step(id)
		switch {
		case !ok:
			return faultf("P2", "migrated to version %d, which lacks step %q, and it has begun", f.Version, id)
		case f.Plan.Steps[j].StepKind != t.plan.Steps[i].StepKind:
			return faultf("P2", "migrated to version %d, in which step %q is of another kind, and it has begun", f.Version, id)
		}
		for _, k := range kindsOfRun {
			if what := t.changedWork(i, k, f.Plan, j); what != "" {
				return faultf("P2", "migrated to version %d, in which step %q has another %s", f.Version, id, what)
			}
		}
		for _, n := range f.Plan.Steps[j].Needs {
			if need := f.Plan.Steps[n].ID; !t.metBefore(i, need) {
				return faultf("P2", "migrated to version %d, in which step %q needs step %q, and it began before that was done", f.Version, id, need)
			}
		}
	}
	return nil
}

func (t *task) hasBegun(i int) bool {
	begun := t.steps[i].flags != 0
	for _, k := range kindsOfRun {
		begun = begun || t.open.run(i, k).attempt > 0
	}
	return begun
}

// changedWork returns what differs for a run that was asked for; empty: nothing.
func (t *task) changedWork(i int, k events.Kind, p *events.Plan, j int) (what string) {
	run := t.open.run(i, k)
	if run.attempt == 0 {
		return ""
	}
	if !p.Has(j, k) {
		return "set of runs"
	}
	agent, operation := t.plan.Agent(i, k)
	newAgent, newOperation := p.Agent(j, k)
	switch mayHave := k == events.Do && t.steps[i].flags.has(completed|handSettled|unknown); {
	case agent != newAgent:
		return "agent"
	case (run.running || mayHave) && operation != newOperation:
		return "operation"
	case run.running && k == events.Do && t.plan.Steps[i].Signal != p.Steps[j].Signal:
		return "signal"
	}
	return ""
}

// metBefore reports whether a step that a begun step needs now is done, or was needed and not done before.
func (t *task) metBefore(i int, need string) bool {
	n, ok := t.plan.Step(need)
	return ok && (t.steps[n].flags.has(done) || slices.Contains(t.plan.Steps[i].Needs, n))
}

// migratedTimer returns the task's complete-by under the new plan: as long after its start, or its last resubmit, as the
// plan says, and not after the one that its submission asked for.
func migratedTimer(s *eventCheck) (events.TimerKind, time.Time) {
	f, ok := s.e.Fact.(*events.TaskMigrated)
	t := s.t.open.state
	if !ok || f.Plan == nil || t.State != events.StateProcessing {
		return "", time.Time{}
	}
	start := t.CompleteBy.Add(-t.Plan.CompleteWithin)
	if !t.Asked.IsZero() && t.CompleteBy.Equal(t.Asked) {
		start = t.SubmittedAt
	}
	if t.Plan.CompleteWithin == f.Plan.CompleteWithin {
		return events.TimerTask, t.CompleteBy
	}
	return events.TimerTask, earlier(events.Millis(start.Add(f.Plan.CompleteWithin)), t.Asked)
}

// countMigrated moves what was counted to the indices of the new plan.
func (s *eventCheck) countMigrated() {
	f, ok := s.e.Fact.(*events.TaskMigrated)
	if !ok {
		return
	}
	t, o, old := s.t, s.t.open, s.t.plan
	steps, runs := make([]stepTally, len(f.Plan.Steps)), make([]run, runsPerStep*len(f.Plan.Steps))
	given := s.c.given[t]
	inputs := make([]uint64, len(f.Plan.Steps))
	index := make([]int, len(t.steps)) // of a step of the old plan in the new one
	for i := range t.steps {
		j, ok := f.Plan.Step(old.Steps[i].ID)
		if index[i] = j; !ok {
			continue
		}
		steps[j] = t.steps[i]
		copy(runs[runsPerStep*j:], o.runs[runsPerStep*i:runsPerStep*(i+1)])
		if given != nil {
			inputs[j] = given.inputs[i]
		}
	}
	for i := range t.attempts {
		a := &t.attempts[i]
		a.step = uint16(index[a.step])
	}
	if given != nil {
		given.inputs = inputs
	}
	if len(o.items) > 0 {
		moved := map[int]*items{}
		for i, x := range o.items {
			moved[index[i]] = x
		}
		o.items = moved
	}
	s.c.earlierPlans[t] = append(s.c.earlierPlans[t], old)
	t.plan, t.steps, o.runs = f.Plan, steps, runs
	for i := range steps {
		for _, k := range kindsOfRun {
			o.run(i, k).replan(t, i, k)
		}
	}
}

// replan applies a migration to a run: an attempt that it waits for is made, and a wait that isn't decided is by the new plan.
func (r *run) replan(t *task, step int, k events.Kind) {
	r.granted = r.waits
	if !r.failedAt.IsZero() {
		r.backOff(t, step, k)
	}
}

// planOfAttempt returns the plan by which an attempt began, and the index of its step there; nil: it isn't known any more.
func (c *Checker) planOfAttempt(t *task, a *attempt) (p *events.Plan, step int) {
	switch earlier := c.earlierPlans[t]; {
	case a.plan() < min(len(earlier), mostPlans):
		p = earlier[a.plan()]
	case a.plan() == mostPlans:
		return nil, 0
	default:
		p = t.plan
	}
	step, _ = p.Step(t.plan.Steps[a.step].ID)
	return p, step
}

// runBits are the bits of attempt.runAndPlan that have the run's number. mostPlans is the greatest number of earlier plans that the
// others can have: those, or more.
const (
	runBits   = 2
	mostPlans = 1<<(8-runBits) - 1
)

// runAndPlan returns attempt.runAndPlan of a run, after a number of migrations.
func runAndPlan(run uint8, migrations int) uint8 {
	return run | uint8(min(migrations, mostPlans))<<runBits
}

func (a *attempt) run() uint8 { return a.runAndPlan & (1<<runBits - 1) }

func (a *attempt) plan() int { return int(a.runAndPlan >> runBits) }

func leadMigrated(s *eventCheck, l *lead, _ *input) {
	if f, ok := s.e.Fact.(*events.TaskMigrated); ok {
		l.by, l.version = sumOfBy(&f.By), f.Version
	}
}

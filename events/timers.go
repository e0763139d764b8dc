package events

import (
	"cmp"
	"slices"
	"time"
)

// Slot names one of a task's timers: its own (Step is empty), or that of a step's run. At most one timer of a slot is
// armed.
type Slot struct {
	Step string
	Kind Kind
}

// Armed is an armed timer with what a recovery needs, and nothing else of the task.
type Armed struct {
	Slot    Slot
	Timer   Timer
	Attempt int
	Policy  Policy
}

// Due is an armed timer that is due. Asked counts the recoveries that this reader has asked for. It
// isn't stored, so a restart counts from 0.
type Due struct {
	Task  string
	Armed Armed
	Asked int
}

// Timers is a supervisor's state of a task: the armed timers, at most one per slot. The zero value has none.
type Timers struct {
	Task  string
	Armed []Armed
}

// Evolve folds an event into the armed timers of its task. It reads the same facts as the fold of
// tasks. A test compares the two after every event of random histories.
func (t *Timers) Evolve(e *Event) {
	a := e.Fact.About()
	switch a.Disarms {
	case DisarmsNone:
		if a.Verb == VerbReceived {
			t.Task = e.Task
		}
	case DisarmsAll:
		t.Armed = nil
	case DisarmsStep:
		t.disarm(Slot{a.Step, Do})
		t.disarm(Slot{a.Step, Undo})
		t.disarm(Slot{a.Step, Check})
		t.set(e, &a)
	case DisarmsWaiting:
		t.endWaiting(&a)
		t.set(e, &a)
		if a.Verb == VerbResumed && e.Policy != nil {
			t.giveTime(e.Policy.CompleteBy)
		}
	case DisarmsOwn:
		t.set(e, &a)
	case DisarmsReplanned:
		t.replan(e, &a)
	}
}

// Slot returns the slot of an event that changes only this timer. one is false if the event may change several. A task
// of a thousand steps has as many timers, and most events concern one.
func (e *Event) Slot() (s Slot, one bool) {
	a := e.Fact.About()
	if a.Disarms != DisarmsOwn {
		return Slot{}, false
	}
	return a.Slot(), true
}

// set disarms the slot of the event's run or task, and arms it again if the event does.
func (t *Timers) set(e *Event, a *About) {
	t.disarm(a.Slot())
	if !e.Due.IsZero() && e.Policy != nil {
		t.Armed = append(t.Armed, Armed{Slot: a.Slot(), Timer: timerOf(e), Attempt: a.Attempt, Policy: *e.Policy})
	}
}

func (t *Timers) disarm(s Slot) {
	t.Armed = slices.DeleteFunc(t.Armed, func(a Armed) bool { return a.Slot == s })
}

// endWaiting keeps the timers of runs that go on running (stepStates.afterEnd).
func (t *Timers) endWaiting(a *About) {
	kept := t.Armed[:0]
	for _, was := range t.Armed {
		if k := was.Policy.Timer; k == TimerAttempt || k == TimerStep && a.Verb != VerbUndoing {
			kept = append(kept, was)
		}
	}
	t.Armed = kept
}

// giveTime sets a task's new complete-by in the policies of running steps. They were armed with the old one
// before the hold, and their retries must have the new one.
func (t *Timers) giveTime(completeBy time.Time) {
	for i := range t.Armed {
		if a := &t.Armed[i]; a.Policy.Timer.ofRunning() && a.Slot.Kind == Do {
			a.Policy.CompleteBy = completeBy
		}
	}
}

// Timers returns the armed timers of the task, equal to the fold of its events by Timers.Evolve. With it a supervisor
// continues from a snapshot. It assumes that each event that armed a timer had the policy of Task.Policy or TaskPolicy.
func (t *Task) Timers() Timers {
	all := Timers{Task: t.ID}
	if !t.Open() {
		return all
	}
	if t.Timer.Armed() {
		all.Armed = append(all.Armed, Armed{Timer: t.Timer, Policy: *t.TaskPolicy(t.CompleteBy)})
	}
	for i := range t.Steps {
		for _, k := range [...]Kind{Do, Undo, Check} {
			if r := t.Run(i, k); r != nil && r.Timer.Armed() {
				all.Armed = append(all.Armed, Armed{Slot: Slot{t.Plan.Steps[i].ID, k}, Timer: r.Timer, Attempt: r.Attempt,
					Policy: *t.Policy(i, k, t.TimerKind(i, k))})
			}
		}
	}
	slices.SortFunc(all.Armed, func(a, b Armed) int { return cmp.Compare(a.Timer.Seq, b.Timer.Seq) }) // in the order in which they were armed
	return all
}

// Policy returns the policy for an event that arms the timer of a run. The task must be in the state after that event.
func (t *Task) Policy(step int, k Kind, timer TimerKind) *Policy {
	p := &Policy{Timer: timer, Attempts: t.Plan.AttemptsOf(step, k), OnError: OnErrorHold}
	if k == Do {
		p.OnError, p.CompleteBy = t.Plan.OnError, t.CompleteBy
	}
	p.Final = timer == TimerAttempt && !t.Plan.RetryCodesOf(step, k).Allow(CodeExpired)
	if r := t.Run(step, k); r != nil {
		p.FailureCount, p.CooledDown = r.FailureCount, r.CooledDown
	}
	if s := t.Steps[step]; k == Check && s.KindState().Checking != s.Attempt { // a new check, with the whole budget
		p.FailureCount, p.CooledDown = 0, false
	}
	return p
}

// TaskPolicy returns the policy for an event that arms the timer of the task.
func (t *Task) TaskPolicy(due time.Time) *Policy {
	return &Policy{Timer: TimerTask, OnError: t.Plan.OnError, CompleteBy: due}
}

// TimerKind returns the kind of timer that a run has armed.
func (t *Task) TimerKind(step int, k Kind) TimerKind {
	switch t.Run(step, k).State {
	case StepRunning:
		return runningTimers[t.Plan.StepKindOf(step, k)]
	case StepWaiting:
		return TimerWaiting
	default:
		return TimerFailed
	}
}

// Recovery returns the recovery to ask for when the timer is due.
func (a *Armed) Recovery(task string, next NextRecovery) *Recovery {
	return &Recovery{Task: task, Timer: a.Timer.Seq, Action: next.Action, Step: a.Slot.Step, Kind: a.Slot.Kind,
		CompleteBy: next.CompleteBy, Until: next.Until}
}

// Encode returns the stored form of the timers.
func (t *Timers) Encode() []byte { return encodeObject(t) }

// DecodeTimers is the inverse of Encode.
func DecodeTimers(data []byte) (*Timers, error) {
	t := &Timers{}
	return t, decodeObject(data, t)
}

func (t *Timers) fields(c *codec) {
	c.str("task", &t.Task)
	objects(c, "armed", &t.Armed, func(c *codec, a *Armed) {
		c.str("step", &a.Slot.Step)
		knownText(c, "kind", &a.Slot.Kind)
		a.Timer.fields(c)
		c.int("attempt", &a.Attempt)
		optionalValue(c, "policy", &a.Policy)
	})
}

func optionalValue(c *codec, name string, p *Policy) {
	v := p
	optional(c, name, &v, func(c *codec, p *Policy) { p.fields(c) })
	if c.decoding && v != nil {
		*p = *v
	}
}

package events

import "slices"

// Slot names one of a task's timers: its own (an empty step), or that of a
// step's run. At most one timer of a slot is armed.
type Slot struct {
	Step string
	Kind Kind
}

// Armed is an armed timer as a supervisor keeps it: everything that a recovery
// needs, and nothing of the task.
type Armed struct {
	Slot    Slot
	Timer   Timer
	Attempt int
	Policy  Policy
}

// Due is an armed timer that is due, as an index of timers by instant tells a
// supervisor of it. Asked counts the recoveries asked for it so far by the
// reader that keeps the index; it isn't stored, so a restart counts anew.
type Due struct {
	Task  string
	Armed Armed
	Asked int
}

// Timers is what a supervisor keeps of a task: the armed timers, by slot. The
// zero value is a task without any.
type Timers struct {
	Task  string
	Armed []Armed
}

// Evolve folds an event into the armed timers of its task. It is the second
// reader of the same facts as the task's own fold; a test holds the two against
// each other after every event of random histories.
func (t *Timers) Evolve(e *Event) {
	switch f := e.Fact.(type) {
	case *TaskReceived:
		t.Task = e.Task
	case *TaskStarted:
		t.set(e, Slot{}, 0)
	case *TaskProcessed, *TaskUndone, *TaskCancelled:
		t.Armed = nil
	case *TaskUndoing, *TaskHeld, *TaskResumed:
		t.endWaiting()
		t.set(e, Slot{}, 0)
	case *RunSkipped:
		t.set(e, Slot{f.Step, Do}, 0)
	case *RunReleased:
		t.disarm(Slot{f.Step, Do})
		t.disarm(Slot{f.Step, Undo})
	case *AttemptStarted:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *AttemptCompleted:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *AttemptFailed:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *AttemptRejected:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *AttemptExpired:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *AttemptWaiting:
		t.set(e, Slot{f.Step, f.Kind}, f.Attempt)
	case *RunErrored:
		t.set(e, Slot{f.Step, f.Kind}, 0)
	}
}

// set disarms the slot and arms it anew if the event does.
func (t *Timers) set(e *Event, s Slot, attempt int) {
	t.disarm(s)
	if !e.Due.IsZero() && e.Policy != nil {
		t.Armed = append(t.Armed, Armed{Slot: s, Timer: armed(e), Attempt: attempt, Policy: *e.Policy})
	}
}

func (t *Timers) disarm(s Slot) {
	t.Armed = slices.DeleteFunc(t.Armed, func(a Armed) bool { return a.Slot == s })
}

// endWaiting keeps the timers of running attempts only.
func (t *Timers) endWaiting() {
	kept := t.Armed[:0]
	for _, a := range t.Armed {
		if a.Policy.Timer == TimerAttempt {
			kept = append(kept, a)
		}
	}
	t.Armed = kept
}

// Recovery is what to ask for when the timer is due.
func (a *Armed) Recovery(task string, ask Ask) *Recovery {
	return &Recovery{Task: task, Timer: a.Timer.Seq, Action: ask.Action, Step: a.Slot.Step, Kind: a.Slot.Kind,
		CompleteBy: ask.CompleteBy, Until: ask.Until}
}

// Encode is the stored form of the timers.
func (t *Timers) Encode() []byte { return encodeObject(t) }

// DecodeTimers is the inverse of Encode.
func DecodeTimers(data []byte) (*Timers, error) {
	t := &Timers{}
	return t, decodeObject(data, t)
}

func (t *Timers) fields(c *codec) {
	c.str("task", &t.Task)
	list(c, "armed", &t.Armed, func(c *codec, a *Armed) {
		c.str("step", &a.Slot.Step)
		text(c, "kind", &a.Slot.Kind)
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

package events

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// What happens when a task or a step can't continue.
const (
	OnErrorUndo = "undo"
	OnErrorHold = "hold"
)

// Plan is what the fold needs of a workflow definition: the graph, the agents, and the rules of retries. A task's first
// event has it, so reading a log needs no definition. A Plan is never changed: tasks of the same definition share one.
type Plan struct {
	OnError        string
	CompleteWithin time.Duration
	DedupeFor      time.Duration // how long the ids of ended tasks are known at least; 0: for ever
	Steps          []PlanStep

	raw   json.RawMessage
	index map[string]int
}

// PlanStep is one step of a plan.
type PlanStep struct {
	ID        string
	StepKind  StepKind
	Needs     []int  // indices of steps, in any order; the graph has no cycle
	Agent     string // empty: the step's kind calls none
	Operation string
	Signal    string // of SignalStep: the name of the signal; Attempts.CompleteWithin is how long the step waits
	Workflow  string // of WorkflowStep: the workflow of the child; Attempts.CompleteWithin bounds the child
	Version   int    // of WorkflowStep: the version of the child's workflow; 0: the newest at its start
	Attempts  Attempts
	Repeat    *PlanRepeat // nil: the first call that completes ends the step
	Items     *PlanItems  // of ItemsStep
	RetryCodes
	Catch []string  // the codes of errors after which the task goes on; "*": any
	Pivot bool      // once it is completed, a failure holds the task
	Undo  *PlanUndo // nil: the step is skipped when the task is undone
	Check *PlanUndo // nil: no agent is asked what became of an unknown effect
}

// PlanUndo is the undo or the check of a step.
type PlanUndo struct {
	Agent     string
	Operation string
	Attempts  Attempts
	RetryCodes
}

// Attempts is the rule by which attempts are made.
type Attempts struct {
	CompleteWithin time.Duration // of one attempt
	MaxAttempts    int
	Backoff        time.Duration
	Factor         float64
	Max            time.Duration
	CoolDown       time.Duration // 0: no attempt past MaxAttempts
	Heartbeat      time.Duration // the longest silence in an attempt; 0: up to its complete-by
}

// NewPlan completes a plan: it indexes the steps and encodes the plan. Durations are cut to
// milliseconds as in the encoding, so a plan that was made and one that was read are equal.
func NewPlan(onError string, completeWithin time.Duration, steps []PlanStep) *Plan {
	steps = slices.Clone(steps)
	for i := range steps {
		s := &steps[i]
		s.Attempts = s.Attempts.wholeMillis()
		if s.Repeat != nil {
			s.Repeat = &PlanRepeat{s.Repeat.Every.Truncate(time.Millisecond), s.Repeat.Max}
		}
		if s.Undo != nil {
			undo := *s.Undo
			undo.Attempts = undo.Attempts.wholeMillis()
			s.Undo = &undo
		}
		if s.Check != nil {
			check := *s.Check
			check.Attempts = check.Attempts.wholeMillis()
			s.Check = &check
		}
	}
	p := &Plan{OnError: onError, CompleteWithin: completeWithin.Truncate(time.Millisecond), Steps: steps}
	p.raw = encodeObject(p)
	p.makeIndex()
	return p
}

// WithDedupeFor returns a copy of the plan with another DedupeFor, in whole milliseconds.
func (p *Plan) WithDedupeFor(d time.Duration) *Plan {
	c := *p
	c.DedupeFor = d.Truncate(time.Millisecond)
	c.raw = encodeObject(&c)
	return &c
}

func (a Attempts) wholeMillis() Attempts {
	for _, d := range []*time.Duration{&a.CompleteWithin, &a.Backoff, &a.Max, &a.CoolDown, &a.Heartbeat} {
		*d = d.Truncate(time.Millisecond)
	}
	return a
}

func (p *Plan) makeIndex() {
	p.index = make(map[string]int, len(p.Steps))
	for i := range p.Steps {
		p.index[p.Steps[i].ID] = i
	}
}

// Step returns the index of a step.
func (p *Plan) Step(id string) (int, bool) {
	i, ok := p.index[id]
	return i, ok
}

// other returns the undo or the check of a step; nil for the step's operation, and if there is none.
func (p *Plan) other(step int, k Kind) *PlanUndo {
	switch k {
	case Undo:
		return p.Steps[step].Undo
	case Check:
		return p.Steps[step].Check
	case Do:
	}
	return nil
}

// Has reports whether a step has a run of a kind: its operation, and an undo or a check if the definition gives it one.
func (p *Plan) Has(step int, k Kind) bool { return k == Do || p.other(step, k) != nil }

// AttemptsOf returns the rule for a step's operation, its undo or its check.
func (p *Plan) AttemptsOf(step int, k Kind) Attempts {
	if o := p.other(step, k); o != nil {
		return o.Attempts
	}
	return p.Steps[step].Attempts
}

// StepKindOf returns the kind of a step. It is CallStep for an undo and for a check, except that the undo of a step with a
// child is the child's withdrawal.
func (p *Plan) StepKindOf(step int, k Kind) StepKind {
	return stepKindOf(p.Steps[step].StepKind, k)
}

// Agent returns the agent and the operation of a step, or of its undo or check. They are empty if the step's kind calls no
// agent.
func (p *Plan) Agent(step int, k Kind) (agent, operation string) {
	if o := p.other(step, k); o != nil {
		return o.Agent, o.Operation
	}
	return p.Steps[step].Agent, p.Steps[step].Operation
}

func (p *Plan) fields(c *codec) {
	c.str("on_error", &p.OnError)
	c.millis("complete_within_ms", &p.CompleteWithin)
	c.millis("dedupe_for_ms", &p.DedupeFor)
	objects(c, "steps", &p.Steps, func(c *codec, s *PlanStep) { s.fields(c) })
}

func (s *PlanStep) fields(c *codec) {
	c.str("id", &s.ID)
	knownText(c, "kind", &s.StepKind)
	c.ints("needs", &s.Needs)
	c.str("agent", &s.Agent)
	c.str("operation", &s.Operation)
	c.str("signal", &s.Signal)
	c.str("workflow", &s.Workflow)
	c.int("version", &s.Version)
	s.Attempts.fields(c)
	optional(c, "repeat", &s.Repeat, func(c *codec, r *PlanRepeat) { r.fields(c) })
	optional(c, "items", &s.Items, func(c *codec, p *PlanItems) { p.fields(c) })
	s.RetryCodes.fields(c)
	c.texts("catch", &s.Catch)
	c.bool("pivot", &s.Pivot)
	optional(c, "undo", &s.Undo, func(c *codec, u *PlanUndo) { u.fields(c) })
	optional(c, "check", &s.Check, func(c *codec, u *PlanUndo) { u.fields(c) })
}

func (u *PlanUndo) fields(c *codec) {
	c.str("agent", &u.Agent)
	c.str("operation", &u.Operation)
	u.Attempts.fields(c)
	u.RetryCodes.fields(c)
}

func (a *Attempts) fields(c *codec) {
	c.millis("complete_within_ms", &a.CompleteWithin)
	c.int("max_attempts", &a.MaxAttempts)
	c.millis("backoff_ms", &a.Backoff)
	c.float("factor", &a.Factor)
	c.millis("max_ms", &a.Max)
	c.millis("cool_down_ms", &a.CoolDown)
	c.millis("heartbeat_ms", &a.Heartbeat)
}

// maxSharedPlans bounds the table of plans that tasks share. At the bound the table is emptied. Plans in use remain
// valid and are only no longer shared.
const maxSharedPlans = 4096

var sharedPlans = struct {
	sync.RWMutex
	byRaw map[string]*Plan
}{byRaw: map[string]*Plan{}}

// decodePlan returns the plan of a stored form. The same bytes give the same pointer, since most tasks of a log share a
// few definitions.
func decodePlan(raw []byte) (*Plan, error) {
	sharedPlans.RLock()
	p := sharedPlans.byRaw[string(raw)]
	sharedPlans.RUnlock()
	if p != nil {
		return p, nil
	}
	p = &Plan{}
	if err := decodeObject(raw, p); err != nil {
		return nil, err
	}
	if err := p.checkKinds(); err != nil {
		return nil, err
	}
	if err := p.checkNeeds(); err != nil {
		return nil, err
	}
	p.raw = json.RawMessage(strings.Clone(string(raw)))
	p.makeIndex()
	if _, unnamed := p.index[""]; unnamed || len(p.index) < len(p.Steps) {
		return nil, badValue("plan", "not every step has an id of its own") // an empty step id denotes the task itself
	}
	sharedPlans.Lock()
	defer sharedPlans.Unlock()
	if len(sharedPlans.byRaw) >= maxSharedPlans {
		sharedPlans.byRaw = map[string]*Plan{}
	}
	sharedPlans.byRaw[string(p.raw)] = p
	return p, nil
}

// checkKinds returns an error for a kind of step that this build doesn't know.
func (p *Plan) checkKinds() error {
	for i := range p.Steps {
		if s := &p.Steps[i]; runningTimers[s.StepKind] == "" {
			return badValue("plan", "step "+s.ID+" is of kind "+string(s.StepKind)+", which this build doesn't know")
		}
	}
	return nil
}

// checkNeeds returns an error for a graph that no valid definition has: it needs a step outside the plan, or has a
// cycle.
func (p *Plan) checkNeeds() error {
	left := make([]int, len(p.Steps)) // by step, the number of its needs that aren't in ended
	neededBy := make([][]int, len(p.Steps))
	var ended []int
	for i := range p.Steps {
		for _, n := range p.Steps[i].Needs {
			if n < 0 || n >= len(p.Steps) {
				return badValue("plan", "step "+p.Steps[i].ID+" needs a step that isn't there")
			}
			neededBy[n] = append(neededBy[n], i)
		}
		if left[i] = len(p.Steps[i].Needs); left[i] == 0 {
			ended = append(ended, i)
		}
	}
	for n := 0; n < len(ended); n++ {
		for _, i := range neededBy[ended[n]] {
			if left[i]--; left[i] == 0 {
				ended = append(ended, i)
			}
		}
	}
	if len(ended) < len(p.Steps) {
		i := slices.IndexFunc(left, func(n int) bool { return n > 0 })
		return badValue("plan", "step "+p.Steps[i].ID+" needs itself, by way of what it needs")
	}
	return nil
}

// Bytes returns the size of the plan's stored form.
func (p *Plan) Bytes() int { return len(p.raw) }

package workflow

import (
	"fmt"
	"time"
)

// The bounds of a definition. Exceeding one is a fault that names the bound.
const (
	MaxDefinitionBytes = 512 << 10
	MaxSteps           = 1024
	MaxNeeds           = 256 // of one step
	MaxDepth           = 32  // of nested lists and objects in an input or output
	MaxExpressionBytes = 4096
	MaxVersion         = 1_000_000_000
	MaxAttempts        = 1000
	MaxFactor          = 100

	MinDuration = Duration(time.Millisecond)
	MaxDuration = Duration(10 * 365 * 24 * time.Hour)
)

// The values of Definition.OnError.
const (
	OnErrorUndo = "undo"
	OnErrorHold = "hold"
)

// DefaultRetry applies to fields that neither a step nor Defaults set. It allows one attempt. If more attempts are set,
// the backoff starts at 1 s and doubles up to 1 minute. There is no cool-down.
var DefaultRetry = Retry{
	MaxAttempts: 1,
	Backoff:     Duration(time.Second),
	Factor:      2,
	Max:         Duration(time.Minute),
}

// Definition is one version of a workflow. ParseYAML, ParseJSON and Builder.Build return valid definitions. In those
// the defaults of single fields are filled in. Definitions must not be changed; they are safe for concurrent use.
type Definition struct {
	// Name and Version identify the definition. A changed body needs a new version.
	Name    string `json:"workflow"`
	Version int    `json:"version"`
	// CompleteWithin bounds the whole task, and each attempt of its steps.
	CompleteWithin Duration `json:"complete_within"`
	// OnError says what happens when a step fails or the task's complete-by passes: OnErrorUndo (the default) or
	// OnErrorHold.
	OnError string `json:"on_error"`
	// DedupeFor is how long the id of an ended task is known at least: until then, a repeated submission starts no second
	// task. 0: for ever.
	DedupeFor Duration `json:"dedupe_for"`
	Defaults  Defaults `json:"defaults"`
	// Labels are computed when a task is received, and added to those of its submission; of the same name, the
	// submission's counts. A value is text that may contain expressions, which can't name steps. At most events.MaxLabels.
	Labels map[string]string `json:"labels"`
	// Steps are in the order of the file.
	Steps []Step `json:"steps"`
	// Output is a tree of nil, bool, json.Number, string, []any and map[string]any. Its strings may contain
	// expressions. nil: no output.
	Output any `json:"output"`

	source source
}

// Defaults apply to every step that leaves the field out.
type Defaults struct {
	CompleteWithin Duration `json:"complete_within"` // of one attempt; 0: none given
	Retry          *Retry   `json:"retry"`
}

// Step is one step of a workflow. Its own fields make its kind: Agent and Operation a call of an agent, Wait or WaitUntil
// a wait, Signal one for a signal, Workflow a child task.
type Step struct {
	ID        string `json:"-"`
	Agent     string `json:"agent"`
	Operation string `json:"operation"`
	// Wait is a duration, or an expression "${ ... }" that gives one, from when the step starts.
	Wait string `json:"wait"`
	// WaitUntil is an instant as in RFC 3339, or an expression that gives a timestamp. One in the past ends at once.
	WaitUntil string `json:"wait_until"`
	// Signal is the name of the signal that the step waits for. Its CompleteWithin is required.
	Signal string `json:"signal"`
	// Workflow is the workflow of the child task that the step runs, and Version its version; 0: the newest when the child
	// starts. ChildID is the child's id, which may have expressions. Empty: <task>/<step>.
	Workflow string   `json:"workflow"`
	Version  int      `json:"version"`
	ChildID  string   `json:"id"`
	Needs    []string `json:"needs"`
	// When is an expression "${ ... }" with a boolean result; false skips the step. Empty: true.
	When string `json:"when"`
	// ForEach is an expression "${ ... }" that gives a list. The step runs once for each item, as a task of its own, and
	// its output is the list of outputs, in the order of the items. Empty: the step runs once.
	ForEach     string `json:"for_each"`
	MaxParallel int    `json:"max_parallel"` // items that run at the same time; 1 to MaxParallel; 0: DefaultParallel
	// OnItemError is OnItemErrorFail, or OnItemErrorCollect: an item's output is then {"error": {...}}. Empty: fail.
	OnItemError string `json:"on_item_error"`
	// Outputs is OutputsList, or OutputsSummary: the step's output is {"count", "completed", "failed"}, and the items' own
	// outputs are in their tasks. Empty: list.
	Outputs string `json:"outputs"`
	// Input is a tree like Definition.Output; nil: an empty object.
	Input          any       `json:"input"`
	CompleteWithin *Duration `json:"complete_within"` // of one attempt; nil: as in Defaults
	// Heartbeat is the longest silence between two reports of progress of an attempt: at least MinHeartbeat, and shorter
	// than CompleteWithin. nil: the agent needn't report.
	Heartbeat *Duration `json:"heartbeat"`
	Retry     *Retry    `json:"retry"`
	Repeat    *Repeat   `json:"repeat"` // nil: the first call that completes ends the step
	Check     *Check    `json:"check"`  // nil: no agent is asked what became of an unknown effect
	Undo      *Undo     `json:"undo"`
	// Catch lists codes of errors, or is ["*"]. If the step ends in error with one of them, the task goes on. What the
	// step may have changed is undone first.
	Catch []string `json:"catch"`
	// Pivot marks a point of no return: once the step is completed, the task is held after a failure, and never undone
	// unless an operator asks for it.
	Pivot bool `json:"pivot"`
}

// Undo is the compensating operation of a step.
type Undo struct {
	Operation string `json:"operation"`
	Agent     string `json:"agent"` // empty: the step's
	// Input is a tree like Definition.Output. Its result must be an object. nil: no input.
	Input          any       `json:"input"`
	CompleteWithin *Duration `json:"complete_within"`
	Heartbeat      *Duration `json:"heartbeat"` // as Step.Heartbeat; nil: none, even if the step has one
	Retry          *Retry    `json:"retry"`
}

// Retry says how often and when an attempt is repeated. A zero field is taken from the next outer Retry, and last from
// DefaultRetry.
type Retry struct {
	MaxAttempts int      `json:"max_attempts"` // the first one included; 1 to MaxAttempts
	Backoff     Duration `json:"backoff"`      // before the second attempt
	Factor      float64  `json:"factor"`       // by which the backoff grows each time; 1 to MaxFactor
	Max         Duration `json:"max"`          // upper bound of the backoff
	CoolDown    Duration `json:"cool_down"`    // wait before one more attempt past MaxAttempts; 0: none
	// Only lists the error codes that are retried, Except those that aren't. At most one of them is set; a rule with
	// one of them takes neither from an outer rule. Time-outs have the code events.CodeExpired. An undo doesn't take
	// the lists of its step.
	Only   []string `json:"only"`
	Except []string `json:"except"`
}

// fallBackTo fills the zero fields of r from the next outer rule.
func (r Retry) fallBackTo(outer *Retry) Retry {
	if outer == nil {
		return r
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = outer.MaxAttempts
	}
	if r.Backoff == 0 {
		r.Backoff = outer.Backoff
	}
	if r.Factor == 0 {
		r.Factor = outer.Factor
	}
	if r.Max == 0 {
		r.Max = outer.Max
	}
	if r.CoolDown == 0 {
		r.CoolDown = outer.CoolDown
	}
	if len(r.Only) == 0 && len(r.Except) == 0 {
		r.Only, r.Except = outer.Only, outer.Except
	}
	return r
}

// Key returns the definition's key on the definitions topic: "name/version".
func (d *Definition) Key() string { return fmt.Sprintf("%s/%d", d.Name, d.Version) }

// Effective returns how long one attempt of a step may take, from its start, and the step's retry rule. Defaults are
// applied to both. The rule's Max is at least its Backoff. It panics if step is out of range.
func (d *Definition) Effective(step int) (completeWithin time.Duration, r Retry) {
	s := &d.Steps[step]
	within := d.Defaults.CompleteWithin
	if s.CompleteWithin != nil {
		within = *s.CompleteWithin
	}
	return time.Duration(within), mergeRetry(s.Retry, d.Defaults.Retry)
}

// EffectiveUndo is Effective for a step's undo. Fields that the undo leaves out are those of the step, except the lists
// of codes. For a step without undo it equals Effective.
func (d *Definition) EffectiveUndo(step int) (completeWithin time.Duration, r Retry) {
	s := &d.Steps[step]
	if s.Undo == nil {
		return d.Effective(step)
	}
	completeWithin, _ = d.Effective(step)
	if s.Undo.CompleteWithin != nil {
		completeWithin = time.Duration(*s.Undo.CompleteWithin)
	}
	return completeWithin, mergeRetry(s.Undo.Retry, s.Retry.withoutCodes(), d.Defaults.Retry)
}

// EffectiveCheck is Effective for a step's check. Fields that the check leaves out are those of the step, except for the
// lists of error codes, which are about the operation.
func (d *Definition) EffectiveCheck(step int) (completeWithin time.Duration, r Retry) {
	s := &d.Steps[step]
	completeWithin, _ = d.Effective(step)
	if s.Check == nil {
		return d.Effective(step)
	}
	if s.Check.CompleteWithin != nil {
		completeWithin = time.Duration(*s.Check.CompleteWithin)
	}
	r = mergeRetry(s.Check.Retry, s.Retry, d.Defaults.Retry)
	if r.Only, r.Except = nil, nil; s.Check.Retry != nil {
		r.Only, r.Except = s.Check.Retry.Only, s.Check.Retry.Except
	}
	return completeWithin, r
}

// mergeRetry merges rules, the innermost first, and DefaultRetry.
func mergeRetry(rules ...*Retry) Retry {
	var r Retry
	for _, outer := range rules {
		r = r.fallBackTo(outer)
	}
	r = r.fallBackTo(&DefaultRetry)
	// A backoff longer than the default max, with no max given, is its own max.
	r.Max = max(r.Max, r.Backoff)
	return r
}

// Index returns the position of a step by its id, or -1.
func (d *Definition) Index(id string) int {
	for i := range d.Steps {
		if d.Steps[i].ID == id {
			return i
		}
	}
	return -1
}

// Agents returns the agents of steps and undos, each once, in the order of the file. Their request topics must exist
// before the definition is used.
func (d *Definition) Agents() []string {
	var agents []string
	seen := map[string]bool{}
	add := func(a string) {
		if a != "" && !seen[a] {
			seen[a] = true
			agents = append(agents, a)
		}
	}
	for i := range d.Steps {
		add(d.Steps[i].Agent)
		if u := d.Steps[i].Undo; u != nil {
			add(u.Agent)
		}
		if c := d.Steps[i].Check; c != nil {
			add(c.Agent)
		}
	}
	return agents
}

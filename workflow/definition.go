package workflow

import (
	"fmt"
	"time"
)

// Bounds of a definition. What exceeds one is refused with its name.
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

// DefaultRetry holds what neither a step nor the defaults say: one attempt,
// and for those that ask for more a backoff from 1 s, doubling to 1 minute,
// without a cool-down.
var DefaultRetry = Retry{
	MaxAttempts: 1,
	Backoff:     Duration(time.Second),
	Factor:      2,
	Max:         Duration(time.Minute),
}

// Definition is one version of a workflow. Those that ParseYAML, ParseJSON and
// Builder.Build return are valid, complete (defaults of single fields filled
// in) and must not be changed; they are then safe for concurrent use.
type Definition struct {
	// Name and Version identify the definition: a changed body needs a new version.
	Name    string `json:"workflow"`
	Version int    `json:"version"`
	// CompleteWithin bounds the whole task, and each attempt of its steps.
	CompleteWithin Duration `json:"complete_within"`
	// OnError is OnErrorUndo (the default) or OnErrorHold: what happens once a
	// step is in error or the task's time is over.
	OnError  string   `json:"on_error"`
	Defaults Defaults `json:"defaults"`
	// Steps are in the order of the file, where they are a map by id.
	Steps []Step `json:"steps"`
	// Output is a tree of nil, bool, json.Number, string, []any and
	// map[string]any whose strings may hold expressions; nil: no output.
	Output any `json:"output"`

	source source
}

// Defaults hold for every step that doesn't say otherwise.
type Defaults struct {
	CompleteWithin Duration `json:"complete_within"` // of one attempt; 0: none given
	Retry          *Retry   `json:"retry"`
}

// Step is one operation of one agent.
type Step struct {
	ID        string   `json:"-"`
	Agent     string   `json:"agent"`
	Operation string   `json:"operation"`
	Needs     []string `json:"needs"`
	// When is empty, or an expression "${ ... }" that gives a boolean; false skips the step.
	When string `json:"when"`
	// Input is a tree as Definition.Output; nil gives the empty object.
	Input          any       `json:"input"`
	CompleteWithin *Duration `json:"complete_within"` // of one attempt; nil: as in Defaults
	Retry          *Retry    `json:"retry"`
	Undo           *Undo     `json:"undo"`
}

// Undo is the compensating operation of a step.
type Undo struct {
	Operation string `json:"operation"`
	Agent     string `json:"agent"` // the step's, if none was given
	// Input is a tree as Definition.Output that gives an object; nil: none.
	Input          any       `json:"input"`
	CompleteWithin *Duration `json:"complete_within"`
	Retry          *Retry    `json:"retry"`
}

// Retry says how often and when an attempt is repeated. A field that is zero
// was not given and is taken from the next outer Retry, at last from DefaultRetry.
type Retry struct {
	MaxAttempts int      `json:"max_attempts"` // the first one included; 1 to MaxAttempts
	Backoff     Duration `json:"backoff"`      // before the second attempt
	Factor      float64  `json:"factor"`       // by which the backoff grows each time; 1 to MaxFactor
	Max         Duration `json:"max"`          // upper bound of the backoff
	CoolDown    Duration `json:"cool_down"`    // wait before one more attempt past MaxAttempts; 0: none
}

// over fills what r leaves out from the next outer retry rule.
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
	return r
}

// Key is the definition's key on the definitions topic: "name/version".
func (d *Definition) Key() string { return fmt.Sprintf("%s/%d", d.Name, d.Version) }

// Effective gives the deadline of one attempt of a step, counted from its
// start, and its retry rule, both with the defaults applied. Its Max is never
// below its Backoff. A step out of range panics.
func (d *Definition) Effective(step int) (completeWithin time.Duration, r Retry) {
	s := &d.Steps[step]
	within := d.Defaults.CompleteWithin
	if s.CompleteWithin != nil {
		within = *s.CompleteWithin
	}
	return time.Duration(within), mergeRetry(s.Retry, d.Defaults.Retry)
}

// EffectiveUndo is Effective of a step's undo: what the undo doesn't say is
// the step's. For a step without undo it answers as for one that says nothing.
func (d *Definition) EffectiveUndo(step int) (completeWithin time.Duration, r Retry) {
	s := &d.Steps[step]
	if s.Undo == nil {
		return d.Effective(step)
	}
	completeWithin, _ = d.Effective(step)
	if s.Undo.CompleteWithin != nil {
		completeWithin = time.Duration(*s.Undo.CompleteWithin)
	}
	return completeWithin, mergeRetry(s.Undo.Retry, s.Retry, d.Defaults.Retry)
}

// resolve folds the rules from the inside out, DefaultRetry last.
func mergeRetry(rules ...*Retry) Retry {
	var r Retry
	for _, outer := range rules {
		r = r.fallBackTo(outer)
	}
	r = r.fallBackTo(&DefaultRetry)
	// A backoff given without max, and longer than the default max, is its own max.
	r.Max = max(r.Max, r.Backoff)
	return r
}

// Index gives the position of a step by its id, or -1.
func (d *Definition) Index(id string) int {
	for i := range d.Steps {
		if d.Steps[i].ID == id {
			return i
		}
	}
	return -1
}

// Agents lists the agents that steps and undos ask, each once, in order of
// first mention: those whose request topics must exist.
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
	}
	return agents
}

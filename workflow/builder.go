package workflow

import "time"

// Builder makes a Definition in Go, the same as its YAML gives. It is for one
// goroutine, and for one Build.
type Builder struct{ d Definition }

// New begins a definition. Needed besides are CompleteWithin, a Step, and a
// deadline for each step: its own, or AttemptWithin for all.
func New(name string, version int) *Builder {
	return &Builder{d: Definition{Name: name, Version: version}}
}

// CompleteWithin bounds the whole task.
func (b *Builder) CompleteWithin(d time.Duration) *Builder {
	b.d.CompleteWithin = Duration(d)
	return b
}

// OnError sets OnErrorUndo, which is the default, or OnErrorHold.
func (b *Builder) OnError(what string) *Builder {
	b.d.OnError = what
	return b
}

// AttemptWithin bounds one attempt of each step that has no deadline of its own.
func (b *Builder) AttemptWithin(d time.Duration) *Builder {
	b.d.Defaults.CompleteWithin = Duration(d)
	return b
}

// Retry is the rule of every step, field by field where the step has none.
func (b *Builder) Retry(r Retry) *Builder {
	b.d.Defaults.Retry = &r
	return b
}

// Step adds a step. The trees in it are copied, the rest is the builder's.
func (b *Builder) Step(s Step) *Builder {
	b.d.Steps = append(b.d.Steps, s)
	return b
}

// Output sets what a task gives that was processed. The tree may hold Go
// values of any type that has a JSON form, and expressions in its strings.
func (b *Builder) Output(tree any) *Builder {
	b.d.Output = tree
	return b
}

// Build checks what ParseYAML checks and returns Errors with every fault.
func (b *Builder) Build() (*Definition, error) {
	p, err := Compile(&b.d)
	if err != nil {
		return nil, err
	}
	return p.Definition(), nil
}

package workflow

import (
	"maps"
	"time"
)

// Builder builds a Definition in Go. The result equals that of the same YAML. A Builder is for one goroutine and one
// call of Build.
type Builder struct{ d Definition }

// New starts a definition. It also needs CompleteWithin and at least one Step. Each step needs a deadline: its own, or
// that of AttemptWithin.
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

// DedupeFor sets how long the ids of ended tasks are known at least. Without it they are known for ever.
func (b *Builder) DedupeFor(d time.Duration) *Builder {
	b.d.DedupeFor = Duration(d)
	return b
}

// AttemptWithin bounds one attempt of each step that has no deadline of its own.
func (b *Builder) AttemptWithin(d time.Duration) *Builder {
	b.d.Defaults.CompleteWithin = Duration(d)
	return b
}

// Retry sets the retry rule of every step, for the fields that a step leaves zero.
func (b *Builder) Retry(r Retry) *Builder {
	b.d.Defaults.Retry = &r
	return b
}

// Labels sets the labels that are computed when a task is received.
func (b *Builder) Labels(labels map[string]string) *Builder {
	b.d.Labels = maps.Clone(labels)
	return b
}

// Step adds a step. Its trees are copied. The caller must not change anything else that the step points to.
func (b *Builder) Step(s Step) *Builder {
	b.d.Steps = append(b.d.Steps, s)
	return b
}

// Output sets the output of a processed task. The tree may hold Go values of any type that JSON can encode, and
// expressions in its strings.
func (b *Builder) Output(tree any) *Builder {
	b.d.Output = tree
	return b
}

// Build makes the same checks as ParseYAML. It returns Errors with all faults.
func (b *Builder) Build() (*Definition, error) {
	p, err := Compile(&b.d)
	if err != nil {
		return nil, err
	}
	return p.Definition(), nil
}

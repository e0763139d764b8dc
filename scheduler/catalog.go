package scheduler

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// programsMax bounds the compiled definitions that a process keeps. Each uses up to a few hundred KiB, and takes a few
// milliseconds to compile.
const programsMax = 200

// CompiledDefinitions holds the workflow definitions that were read from the definitions topic. Each is compiled at its
// first use. A CLOCK scan evicts programs that weren't used recently. A deleted definition is kept for the tasks that
// began with it. CompiledDefinitions is safe for concurrent use. The zero value has no definitions.
type CompiledDefinitions struct {
	// Rejected is called for each definition that can't be used. The definition is otherwise ignored.
	Rejected func(key string, err error)
	// Deleted is called when a definition is deleted while the log has no copy of it (events.KeptDefinition) that
	// outlives compaction. May be nil.
	Deleted func(d *workflow.Definition)

	mu          sync.RWMutex
	definitions map[string]*catalogEntry
	newest      map[string]int // version of each workflow for new tasks that name none; 0: none
	programs    int            // number of compiled programs
}

// catalogEntry is one version of a workflow. The lock of CompiledDefinitions guards all fields but used.
type catalogEntry struct {
	def         *workflow.Definition
	applied     bool                // new tasks may use it: it isn't deleted
	deprecation *events.Deprecation // the last one, also if it was taken back; nil: none
	hasCopy     bool                // the log has a copy under its own key (events.KeptDefinition)
	invalid     bool                // the definition doesn't compile
	program     *workflow.Program
	used        atomic.Bool // since the last eviction scan (CLOCK)
}

// Program returns a compiled definition. Deleted definitions are included, for the tasks that began with them.
func (c *CompiledDefinitions) Program(name string, version int) (*workflow.Program, bool) {
	p := c.programOf(events.DefinitionKey(name, version))
	return p, p != nil
}

// Definition returns a definition that compiles, as far as is known; nil: there is none. deleted reports that new tasks
// can't use it.
func (c *CompiledDefinitions) Definition(name string, version int) (def *workflow.Definition, deleted bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.definitions[events.DefinitionKey(name, version)]
	if d == nil || d.invalid {
		return nil, false
	}
	return d.def, !d.applied
}

// Absence says why new tasks can't have a definition.
type Absence int

const (
	Unknown       Absence = iota // no record has it, or it doesn't compile
	Deleted                      // it was deleted; of a workflow: all of its versions
	AllDeprecated                // all versions are deprecated that aren't deleted, and none was named
)

// Applied returns the definition for new tasks. Version 0 means the newest that isn't deprecated. If p is nil, why says
// what is wrong.
func (c *CompiledDefinitions) Applied(name string, version int) (p *workflow.Program, why Absence) {
	for {
		key, applied, why := c.findApplied(name, version)
		if !applied {
			return nil, why
		}
		if p := c.programOf(key); p != nil || version != 0 {
			return p, Unknown
		}
		// The newest version doesn't compile. Try the next one.
	}
}

// findApplied finds the definition for new tasks of a workflow.
func (c *CompiledDefinitions) findApplied(name string, version int) (key string, applied bool, why Absence) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	newest := version
	if newest == 0 {
		newest = c.newest[name]
	}
	key = events.DefinitionKey(name, newest)
	if d := c.definitions[key]; d != nil {
		if !d.applied {
			why = Deleted
		}
		return key, d.applied && !d.invalid, why
	}
	for _, d := range c.definitions {
		switch {
		case version != 0 || d.def.Name != name || d.invalid:
		case !d.applied:
			why = max(why, Deleted)
		default:
			why = AllDeprecated
		}
	}
	return key, false, why
}

// Deprecation returns why and by whom a version was deprecated; nil: it isn't, or there is none.
func (c *CompiledDefinitions) Deprecation(name string, version int) *events.Deprecation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if d := c.definitions[events.DefinitionKey(name, version)]; d != nil && d.applied && d.deprecation.Applies() {
		return d.deprecation
	}
	return nil
}

// programOf returns the program of a definition; nil: there is no usable one.
func (c *CompiledDefinitions) programOf(key string) *workflow.Program {
	c.mu.RLock()
	d := c.definitions[key]
	if d != nil && d.program != nil {
		p := d.program
		d.used.Store(true)
		c.mu.RUnlock()
		return p
	}
	c.mu.RUnlock()
	if d == nil {
		return nil
	}
	p, err := c.compile(d)
	if err != nil && c.Rejected != nil {
		c.Rejected(key, err)
	}
	return p
}

// compile compiles a definition unless another goroutine already did. It returns a compile error only once.
func (c *CompiledDefinitions) compile(d *catalogEntry) (*workflow.Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.program != nil || d.invalid {
		return d.program, nil
	}
	p, err := workflow.Compile(d.def)
	if err != nil {
		d.invalid = true
		c.updateNewest(d.def.Name)
		return nil, err
	}
	if c.programs++; c.programs > programsMax {
		c.evictProgram()
	}
	d.program = p
	d.used.Store(true)
	return p, nil
}

// evictProgram evicts a program that wasn't used since the last scan.
func (c *CompiledDefinitions) evictProgram() {
	for range 2 { // after the first scan no program counts as used
		for _, d := range c.definitions {
			if d.program != nil && !d.used.Swap(false) {
				d.program = nil
				c.programs--
				return
			}
		}
	}
}

// updateNewest finds the version of a workflow for new tasks that name none.
func (c *CompiledDefinitions) updateNewest(name string) {
	newest := 0
	for _, d := range c.definitions {
		if d.def.Name == name && d.applied && !d.invalid && !d.deprecation.Applies() {
			newest = max(newest, d.def.Version)
		}
	}
	c.newest[name] = newest
}

// All lists the definitions that new tasks may use.
func (c *CompiledDefinitions) All() []*workflow.Definition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*workflow.Definition, 0, len(c.definitions))
	for _, d := range c.definitions {
		if d.applied && !d.invalid {
			all = append(all, d.def)
		}
	}
	return all
}

// DeletedWithoutCopy lists the deleted definitions without a copy in the log.
func (c *CompiledDefinitions) DeletedWithoutCopy() []*workflow.Definition {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var unkept []*workflow.Definition
	for _, d := range c.definitions {
		if !d.applied && !d.hasCopy {
			unkept = append(unkept, d.def)
		}
	}
	return unkept
}

// Apply applies a record of the definitions topic. One goroutine calls it.
func (c *CompiledDefinitions) Apply(r *events.Record) {
	key, kept, is := events.ParseDefinitionKey(string(r.Key))
	if !is { // the namespace's format record
		return
	}
	if len(r.Value) == 0 {
		if d := c.delete(key, kept); d != nil && c.Deleted != nil {
			c.Deleted(d)
		}
		return
	}
	if err := c.apply(key, kept, r.Value, events.DeprecationOf(r)); err != nil && c.Rejected != nil {
		c.Rejected(key, err)
	}
}

// delete applies a tombstone. It returns the definition if the log has no copy of it any more.
func (c *CompiledDefinitions) delete(key string, kept bool) (unkept *workflow.Definition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.definitions[key]
	switch {
	case d == nil:
		return nil
	case kept:
		d.hasCopy = false
	default:
		d.applied, d.deprecation = false, nil
		c.updateNewest(d.def.Name)
	}
	if d.applied || d.hasCopy {
		return nil
	}
	return d.def
}

// apply applies a definition, or the copy of a deleted one. The first body of a version wins; a copy has the first
// body. The last deprecation wins.
func (c *CompiledDefinitions) apply(key string, kept bool, value []byte, deprecation *events.Deprecation) error {
	def, err := workflow.ParseJSON(value)
	if err != nil {
		return err
	}
	if def.Key() != key {
		return fmt.Errorf("the definition under the key %q has the key %q", key, def.Key())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.definitions == nil {
		c.definitions, c.newest = map[string]*catalogEntry{}, map[string]int{}
	}
	d := c.definitions[key]
	same := d != nil && bytes.Equal(d.def.JSON(), def.JSON())
	switch {
	case d == nil:
		d = &catalogEntry{def: def}
		c.definitions[key] = d
	case !same && kept: // compaction removed the body that tasks began with
		if d.program != nil {
			c.programs--
		}
		d = &catalogEntry{def: def}
		c.definitions[key] = d
		d.hasCopy = true
		c.updateNewest(def.Name)
		return fmt.Errorf("%s was deleted and applied again with another body: its tasks keep the first body; apply the change as a new version", key)
	case !same:
		return fmt.Errorf("%s was applied again with another body: tasks keep the first body; apply the change as a new version", key)
	}
	if kept {
		d.hasCopy = true
	} else {
		d.applied, d.deprecation = true, deprecation
	}
	c.updateNewest(def.Name)
	return nil
}

// absenceText returns the reason why no task of a workflow can be created.
func absenceText(s *events.Submission, why Absence) string {
	what, version := "no workflow "+quoted(s.Workflow), ""
	if s.Version > 0 {
		what, version = fmt.Sprintf("workflow %s has no version %d", quoted(s.Workflow), s.Version), fmt.Sprintf("version %d of ", s.Version)
	}
	switch why {
	case Unknown:
	case Deleted:
		what = version + "workflow " + quoted(s.Workflow) + " was deleted"
	case AllDeprecated:
		return "every version of workflow " + quoted(s.Workflow) + " is deprecated; name one of them, or apply a new one with `waybill workflow apply`"
	}
	return strings.TrimSpace(what) + "; apply it with `waybill workflow apply`"
}

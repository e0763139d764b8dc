package scheduler

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Compiled is the workflow definitions that were read from the definitions
// topic, compiled. It is safe for concurrent use.
type Compiled struct {
	// Rejected is told of a definition that can't be used; it is ignored.
	Rejected func(key string, err error)
	programs atomic.Pointer[programs]
}

// programs are never changed: a new definition makes a new map.
type programs struct {
	byKey  map[string]*workflow.Program
	newest map[string]int
}

// Program returns a compiled definition; version 0 asks for the newest.
func (c *Compiled) Program(name string, version int) (*workflow.Program, bool) {
	p := c.programs.Load()
	if p == nil {
		return nil, false
	}
	if version == 0 {
		version = p.newest[name]
	}
	prog, ok := p.byKey[definitionKey(name, version)]
	return prog, ok
}

func definitionKey(name string, version int) string { return name + "/" + strconv.Itoa(version) }

// All lists the compiled definitions.
func (c *Compiled) All() []*workflow.Program {
	p := c.programs.Load()
	if p == nil {
		return nil
	}
	all := make([]*workflow.Program, 0, len(p.byKey))
	for _, prog := range p.byKey {
		all = append(all, prog)
	}
	return all
}

// Apply takes in a record of the definitions topic. One goroutine calls it.
func (c *Compiled) Apply(r *events.Record) {
	key := string(r.Key)
	if !strings.Contains(key, "/") { // the namespace's format record
		return
	}
	if err := c.apply(key, r.Value); err != nil && c.Rejected != nil {
		c.Rejected(key, err)
	}
}

func (c *Compiled) apply(key string, value []byte) error {
	old := c.programs.Load()
	if old == nil {
		old = &programs{}
	}
	next := &programs{byKey: maps.Clone(old.byKey), newest: maps.Clone(old.newest)}
	if next.byKey == nil {
		next.byKey, next.newest = map[string]*workflow.Program{}, map[string]int{}
	}
	def, err := workflow.ParseJSON(value)
	if err != nil {
		return err
	}
	if def.Key() != key {
		return fmt.Errorf("the definition under the key %q calls itself %q", key, def.Key())
	}
	if had, ok := old.byKey[key]; ok {
		if !bytes.Equal(had.Definition().JSON(), def.JSON()) {
			return fmt.Errorf("%s was changed; tasks keep the one that was there before: apply the change as a new version", key)
		}
		return nil
	}
	if next.byKey[key], err = workflow.Compile(def); err != nil {
		return err
	}
	next.newest[def.Name] = max(next.newest[def.Name], def.Version)
	c.programs.Store(next)
	return nil
}

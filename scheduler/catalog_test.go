package scheduler

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// version returns the record of a definition with two steps.
func version(t *testing.T, name string, n int, agents ...string) events.Record {
	t.Helper()
	b := workflow.New(name, n).CompleteWithin(time.Hour).AttemptWithin(time.Minute)
	for i, agent := range agents {
		s := workflow.Step{ID: fmt.Sprint("s", i), Agent: agent, Operation: "do"}
		if i > 0 {
			s.Needs = []string{fmt.Sprint("s", i-1)}
		}
		b = b.Step(s)
	}
	d, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return events.Record{Key: []byte(d.Key()), Value: d.Stored()}
}

func tombstone(key string) *events.Record { return &events.Record{Key: []byte(key)} }

// TestProgramsAreBounded checks that the number of compiled programs is bounded for any number of versions, that each
// version can still be used, and that nothing keeps the others in memory.
func TestProgramsAreBounded(t *testing.T) {
	const versions = programsMax + 50
	c := &CompiledDefinitions{Rejected: func(key string, err error) { t.Errorf("%s: %v", key, err) }}
	for v := 1; v <= versions; v++ {
		r := version(t, "w", v, "a")
		c.Apply(&r)
	}
	if c.programs != 0 {
		t.Errorf("%d are compiled, and none was used", c.programs)
	}
	var compiled []weak.Pointer[workflow.Program]
	for round := range 2 {
		for v := versions; v > 0; v-- {
			p, ok := c.Program("w", v)
			if !ok || p.Definition().Version != v || len(PlanOf(p).Steps) == 0 {
				t.Fatalf("round %d: version %d isn't there", round, v)
			}
			compiled = append(compiled, weak.Make(p))
			if p, _ := c.Applied("w", 0); p == nil || p.Definition().Version != versions {
				t.Fatal("the newest isn't found")
			}
		}
	}
	runtime.GC()
	inMemory := map[weak.Pointer[workflow.Program]]bool{}
	for _, p := range compiled {
		if p.Value() != nil {
			inMemory[p] = true
		}
	}
	if len(inMemory) > programsMax+1 { // and the one of the loop's last round
		t.Errorf("%d programs are in memory, want %d", len(inMemory), programsMax)
	}
	kept := 0
	for _, d := range c.definitions {
		if d.program != nil {
			kept++
		}
	}
	if kept != programsMax || c.programs != kept {
		t.Errorf("%d programs are kept, and %d are counted; want %d", kept, c.programs, programsMax)
	}
}

// TestDeletedDefinition checks that tasks with a deleted definition can still use it and that new tasks can't. This
// must hold if all records are read, and if compaction has removed some.
func TestDeletedDefinition(t *testing.T) {
	one, two := version(t, "w", 1, "a"), version(t, "w", 2, "a")
	other := version(t, "w", 1, "b")
	kept := one
	kept.Key = []byte(events.KeptDefinition(string(one.Key)))
	for _, x := range []struct {
		name             string
		log              []*events.Record
		newest           int // 0: none
		one, deleted     bool
		rejected, unkept int
		first            *events.Record // the body of version 1
	}{
		{"applied", []*events.Record{&one}, 1, true, false, 0, 0, &one},
		{"deleted", []*events.Record{&one, tombstone("w/1")}, 0, false, true, 0, 1, &one},
		{"deleted, with a copy", []*events.Record{&one, tombstone("w/1"), &kept}, 0, false, true, 0, 0, &one},
		{"compacted", []*events.Record{tombstone("w/1"), &kept}, 0, false, true, 0, 0, &one},
		{"compacted long ago", []*events.Record{&kept}, 0, false, true, 0, 0, &one},
		{"the newest is deleted", []*events.Record{&one, &two, tombstone("w/2")}, 1, true, false, 0, 1, &one},
		{"applied again", []*events.Record{&one, tombstone("w/1"), &kept, &one}, 1, true, false, 0, 0, &one},
		{"applied again, compacted", []*events.Record{&kept, &one}, 1, true, false, 0, 0, &one},
		{"deleted, and another body", []*events.Record{&one, tombstone("w/1"), &other}, 0, false, true, 1, 1, &one},
		{"another body, before the copy", []*events.Record{&one, tombstone("w/1"), &other, &kept}, 0, false, true, 1, 0, &one},
		{"another body, compacted", []*events.Record{&other, &kept}, 0, false, true, 1, 0, &one},
		{"unknown", []*events.Record{tombstone("w/1")}, 0, false, false, 0, 0, nil},
	} {
		rejected := 0
		c := &CompiledDefinitions{Rejected: func(string, error) { rejected++ }}
		for _, r := range x.log {
			c.Apply(r)
		}
		newest := 0
		if p, _ := c.Applied("w", 0); p != nil {
			newest = p.Definition().Version
		}
		p, absent := c.Applied("w", 1)
		if newest != x.newest || (p != nil) != x.one || (absent == Deleted) != x.deleted || rejected != x.rejected || len(c.DeletedWithoutCopy()) != x.unkept {
			t.Errorf("%s: newest %d, version 1 applied %v, absence %v; %d rejected, %d unkept", x.name, newest, p != nil, absent, rejected, len(c.DeletedWithoutCopy()))
		}
		if p, ok := c.Program("w", 1); ok != (x.first != nil) || ok && !strings.Contains(string(x.first.Value), `"agent":"`+p.Definition().Agents()[0]+`"`) {
			t.Errorf("%s: tasks have %v", x.name, p)
		}
	}
}

// TestRunningTaskOutlivesItsDefinition deletes and compacts the definition of a running task. The task continues, also
// in a scheduler that starts later. New tasks are refused with the reason.
func TestRunningTaskOutlivesItsDefinition(t *testing.T) {
	s := newSite(t, 1)
	def := version(t, "two", 1, "inventory", "payments")
	s.catalog.unread = []events.Record{def}
	if err := s.catalog.ReadToEndNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := s.cluster.join(0)
	w := s.worker(log)
	s.submit("two", "running", "other")
	s.drain(w)

	var kept []events.Record
	s.catalog.Deleted = func(d *workflow.Definition) {
		kept = append(kept, events.Record{Key: []byte(events.KeptDefinition(d.Key())), Value: d.Stored()})
	}
	s.catalog.Apply(tombstone("two/1"))
	s.answer("inventory", "running")
	s.submit("two", "refused")
	s.drain(w)
	if got := s.asked("payments"); !slices.Equal(got, []string{"running"}) {
		t.Errorf("asked payments for %q", got)
	}

	// Another process reads the compacted topic.
	next := newSite(t, 1)
	next.catalog.unread = kept
	if err := next.catalog.ReadToEndNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.cfg.Catalog = next.catalog
	log.assign(0)
	s.answer("inventory", "other")
	s.answer("payments", "running")
	s.submit("two", "refused, too")
	s.drain(w)
	if got := s.asked("payments"); !slices.Equal(got, []string{"running", "other"}) {
		t.Errorf("asked payments for %q", got)
	}
	if got := s.events("running"); got[len(got)-1] != (&events.TaskProcessed{}).Type() {
		t.Errorf("running: %v", got)
	}
	dead := s.headers(ns.Deadletters(), events.HeaderDetail)
	if len(dead) != 2 || dead[0] != dead[1] || dead[0] != `workflow "two" was deleted; apply it with `+"`waybill workflow apply`" {
		t.Errorf("dead letters: %q", dead)
	}
}

// Applied implements Definitions.
func (w *scenario) Applied(name string, version int) (*workflow.Program, Absence) {
	p, known := w.Program(name, version)
	if w.gone || !known {
		return nil, Unknown
	}
	return p, Unknown
}

// TestDefinitionOfADeletedVersion checks that a definition is found by its version, and that a deleted one is as long as
// the log has its copy.
func TestDefinitionOfADeletedVersion(t *testing.T) {
	c := &CompiledDefinitions{Rejected: func(key string, err error) { t.Errorf("%s: %v", key, err) }}
	r := version(t, "w", 1, "a")
	c.Apply(&r)
	if d, deleted := c.Definition("w", 1); d == nil || d.Key() != "w/1" || deleted {
		t.Errorf("%v, deleted %v", d, deleted)
	}
	if d, _ := c.Definition("w", 2); d != nil {
		t.Errorf("version 2 is %v", d)
	}
	c.Apply(tombstone("w/1"))
	if d, deleted := c.Definition("w", 1); d == nil || !deleted {
		t.Errorf("once deleted it is %v, deleted %v", d, deleted)
	}
}

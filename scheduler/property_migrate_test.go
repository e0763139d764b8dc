package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

func init() {
	mustHappen = append(mustHappen, "migrations of processing tasks", "migrations of held tasks", "migrations of tasks that are undone", "migrations back",
		"migrations refused", "dry runs accepted", "dry runs refused", "migrations while an attempt runs", "migrations while a retry waits")
}

// version draws another version of a workflow: some of its steps are dropped, added or changed, and its rules differ.
func (g *graph) version(d dice, flawed bool) *graph {
	v := *g
	for range d.between(1, 5) {
		c := v.changed(d, flawed)
		if _, err := c.build(2); err == nil {
			v = c
		}
	}
	if d.coin() {
		v.steps = slices.Clone(v.steps)
		d.Shuffle(len(v.steps), func(i, j int) { v.steps[i], v.steps[j] = v.steps[j], v.steps[i] })
	}
	return &v
}

// changed returns a graph that differs in one part. It may be invalid.
func (g *graph) changed(d dice, flawed bool) graph {
	c := *g
	c.steps = slices.Clone(g.steps)
	i := d.IntN(len(c.steps))
	c.steps[i] = cloneStep(c.steps[i])
	s, n := &c.steps[i], "n"+strconv.Itoa(d.IntN(3))
	switch d.IntN(14) {
	case 0:
		return c.without(i)
	case 1:
		s.Needs = append(s.Needs, n)
		c.steps = append(c.steps, drawStep(d, n, nil, nil, flawed))
	case 2:
		c.steps = append(c.steps, drawStep(d, n, []string{s.ID}, nil, flawed))
	case 3:
		s.Operation = "do2"
	case 4:
		s.Agent = pick(d, agents)
	case 5:
		if s.Undo = nil; d.coin() {
			s.Undo = drawUndo(d, s.ID, flawed)
		}
	case 6:
		c.check(d)
	case 7:
		c.retry, s.Retry = drawRetry(d), nil
	case 8:
		c.onError = pick(d, []string{workflow.OnErrorUndo, workflow.OnErrorHold})
		c.within = d.span(time.Second, time.Minute)
	case 9:
		c.codes(d)
	case 10:
		if s.Repeat = nil; d.coin() {
			c.repeat(d, flawed)
		}
	case 11:
		c.beat(d)
	case 12:
		s.When, s.Needs = "", nil
	case 13:
		*s = workflow.Step{ID: s.ID, Needs: s.Needs, Wait: d.span(10*time.Millisecond, c.within/2).String()}
	}
	return c
}

// graphs returns the versions of the workflow.
func (h *history) graphs() []*graph {
	if h.second == nil {
		return []*graph{&h.graph}
	}
	return []*graph{&h.graph, h.second}
}

func (h *history) build() (ds []*workflow.Definition, err error) {
	for i, g := range h.graphs() {
		d, err := g.build(i + 1)
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// neverEnds reports whether a version has a step that is repeated until its calls are used up.
func (h *history) neverEnds() bool { return slices.ContainsFunc(h.graphs(), (*graph).neverEnds) }

// smaller returns histories whose versions lack one part of this one's.
func (h *history) smaller() (all []history) {
	add := func(change func(*history)) {
		c := *h
		change(&c)
		if _, err := c.build(); err == nil {
			all = append(all, c)
		}
	}
	for _, g := range h.graph.smaller() {
		add(func(h *history) { h.graph = g })
	}
	if h.second != nil {
		add(func(h *history) { h.second = nil })
		for _, g := range h.second.smaller() {
			add(func(h *history) { h.second = &g })
		}
	}
	return all
}

// migrate gives the task a version, usually the other one, or asks whether it would be migrated.
func (w *scenario) migrate() {
	if w.task == nil {
		return
	}
	version := 3 - w.task.Version
	if w.oneIn(8) {
		version = w.between(1, 3)
	}
	x := &events.Control{Task: "t", Command: events.Migrate, Version: version, DryRun: w.oneIn(4), ID: fmt.Sprint("migrate-", w.offset)}
	x.By = events.By{Who: "op", Why: "test", RequestID: x.ID}
	w.controls = append(w.controls, x)
	was := w.task.Version
	switch d := w.control(x); {
	case x.DryRun && d.Ignored == "":
		w.counts["dry runs accepted"]++
	case x.DryRun:
		w.counts["dry runs refused"]++
	case len(d.Events) == 0:
		w.counts["migrations refused"]++
	case was == 2:
		w.counts["migrations back"]++
	}
}

// migrated applies a migration to what was observed of the task.
func (w *scenario) migrated(f *events.TaskMigrated) {
	w.counts["migrations of "+map[events.TaskState]string{events.StateProcessing: "processing tasks", events.StateError: "held tasks",
		events.StateUndoing: "tasks that are undone"}[w.fold.State]]++
	w.definition = w.versions[f.Version-1].Definition()
	for i := range f.Plan.Steps {
		if id := f.Plan.Steps[i].ID; w.effects[id] == nil {
			w.effects[id] = &effect{}
		}
	}
	for s, r := range w.runs {
		if _, ok := f.Plan.Step(s.Step); !ok {
			delete(w.runs, s) // it hasn't begun
			continue
		}
		r.granted = 0
		switch run := w.fold.Run(w.index(s.Step), s.Kind); {
		case run == nil:
		case run.State == events.StepRunning:
			w.counts["migrations while an attempt runs"]++
		case run.State == events.StepWaiting: // the next attempt was decided
			w.counts["migrations while a retry waits"]++
			r.granted = r.attempts + 1
		}
	}
	w.undo.made = false // the version may have other undos
}

// migrationRefusal returns why a migration of the task is refused; empty: it isn't.
func (w *scenario) migrationRefusal(x *events.Control) string {
	p, _ := w.Applied(w.definition.Name, x.Version)
	if p == nil {
		return "there is no such version"
	}
	return MigrationRefusal(w.task, x.Version, PlanOf(p), w.clock())
}

// checkMigration checks that a dry run says what a migration does, and that a migration can be taken back.
func (w *scenario) checkMigration(x *events.Control, d *Decision) {
	dry := *x
	dry.DryRun = true
	env := w.env()
	env.DefinitionsRead = true
	said := Decide(w.task.Clone(), &dry, events.Cause{Inbox: events.Controls, Offset: w.offset + 1}, env)
	if len(said.Events) > 0 || (said.Ignored == "") != (len(d.Events) > 0) {
		w.failf("a dry run to version %d says %q, and leads to %v; the migration is ignored as %q", x.Version, said.Ignored, said.Events, d.Ignored)
	}
	if len(d.Events) == 0 || w.task.State == events.StateProcessing && !w.clock().Before(w.task.CompleteBy) {
		return
	}
	t, err := events.Evolve(w.task.Clone(), d.Events[0], "hash")
	if err != nil {
		w.failf("%v", err)
	}
	if why := MigrationRefusal(t, w.task.Version, w.task.Plan, w.clock()); why != "" {
		w.failf("a migration to version %d has no way back: %s", x.Version, why)
	}
}

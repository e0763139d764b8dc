package replay

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// Outlook is the effect of a definition on a task.
type Outlook struct {
	Task string `json:"task"`
	// At is the seq of the last event before the rerun: the last event of an open task, the first of an ended task.
	At uint64 `json:"at"`
	// Now is the task's state. Otherwise and Then are the final states without and with the definition; held is final
	// here. For an ended task Otherwise is Now.
	Now       events.TaskState `json:"now"`
	Otherwise events.TaskState `json:"otherwise"`
	Then      events.TaskState `json:"then"`
	// Changed is true if the events of the courses differ. Waits before attempts are ignored, since they depend on
	// delays of supervisors and agents. First is the first event that only one course has. FirstIn names that course:
	// then (with the definition) or otherwise.
	Changed bool         `json:"changed"`
	First   *events.Line `json:"first,omitempty"`
	FirstIn string       `json:"first_in,omitempty"`
	// Stalled says why the task can't continue; empty: it can. Assumed is the number of assumed answers.
	Stalled string `json:"stalled,omitempty"`
	Assumed int    `json:"assumed"`
	// Commands is the number of operators' commands that were left out.
	Commands int `json:"commands,omitempty"`
	// Failed says why the task could not be rerun. The other results are then unset.
	Failed string `json:"failed,omitempty"`
}

// Plan evaluates the effect of a definition on tasks, one after the other.
type Plan struct {
	Program *workflow.Program
	// Old returns the current definition of an open task. A PlanStopError ends the plan; another error is that of the
	// task.
	Old      func(name string, version int) (*workflow.Program, error)
	Assume   Assume
	Finished int  // evaluate so many of the last finished tasks; 0: the open ones
	All      bool // also return the outlooks of tasks that don't change
	// MaxEvents and Stop bound each simulation, as those of Fork.
	MaxEvents int
	Stop      func() error
}

// PlanStopError ends a plan.
type PlanStopError struct{ Err error }

func (e *PlanStopError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *PlanStopError) Unwrap() error { return e.Err }

// PlanResult is the result of a plan.
type PlanResult struct {
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	Tasks    int    `json:"tasks"`
	Changed  int    `json:"changed"`
	Stalled  int    `json:"stalled"`
	Failed   int    `json:"failed"` // tasks that could not be run
	Broken   int    `json:"broken"` // tasks with an event that can't be folded
	// Commanded counts tasks with operators' commands, which are left out.
	Commanded int       `json:"commanded"`
	Outlooks  []Outlook `json:"outlooks"`

	FirstError error `json:"-"` // of the first task that could not be run; first come the tasks of the Omission
}

// Run evaluates the tasks of the workflow. It also returns the tasks that can't be evaluated because events can't be
// read.
func (p *Plan) Run(ctx context.Context, from Source) (*PlanResult, *Omission, error) {
	def := p.Program.Definition()
	v := &PlanResult{Workflow: def.Name, Version: def.Version, Outlooks: []Outlook{}}
	choice, lost := NewChoice(def.Name, p.Finished), &Losses{}
	err := from.Read(ctx, "", func(r *events.Record) error {
		choice.Add(r)
		return nil
	}, lost.Add)
	if err != nil {
		return nil, nil, err
	}
	omitted, err := lost.FindOmission(ctx, from, "", func(_ string, t *events.Task) bool { return t == nil || t.Workflow == def.Name })
	if err != nil {
		return nil, nil, err
	}
	for i := range omitted.Tasks {
		choice.Drop(omitted.Tasks[i].Task)
		v.fail(omitted.Tasks[i].Task, errors.New(omitted.Tasks[i].Reason))
	}
	v.Broken, err = choice.Each(func(records []events.Record) error {
		look, err := p.Evaluate(records)
		stop, stops := errors.AsType[*PlanStopError](err)
		switch {
		case stops:
			return stop.Err
		case err != nil:
			v.fail(string(records[0].Key), err)
		default:
			v.add(look, p.All)
		}
		return ctx.Err()
	})
	return v, omitted, err
}

// fail adds a task that could not be run.
func (v *PlanResult) fail(id string, err error) {
	v.Tasks++
	if v.Failed++; v.FirstError == nil {
		v.FirstError = fmt.Errorf("%q: %w", id, err)
	}
	v.Outlooks = append(v.Outlooks, Outlook{Task: id, Failed: err.Error()})
}

func (v *PlanResult) add(o *Outlook, all bool) {
	v.Tasks++
	if o.Changed {
		v.Changed++
	}
	if o.Stalled != "" {
		v.Stalled++
	}
	if o.Commands > 0 {
		v.Commanded++
	}
	if all || o.Changed || o.Stalled != "" {
		v.Outlooks = append(v.Outlooks, *o)
	}
}

// Evaluate runs a task under both definitions. records are all records of the task.
func (p *Plan) Evaluate(records []events.Record) (*Outlook, error) {
	s := NewStepper(Until{}, false)
	for i := range records {
		if _, err := s.Add(&records[i]); err != nil {
			return nil, err
		}
	}
	t := s.Task()
	if t.Open() {
		return p.evaluateOpen(t, records)
	}
	f, err := p.run(p.Program, 1, records)
	if err != nil {
		return nil, err
	}
	o := newOutlook(t, f)
	o.Otherwise = t.State
	return o, nil
}

// evaluateOpen also runs an open task on under its current definition, since its future isn't recorded.
func (p *Plan) evaluateOpen(t *events.Task, records []events.Record) (*Outlook, error) {
	old, err := p.Old(t.Workflow, t.Version)
	if err != nil {
		return nil, err
	}
	otherwise, err := p.run(old, 0, records)
	if err != nil {
		return nil, err
	}
	f, err := p.run(p.Program, 0, records)
	if err != nil {
		return nil, err
	}
	for i := range otherwise.Forked {
		f.Recorded = append(f.Recorded, otherwise.Forked[i].Line)
	}
	o := newOutlook(t, f)
	o.Otherwise = otherwise.State
	return o, nil
}

func (p *Plan) run(program *workflow.Program, at uint64, records []events.Record) (*Forked, error) {
	return Fork{Program: program, At: at, Assume: p.Assume, MaxEvents: p.MaxEvents, Stop: p.Stop}.Run(records)
}

func newOutlook(t *events.Task, f *Forked) *Outlook {
	o := &Outlook{Task: f.Task, At: f.At, Now: t.State, Then: f.State, Stalled: f.Stalled, Assumed: f.Assumed, Commands: len(f.LeftOut)}
	rows := Pairs(&Forked{Recorded: slices.DeleteFunc(slices.Clone(f.Recorded), func(l events.Line) bool { return isRetryWait(&l) }),
		Forked: slices.DeleteFunc(slices.Clone(f.Forked), func(l ForkLine) bool { return isRetryWait(&l.Line) })})
	for i := range rows {
		if o.First = rows[i].single(); o.First != nil {
			o.Changed, o.FirstIn = true, "otherwise"
			if rows[i].Recorded == nil {
				o.FirstIn = "then"
			}
			break
		}
	}
	return o
}

// isRetryWait reports whether an event starts the wait before another attempt.
func isRetryWait(l *events.Line) bool {
	return l.Type == (&events.AttemptWaiting{Kind: events.Do}).Type() || l.Type == (&events.AttemptWaiting{Kind: events.Undo}).Type()
}

// Choice collects the records of the tasks that a plan evaluates: the open tasks of a workflow, or the last ones
// that ended. Partitions may be read in any order, and interleaved; the choice is the same. One goroutine uses it.
type Choice struct {
	workflow string
	finished int
	tasks    map[string]*candidate
	ended    endedHeap
	broken   map[string]bool // tasks with an event before their end that can't be folded
}

// candidate is a task that may be evaluated.
type candidate struct {
	events.Fold // it has an error only if the record comes after the task's end
	records     []events.Record
}

// endedHeap is a heap of ended tasks. The task that ended first is on top.
type endedHeap []*events.Task

func (e endedHeap) Len() int           { return len(e) }
func (e endedHeap) Less(i, j int) bool { return compareEnds(e[i], e[j]) < 0 }
func (e endedHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endedHeap) Push(t any)        { *e = append(*e, t.(*events.Task)) }
func (e *endedHeap) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// compareEnds orders tasks by the instant of their last event, and then by id, since offsets of two partitions
// don't compare.
func compareEnds(a, b *events.Task) int {
	return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.ID, b.ID))
}

// NewChoice creates a Choice of the open tasks of a workflow, or of its last finished tasks if finished > 0.
func NewChoice(name string, finished int) *Choice {
	return &Choice{workflow: name, finished: finished, tasks: map[string]*candidate{}, broken: map[string]bool{}}
}

// Add takes a record of the events topic. The records of a task come in order. If a task has the id of an earlier one,
// which was forgotten, only the later one is chosen.
func (c *Choice) Add(r *events.Record) {
	id := string(r.Key)
	if id == "" {
		return
	}
	t := c.tasks[id]
	e, err := events.ReadEvent(r)
	if err == nil && t != nil && t.Err == nil && t.Task.Renews(e) {
		c.remove(t.Task)
		delete(c.tasks, id)
		t = nil
	}
	if err == nil && t == nil {
		if f, ok := e.Fact.(*events.TaskReceived); !ok || f.Workflow != c.workflow {
			return
		}
		t = &candidate{}
		c.tasks[id] = t
	}
	if t == nil {
		return
	}
	over := t.Task != nil && !t.Task.Open()
	if over {
		c.remove(t.Task) // an operator may undo a processed task
	}
	if err == nil {
		err = t.Apply(e, r)
	}
	switch {
	case err != nil && over:
		t.Err = err // it keeps its place, since a task that it displaced may be gone
		heap.Push(&c.ended, t.Task)
	case err != nil:
		c.broken[id] = true
		delete(c.tasks, id)
	default:
		t.records = append(t.records, cloneRecord(r))
		if !t.Task.Open() {
			c.end(t.Task)
		}
	}
}

// cloneRecord returns a copy of a record.
func cloneRecord(r *events.Record) events.Record {
	k := *r
	k.Key, k.Value, k.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range k.Headers {
		k.Headers[i].Value = bytes.Clone(k.Headers[i].Value)
	}
	return k
}

// end drops the tasks that are not among the last that ended.
func (c *Choice) end(t *events.Task) {
	heap.Push(&c.ended, t)
	if c.ended.Len() > c.finished {
		delete(c.tasks, heap.Pop(&c.ended).(*events.Task).ID)
	}
}

// remove removes a task from those that have ended.
func (c *Choice) remove(t *events.Task) {
	if i := slices.Index(c.ended, t); i >= 0 {
		heap.Remove(&c.ended, i)
	}
}

// Drop removes a task that may have lost an event.
func (c *Choice) Drop(id string) {
	delete(c.tasks, id)
	delete(c.broken, id)
}

// Each calls fn with the records of each chosen task, ordered by id or by end. It returns how many tasks were
// skipped because one of their events can't be folded.
func (c *Choice) Each(fn func(records []events.Record) error) (broken int, err error) {
	broken = len(c.broken)
	for _, id := range c.ids() {
		t := c.tasks[id]
		if t == nil {
			continue // it was dropped
		}
		if t.Err != nil {
			broken++
		} else if err := fn(t.records); err != nil {
			return broken, err
		}
	}
	return broken, nil
}

func (c *Choice) ids() []string {
	if c.finished == 0 {
		return slices.Sorted(maps.Keys(c.tasks))
	}
	var ids []string
	for _, t := range slices.SortedFunc(slices.Values(c.ended), compareEnds) {
		ids = append(ids, t.ID)
	}
	return ids
}

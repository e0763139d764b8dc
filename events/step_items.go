package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// ItemsStep is the kind, in a plan, of a step that runs for each item of a list. Each item is a child task: of the step
// alone, or of the workflow that the step names.
const ItemsStep StepKind = "items"

var _ = registerStepKind(ItemsStep, newFactKind(ItemsBegan{}), newFactKind(ItemsStarted{}), newFactKind(ItemEnded{}),
	newFactKind(ItemHeld{Kind: Do}), newFactKind(ItemHeld{Kind: Undo}), newFactKind(ItemResumed{Kind: Do}), newFactKind(ItemResumed{Kind: Undo}),
	newFactKind(ItemsCompleted{}), newFactKind(ItemsUndoStarted{}), newFactKind(ItemsWithdrawn{}), newFactKind(ItemUndone{}), newFactKind(ItemsUndone{}))

// VerbItem is what happened to items of a step. The state of the step stays as it is.
const VerbItem Verb = "item"

// Codes of errors of steps that run for each item.
const (
	CodeTooManyItems = "too_many_items" // the list has more than MaxItems
)

// PlanItems says how a step runs for each item of a list.
type PlanItems struct {
	Parallel int  // items that run at the same time
	Collects bool // the error of an item becomes its output
	Summary  bool // the step's output has the numbers of items, not their outputs
	Undoes   bool // completed items are undone with the task
	OwnIDs   bool // the definition gives the items' tasks their ids
}

func (p *PlanItems) fields(c *codec) {
	c.int("max_parallel", &p.Parallel)
	c.bool("collects", &p.Collects)
	c.bool("summary", &p.Summary)
	c.bool("undoes", &p.Undoes)
	c.bool("own_ids", &p.OwnIDs)
}

// ItemsBegan records that a step begins to run for each item of a list. Only the first attempt has the list. A later one
// starts the items that failed again.
type ItemsBegan struct {
	Step    string
	Attempt int
	Count   int
	// At is the place of the list in the task's input, as a JSON Pointer in a fragment. Items is then empty.
	At    string
	Items json.RawMessage
	// Token is what the tasks of the items that this attempt starts reply with.
	Token string
}

func (*ItemsBegan) Type() string { return "waybill.items.began.v1" }

func (f *ItemsBegan) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Do, StepKind: ItemsStep, Attempt: f.Attempt, Phase: PhaseBegan, Disarms: DisarmsOwn, Raw: &f.Items}
}

func (f *ItemsBegan) apply(t *Task, e *Event) error {
	var fresh *Items
	if i, ok := t.Plan.Step(f.Step); ok && t.Steps[i].Items == nil {
		list, err := f.Items, error(nil)
		if f.At != "" {
			list, err = atPointer(t.Input, f.At)
		}
		if err == nil {
			fresh, err = newItems(f.At, list)
		}
		if err == nil && fresh.Count != f.Count {
			err = fmt.Errorf("a list of %d items, not %d", fresh.Count, f.Count)
		}
		if err != nil {
			return err
		}
	} else if ok && (f.At != "" || len(f.Items) > 0 || f.Count != t.Steps[i].Items.Count) {
		return errors.New("the step has its items already")
	}
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		if fresh != nil {
			s.Items = fresh
		}
		it := s.ownItems()
		it.Attempts = append(it.Attempts, ItemsAttempt{f.Attempt, f.Token})
		if fresh == nil {
			s.restartItems()
		}
	})
}

// restartItems makes the items pending that failed.
func (s *Step) restartItems() {
	for i := range s.Items.Next {
		if s.Items.Item(i).State == StepError {
			s.setItem(i, func(x *Item) { *x = Item{State: StepPending} })
		}
	}
	s.Items.deriveOrder(false)
}

func (f *ItemsBegan) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.int("count", &f.Count)
	c.str("items_at", &f.At)
	c.raw("items", &f.Items)
	c.str("token", &f.Token)
}

// aboutItems is the About of a fact about items of a step.
func aboutItems(step string, k Kind) About {
	return About{Verb: VerbItem, Step: step, Kind: k, StepKind: ItemsStep}
}

// onItems applies a fact about items of a step. check may refuse it.
func (t *Task) onItems(e *Event, a About, check func(*Step) error, change func(*Step)) error {
	i, ok := t.Plan.Step(a.Step)
	switch {
	case !ok:
		return fmt.Errorf("the plan has no step %q", a.Step)
	case t.Steps[i].Items == nil:
		return fmt.Errorf("step %q has no items", a.Step)
	}
	if err := check(t.Steps[i]); err != nil {
		return fmt.Errorf("step %q: %w", a.Step, err)
	}
	return t.onRun(e, a, func(s *Step, _ *Run) { change(s) })
}

// in returns an error if an item isn't in one of the states.
func (it *Items) in(i int, states ...StepState) error {
	if i < 0 || i >= it.Count {
		return fmt.Errorf("there is no item %d of %d", i, it.Count)
	}
	is := it.Item(i).State
	for _, s := range states {
		if is == s {
			return nil
		}
	}
	return fmt.Errorf("item %d is %s", i, is)
}

// ItemsStarted records that the tasks of some items were submitted, in the same transaction: From (inclusive) to To
// (exclusive).
type ItemsStarted struct {
	Step     string
	Attempt  int
	From, To int
}

func (*ItemsStarted) Type() string { return "waybill.items.started.v1" }

func (f *ItemsStarted) About() About {
	a := aboutItems(f.Step, Do)
	a.Attempt, a.Phase = f.Attempt, PhaseGoesOn
	return a
}

func (f *ItemsStarted) apply(t *Task, e *Event) error {
	return t.onItems(e, f.About(), func(s *Step) error {
		next, ok := s.Items.NextPending()
		switch {
		case s.State != StepRunning || s.Attempt != f.Attempt:
			return fmt.Errorf("attempt %d isn't running", f.Attempt)
		case !ok || f.From != next || f.To <= f.From || f.To > s.Items.Count || next < s.Items.Next && f.To != next+1:
			return fmt.Errorf("items %d to %d, and %d is next", f.From, f.To, next)
		}
		return nil
	}, func(s *Step) {
		for i := f.From; i < f.To; i++ {
			s.setItem(i, func(x *Item) { x.State, x.Attempt = StepRunning, f.Attempt })
		}
		s.Items.removePending(f.From, f.To)
		s.Unknown = true // until all have completed
	})
}

// removePending records that items which were pending aren't any more.
func (it *Items) removePending(from, to int) {
	if from >= it.Next {
		it.Next = to
	} else if len(it.again) > 0 {
		it.again = it.again[1:]
	}
}

func (f *ItemsStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.index("from", &f.From)
	c.index("to", &f.To)
}

// ItemEnded records the result of an item.
type ItemEnded struct {
	Step   string
	Item   int // its index in the list
	Output json.RawMessage
	// Error is why the item failed: its task was undone, or wasn't started since its input can't be evaluated.
	Error *Error
	// Effect is EffectUnknown if the item's task completed although there is an error: its output can't be stored. It is
	// undone with the step.
	Effect Effect
}

func (*ItemEnded) Type() string { return "waybill.item.ended.v1" }

func (f *ItemEnded) About() About {
	a := aboutItems(f.Step, Do)
	a.Raw, a.Failure = &f.Output, &f.Error
	return a
}

func (f *ItemEnded) apply(t *Task, e *Event) error {
	return t.onItems(e, f.About(), func(s *Step) error {
		next, ok := s.Items.NextPending()
		if f.Error != nil && f.Effect == "" && ok && next == f.Item && s.State == StepRunning {
			return nil // it wasn't started
		}
		return s.Items.in(f.Item, StepRunning)
	}, func(s *Step) {
		if s.Items.Item(f.Item).State == StepPending {
			s.ownItems().removePending(f.Item, f.Item+1)
		}
		s.setItem(f.Item, func(x *Item) {
			x.State, x.Seq, x.Output, x.Error = StepCompleted, e.Seq, jsonscan.TrimSpace(f.Output), f.Error
			if f.Error != nil && f.Effect == "" {
				x.State = StepError
			}
			if i, _ := t.Plan.Step(f.Step); t.Plan.Steps[i].Items != nil && t.Plan.Steps[i].Items.Summary {
				x.Output, x.Error = nil, s.Items.keptError(f.Error)
			}
		})
	})
}

// maxKeptErrorBytes bounds the errors that the items of a step with Summary have in its task.
const maxKeptErrorBytes = 64 << 10

// keptError returns what a task keeps of the error of an item if nothing needs it there: the code, while there is room.
// The item's task has the whole error.
func (it *Items) keptError(e *Error) *Error {
	if e == nil || it.outputBytes > maxKeptErrorBytes {
		return nil
	}
	return &Error{Code: e.Code}
}

func (f *ItemEnded) fields(c *codec) {
	c.interned("step", &f.Step)
	c.index("item", &f.Item)
	c.raw("output", &f.Output)
	c.errorField("error", &f.Error)
	knownText(c, "effect", &f.Effect)
}

// ItemHeld records that the task of an item is held, while the step or its undo runs.
type ItemHeld struct {
	Kind  Kind
	Step  string
	Item  int
	Error *Error
	// Rejected is true if the task can't be undone at all. The other items are undone, then the step's undo fails.
	Rejected bool
}

func (f *ItemHeld) Type() string {
	return attemptType(f.Kind, "waybill.item.held.v1", "waybill.item.undo.held.v1")
}

func (f *ItemHeld) About() About {
	a := aboutItems(f.Step, f.Kind)
	a.Failure = &f.Error
	return a
}

func (f *ItemHeld) apply(t *Task, e *Event) error {
	if f.Error == nil {
		return errors.New("held without an error")
	}
	return t.onItems(e, f.About(), func(s *Step) error {
		if f.Rejected {
			return s.Items.in(f.Item, StepUndoing)
		}
		return s.Items.in(f.Item, StepRunning, StepUndoing)
	}, func(s *Step) {
		s.setItem(f.Item, func(x *Item) { x.Error = f.Error })
		if it := s.ownItems(); f.Rejected && !slices.Contains(it.UndoRejected, f.Item) {
			it.UndoRejected = append(it.UndoRejected, f.Item)
		}
	})
}

func (f *ItemHeld) fields(c *codec) {
	c.interned("step", &f.Step)
	c.index("item", &f.Item)
	c.errorField("error", &f.Error)
	c.bool("rejected", &f.Rejected)
}

// ItemResumed records that the task of an item is no longer held.
type ItemResumed struct {
	Kind Kind
	Step string
	Item int
}

func (f *ItemResumed) Type() string {
	return attemptType(f.Kind, "waybill.item.resumed.v1", "waybill.item.undo.resumed.v1")
}

func (f *ItemResumed) About() About { return aboutItems(f.Step, f.Kind) }

func (f *ItemResumed) apply(t *Task, e *Event) error {
	return t.onItems(e, f.About(), func(s *Step) error { return s.Items.in(f.Item, StepRunning, StepUndoing) }, func(s *Step) {
		s.setItem(f.Item, func(x *Item) { x.Error = nil })
	})
}

func (f *ItemResumed) fields(c *codec) {
	c.interned("step", &f.Step)
	c.index("item", &f.Item)
}

// ItemsCompleted records that all items have ended. The step's output is the list of their outputs, in the order of the
// items; it is made of the events of the items.
type ItemsCompleted struct {
	Step    string
	Attempt int
}

func (*ItemsCompleted) Type() string { return "waybill.items.completed.v1" }

func (f *ItemsCompleted) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: Do, StepKind: ItemsStep, Attempt: f.Attempt, Phase: PhaseTaken, Disarms: DisarmsOwn}
}

func (f *ItemsCompleted) apply(t *Task, e *Event) error {
	i, ok := t.Plan.Step(f.Step)
	if !ok || t.Steps[i].Items == nil {
		return fmt.Errorf("step %q has no items", f.Step)
	}
	it := t.Steps[i].Items
	if it.Ended() != it.Count || it.Failed > 0 && !t.Plan.Steps[i].collects() {
		return fmt.Errorf("%d of %d items have ended, %d of them in error", it.Ended(), it.Count, it.Failed)
	}
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		s.Unknown, s.CompletedSeq = false, e.Seq
		if p := t.Plan.Steps[i].Items; p != nil && p.Summary {
			s.Output = fmt.Appendf(nil, `{"count":%d,"completed":%d,"failed":%d}`, it.Count, it.Completed, it.Failed)
		} else {
			s.Output = it.output()
		}
		r.Error, r.EndedAt = nil, e.At
		s.ownItems()
		for i := range it.Count {
			if x := s.Items.Item(i); len(x.Output) > 0 || x.Error != nil {
				s.setItem(i, func(x *Item) { x.Output, x.Error = nil, nil })
			}
		}
	})
}

func (f *ItemsCompleted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
}

func (p *PlanStep) collects() bool { return p.Items != nil && p.Items.Collects }

// ItemsUndoStarted records that the undo of a step's items begins: the tasks of those that haven't ended are withdrawn, and
// completed ones are undone.
type ItemsUndoStarted struct {
	Step    string
	Attempt int
	// KeepsCompleted is true if completed items stay as they are: the step has no undo, or a cancel keeps what was done.
	KeepsCompleted bool
	Token          string // of the replies to the withdrawals
}

func (*ItemsUndoStarted) Type() string { return "waybill.items.undo.started.v1" }

func (f *ItemsUndoStarted) About() About {
	return About{Verb: VerbStarted, Step: f.Step, Kind: Undo, StepKind: ItemsStep, Attempt: f.Attempt, Phase: PhaseBegan, Disarms: DisarmsOwn}
}

func (f *ItemsUndoStarted) apply(t *Task, e *Event) error {
	if i, ok := t.Plan.Step(f.Step); !ok || t.Steps[i].Items == nil {
		return fmt.Errorf("step %q has no items", f.Step)
	}
	return t.onRun(e, f.About(), func(s *Step, r *Run) {
		it := s.ownItems()
		it.KeepsCompleted, it.UndoToken, it.UndoRejected = f.KeepsCompleted, f.Token, nil
		it.deriveOrder(true)
	})
}

func (f *ItemsUndoStarted) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
	c.bool("keeps_completed", &f.KeepsCompleted)
	c.str("token", &f.Token)
}

// ItemsWithdrawn records that the tasks of some items were withdrawn, in this order and in the same transaction.
type ItemsWithdrawn struct {
	Step  string
	Items []int
}

func (*ItemsWithdrawn) Type() string { return "waybill.items.withdrawn.v1" }

func (f *ItemsWithdrawn) About() About { return aboutItems(f.Step, Undo) }

func (f *ItemsWithdrawn) apply(t *Task, e *Event) error {
	return t.onItems(e, f.About(), func(s *Step) error {
		if len(f.Items) == 0 {
			return errors.New("no items")
		}
		for _, i := range f.Items {
			if err := s.Items.in(i, StepRunning, StepCompleted, StepUndoing); err != nil {
				return err
			}
		}
		return nil
	}, func(s *Step) {
		for _, i := range f.Items {
			s.setItem(i, func(x *Item) { x.State, x.Output, x.Error = StepUndoing, nil, nil })
		}
		it := s.ownItems()
		for len(it.byEnd) > 0 && it.Item(int(it.byEnd[0])).State != StepCompleted {
			it.byEnd = it.byEnd[1:]
		}
	})
}

func (f *ItemsWithdrawn) fields(c *codec) {
	c.interned("step", &f.Step)
	c.ints("items", &f.Items)
}

// ItemUndone records that the task of an item was undone.
type ItemUndone struct {
	Step string
	Item int
}

func (*ItemUndone) Type() string { return "waybill.item.undone.v1" }

func (f *ItemUndone) About() About { return aboutItems(f.Step, Undo) }

func (f *ItemUndone) apply(t *Task, e *Event) error {
	return t.onItems(e, f.About(), func(s *Step) error { return s.Items.in(f.Item, StepUndoing) }, func(s *Step) {
		s.setItem(f.Item, func(x *Item) { x.State, x.Error = StepUndone, nil })
	})
}

func (f *ItemUndone) fields(c *codec) {
	c.interned("step", &f.Step)
	c.index("item", &f.Item)
}

// ItemsUndone records that the undo of a step's items has ended.
type ItemsUndone struct {
	Step    string
	Attempt int
}

func (*ItemsUndone) Type() string { return "waybill.items.undone.v1" }

func (f *ItemsUndone) About() About {
	return About{Verb: VerbCompleted, Step: f.Step, Kind: Undo, StepKind: ItemsStep, Attempt: f.Attempt, Phase: PhaseTaken, Disarms: DisarmsOwn}
}

func (f *ItemsUndone) apply(t *Task, e *Event) error {
	i, ok := t.Plan.Step(f.Step)
	if !ok || t.Steps[i].Items == nil {
		return fmt.Errorf("step %q has no items", f.Step)
	}
	if it := t.Steps[i].Items; it.ToUndo() > 0 || it.Undoing > 0 {
		return fmt.Errorf("%d items are to be undone, %d are being undone", it.ToUndo(), it.Undoing)
	}
	return t.onRun(e, f.About(), func(_ *Step, r *Run) { r.Error, r.EndedAt = nil, e.At })
}

// ToUndo returns the number of items that are to be withdrawn yet.
func (it *Items) ToUndo() int {
	if it.KeepsCompleted {
		return it.Running
	}
	return it.Running + it.Completed
}

func (f *ItemsUndone) fields(c *codec) {
	c.interned("step", &f.Step)
	c.int("attempt", &f.Attempt)
}

// index is a member that is a whole number, also if it is 0.
func (c *codec) index(name string, v *int) {
	if !c.decoding && *v == 0 {
		c.name(name)
		c.buf = append(c.buf, '0')
		return
	}
	c.int(name, v)
}

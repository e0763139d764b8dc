package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// The checks of steps that run for each item of a list (P26): each item has its result once, in its place.

func init() {
	kindRules[events.ItemsStep] = map[events.Verb]*factRule{
		events.VerbStarted:   {begins: true, checkCourse: (*eventCheck).checkStarted, count: (*eventCheck).countItemsBegan},
		events.VerbItem:      {from: byReplies, promise: "P26", checkCourse: (*eventCheck).checkItem, count: (*eventCheck).countItem, lead: leadItem},
		events.VerbCompleted: {follows: true, promise: "P26", checkCourse: (*eventCheck).checkItemsEnd, count: (*eventCheck).countCompleted},
	}
}

// items are the items of a step, counted independently of the fold.
type items struct {
	states   []itemState
	attempts []uint16 // of the step, with which each started
	results  []uint64 // hashes of the outputs
	ended    []int    // items that completed, in the order of the log
	running  int
	failed   int
	kept     bool           // the undo leaves completed items as they are
	tokens   map[int]uint64 // of the replies, by attempt; those of the undo have negative numbers
}

type itemState uint8

const (
	itemPending itemState = iota
	itemRunning
	itemCompleted
	itemFailed
	itemUndoing
	itemUndone
)

// itemsOf returns the items of the event's step; nil: there are none.
func (s *eventCheck) itemsOf() (*items, int) {
	i, ok := s.t.plan.Step(s.about.Step)
	if !ok {
		return nil, 0
	}
	return s.t.open.items[i], i
}

func (s *eventCheck) countItemsBegan() {
	r, hash := s.run, uint64(0)
	if f, ok := s.e.Fact.(*events.ItemsBegan); ok {
		x := s.t.open.items[s.index]
		if x == nil {
			x = &items{states: make([]itemState, f.Count), attempts: make([]uint16, f.Count), results: make([]uint64, f.Count), tokens: map[int]uint64{}}
			if s.t.open.items == nil {
				s.t.open.items = map[int]*items{}
			}
			s.t.open.items[s.index] = x
		}
		for i := range x.states {
			if x.states[i] == itemFailed {
				x.states[i] = itemPending
			}
		}
		x.failed = 0
		hash = sumOfText(events.TokenHash(s.t.id, s.about.Ref(), f.Token))
		x.tokens[f.Attempt] = hash
	}
	if f, ok := s.e.Fact.(*events.ItemsUndoStarted); ok {
		x := s.t.open.items[s.index]
		if x == nil {
			return
		}
		s.mark(undoAsked)
		hash = sumOfText(events.TokenHash(s.t.id, s.about.Ref(), f.Token))
		x.kept, x.tokens[-f.Attempt] = f.KeepsCompleted, hash
	}
	r.attempt, r.running, r.began = s.about.Attempt, true, s.e.Seq
	r.index = len(s.t.attempts)
	s.t.attempts = append(s.t.attempts, attempt{due: never, started: millis(s.r.Time), token: hash, asked: true,
		step: uint16(s.index), number: uint16(s.about.Attempt), runAndPlan: runAndPlan(runNumber(s.about.Kind), len(s.c.earlierPlans[s.t]))})
}

// checkItem checks what happened to items of a step against what happened to them before.
func (s *eventCheck) checkItem() *Fault {
	x, step := s.itemsOf()
	if x == nil {
		return faultf("P26", "%s of step %q, which has no items", s.e.Fact.Type(), s.about.Step)
	}
	if f, ok := s.e.Fact.(*events.ItemsStarted); ok {
		return s.checkItemsStarted(x, f, step)
	}
	if f, ok := s.e.Fact.(*events.ItemEnded); ok {
		unsent := f.Error != nil && f.Effect == "" && x.is(f.Item, itemPending)
		if !unsent && !x.is(f.Item, itemRunning) {
			return faultf("P26", "item %d of step %q has a result, and it isn't running: a result counts once", f.Item, f.Step)
		}
		if !unsent && !s.first {
			return faultf("P26", "item %d of step %q has a result that no reply led to", f.Item, f.Step)
		}
	}
	if f, ok := s.e.Fact.(*events.ItemUndone); ok {
		if !x.is(f.Item, itemUndoing) {
			return faultf("P26", "item %d of step %q is undone, and it wasn't withdrawn", f.Item, f.Step)
		}
	}
	if f, ok := s.e.Fact.(*events.ItemsWithdrawn); ok {
		return s.checkItemsWithdrawn(x, f)
	}
	return nil
}

func (x *items) is(i int, state itemState) bool {
	return i >= 0 && i < len(x.states) && x.states[i] == state
}

// checkItemsStarted checks that items start once, in a task that goes on, and not more than the plan allows.
func (s *eventCheck) checkItemsStarted(x *items, f *events.ItemsStarted, step int) *Fault {
	for i := f.From; i < f.To; i++ {
		if !x.is(i, itemPending) {
			return faultf("P26", "item %d of step %q starts again", i, f.Step)
		}
	}
	switch most := s.t.plan.Steps[step].Items.Parallel; {
	case x.running+f.To-f.From > most:
		return faultf("P26", "%d items of step %q run; at most %d", x.running+f.To-f.From, f.Step, most)
	case s.t.open.state.State != events.StateProcessing || s.t.open.erred > 0:
		return faultf("P2", "items of step %q start while the task is %s, with %d steps in error", f.Step, s.t.open.state.State, s.t.open.erred)
	}
	return nil
}

// checkItemsWithdrawn checks that items are undone in reverse order of their completion, after those that ran.
func (s *eventCheck) checkItemsWithdrawn(x *items, f *events.ItemsWithdrawn) *Fault {
	top := len(x.ended)
	for _, i := range f.Items {
		switch {
		case x.is(i, itemRunning), x.is(i, itemUndoing):
		case !x.is(i, itemCompleted):
			return faultf("P26", "item %d of step %q is withdrawn, but nothing of it is to be undone", i, f.Step)
		case x.kept:
			return faultf("P26", "item %d of step %q is undone, and the undo keeps completed items", i, f.Step)
		default:
			if top = x.lastCompleted(top); top == 0 || x.ended[top-1] != i {
				return faultf("P26", "item %d of step %q is undone before one that completed later", i, f.Step)
			}
			top--
		}
	}
	return nil
}

// lastCompleted returns the place behind the last item below top of ended that is still completed; 0: there is none.
func (x *items) lastCompleted(top int) int {
	for top > 0 && x.states[x.ended[top-1]] != itemCompleted {
		top--
	}
	return top
}

// checkItemsEnd checks that a step is completed, or undone, when all of its items are.
func (s *eventCheck) checkItemsEnd() *Fault {
	x, step := s.itemsOf()
	if x == nil {
		return faultf("P26", "%s of step %q, which has no items", s.e.Fact.Type(), s.about.Step)
	}
	for i, state := range x.states {
		ended := state == itemCompleted || state == itemFailed && s.t.plan.Steps[step].Items.Collects
		if s.about.Kind == events.Undo {
			ended = state != itemRunning && state != itemUndoing && (state != itemCompleted || x.kept)
		}
		if !ended {
			return faultf("P26", "%s of step %q, and item %d isn't done", s.e.Fact.Type(), s.about.Step, i)
		}
	}
	return nil
}

func (s *eventCheck) countItem() {
	x, step := s.itemsOf()
	if x == nil {
		return
	}
	s.index = step
	if f, ok := s.e.Fact.(*events.ItemsStarted); ok {
		for i := f.From; i < f.To; i++ {
			x.set(i, itemRunning)
			x.attempts[i] = uint16(f.Attempt)
		}
		s.mark(unknown)
	}
	if f, ok := s.e.Fact.(*events.ItemEnded); ok {
		if f.Error != nil && f.Effect == "" {
			x.set(f.Item, itemFailed)
			x.results[f.Item] = sumOf(fmt.Appendf(nil, `{"error":%s}`, f.Error.JSON()))
			return
		}
		x.set(f.Item, itemCompleted)
		x.results[f.Item] = sumOf(f.Output)
		x.ended = append(x.ended, f.Item)
	}
	if f, ok := s.e.Fact.(*events.ItemUndone); ok {
		x.set(f.Item, itemUndone)
	}
	if f, ok := s.e.Fact.(*events.ItemsWithdrawn); ok {
		for _, i := range f.Items {
			x.set(i, itemUndoing)
		}
		x.ended = x.ended[:x.lastCompleted(len(x.ended))]
	}
}

func (x *items) set(i int, to itemState) {
	if i < 0 || i >= len(x.states) {
		return
	}
	x.count(x.states[i], -1)
	x.states[i] = to
	x.count(to, 1)
}

func (x *items) count(s itemState, n int) {
	switch s {
	case itemRunning:
		x.running += n
	case itemFailed:
		x.failed += n
	case itemPending, itemCompleted, itemUndoing, itemUndone: // not counted
	}
}

// checkItemsOutput checks that the output of a completed step has each item's result in its place.
func (s *eventCheck) checkItemsOutput() *Fault {
	f, ok := s.e.Fact.(*events.ItemsCompleted)
	x, step := s.itemsOf()
	if !ok || x == nil {
		return nil
	}
	if p := s.t.plan.Steps[step].Items; p != nil && p.Summary {
		want := fmt.Sprintf(`{"count":%d,"completed":%d,"failed":%d}`, len(x.states), len(x.states)-x.failed, x.failed)
		if is := string(s.t.open.state.Steps[step].Output); is != want {
			return faultf("P26", "the output of step %q is %s, and its items make %s", f.Step, is, want)
		}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(s.t.open.state.Steps[step].Output, &list); err != nil || len(list) != len(x.results) {
		return faultf("P26", "the output of step %q has %d elements, and the step %d items", f.Step, len(list), len(x.results))
	}
	for i := range list {
		if sumOf(list[i]) != x.results[i] {
			return faultf("P26", "the output of step %q has another result than that of item %d in its place", f.Step, i)
		}
	}
	return nil
}

// leadItem sets what the reply of an item must contain.
func leadItem(s *eventCheck, l *lead, _ *input) {
	x, _ := s.itemsOf()
	if x == nil {
		return
	}
	l.slot, l.ofItem, l.body = events.Slot{Step: s.about.Step, Kind: s.about.Kind}, true, sumOfError(s.about.Error())
	if f, ok := s.e.Fact.(*events.ItemEnded); ok {
		l.item, l.large = f.Item, f.Effect != ""
		if f.Error == nil {
			l.body = sumOf(f.Output)
		}
	}
	if f, ok := s.e.Fact.(*events.ItemHeld); ok {
		l.item = f.Item
	}
	if f, ok := s.e.Fact.(*events.ItemResumed); ok {
		l.item = f.Item
	}
	if f, ok := s.e.Fact.(*events.ItemUndone); ok {
		l.item = f.Item
	}
	if l.attempt = s.t.open.run(s.indexOf(), events.Undo).attempt; s.about.Kind == events.Undo {
		l.token = x.tokens[-l.attempt]
		return
	}
	if l.item < len(x.attempts) {
		l.attempt = int(x.attempts[l.item])
		l.token = x.tokens[l.attempt]
	}
}

// indexOf returns the index of the event's step.
func (s *eventCheck) indexOf() int {
	i, _ := s.t.plan.Step(s.about.Step)
	return i
}

// checkItemReply checks that the event is about the item that replied, with its result (P26).
func (x *input) checkItemReply(cause events.Cause, l *lead) *Fault {
	undo := l.slot.Kind == events.Undo
	switch {
	case x.item == nil || *x.item != l.item:
		return faultf("P26", "%s is of another item than %d; it led to %s", cause, l.item, l.fact)
	case x.ref != (events.RequestRef{Step: l.slot.Step, Kind: l.slot.Kind, Attempt: l.attempt}):
		return faultf("P26", "%s is of %s; it led to %s of attempt %d", cause, events.RequestID(x.task, x.ref), l.fact, l.attempt)
	case x.token != l.token:
		return faultf("P18", "%s hasn't the token of the items of step %q, and led to %s", cause, l.slot.Step, l.fact)
	case x.outcome == events.Resumed, undo && x.outcome == events.Completed, l.large:
	case x.body != 0 && l.body != x.body:
		return faultf("P26", "%s has another result than %s, which it led to", cause, l.fact)
	}
	return nil
}

// adoptItems continues with the items of a processed task that is undone. All of them have ended.
func (o *open) adoptItems(step int, it *events.Items) {
	if it == nil {
		return
	}
	x := &items{states: make([]itemState, it.Count), attempts: make([]uint16, it.Count), results: make([]uint64, it.Count), tokens: map[int]uint64{}}
	for i := range it.Count {
		item := it.Item(i)
		if x.attempts[i] = uint16(item.Attempt); item.State == events.StepError {
			x.set(i, itemFailed)
			continue
		}
		x.set(i, itemCompleted)
		x.ended = append(x.ended, i)
	}
	slices.SortFunc(x.ended, func(a, b int) int { return cmp.Compare(it.Item(a).Seq, it.Item(b).Seq) })
	if o.items == nil {
		o.items = map[int]*items{}
	}
	o.items[step] = x
}

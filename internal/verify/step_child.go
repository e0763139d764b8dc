package verify

import (
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The checks of child tasks (P25): a child never outlives the undo of its parent, and its end reaches the parent once.

func init() {
	kindRules[events.WorkflowStep] = map[events.Verb]*factRule{
		events.VerbStarted:      {begins: true, checkCourse: (*eventCheck).checkStarted, count: (*eventCheck).countChildStarted},
		events.VerbCompleted:    {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countCompleted, lead: leadChild},
		events.VerbRejected:     {from: byReplies, only: true, promise: "P3", count: (*eventCheck).countChildRejected, lead: leadChild},
		events.VerbChildHeld:    {from: byReplies, only: true, promise: "P3", checkCourse: (*eventCheck).checkChildRuns, lead: leadChild},
		events.VerbChildResumed: {from: byReplies, only: true, promise: "P3", checkCourse: (*eventCheck).checkChildRuns, lead: leadChild},
	}
	taskRules[events.VerbWithdrawn] = &factRule{from: byTasks, promise: "P25", checkCourse: (*eventCheck).checkWithdrawn,
		count: (*eventCheck).countWithdrawn, lead: leadWithdrawn}
	taskRules[events.VerbUndoing].from = append(taskRules[events.VerbUndoing].from, events.Tasks)
}

// never is the complete-by of an attempt without one, in ms: in the year 2223, so that differences fit into a Duration.
const never = 8_000_000_000_000

func (s *eventCheck) countChildStarted() {
	hash := ""
	if f, is := s.e.Fact.(*events.ChildStarted); is {
		hash = f.TokenHash
		s.t.kin().children = append(s.t.kin().children, child{len(s.t.attempts), f.Child})
	} else if f, is := s.e.Fact.(*events.WithdrawalStarted); is {
		hash = f.TokenHash
		s.mark(undoAsked)
	} else {
		return
	}
	r := s.run
	r.attempt, r.running, r.began = s.about.Attempt, true, s.e.Seq
	r.index = len(s.t.attempts)
	s.t.attempts = append(s.t.attempts, attempt{due: never, started: millis(s.r.Time), token: sumOfText(hash), asked: true,
		step: uint16(s.index), number: uint16(s.about.Attempt), runAndPlan: runAndPlan(runNumber(s.about.Kind), len(s.c.earlierPlans[s.t]))})
}

func (s *eventCheck) countChildRejected() {
	s.endAttempt()
	if f, ok := s.e.Fact.(*events.ChildRejected); ok && f.Unknown {
		s.mark(unknown)
	}
	s.countErrored()
}

// interruptChild ends a run whose child may go on, at the decision to undo. Later replies to it lead to nothing.
func (s *eventCheck) interruptChild(r *run) {
	s.mark(unknown)
	a := &s.t.attempts[r.index]
	a.ended, a.below = true, s.replied
}

// checkChildRuns checks that a child is held or resumed while its run is running (P3).
func (s *eventCheck) checkChildRuns() *Fault {
	if !s.run.running || s.about.Attempt != s.run.attempt {
		return faultf("P3", "%s of attempt %d of step %q, which doesn't run", s.e.Fact.Type(), s.about.Attempt, s.slot.Step)
	}
	return nil
}

func leadChild(s *eventCheck, l *lead, _ *input) {
	l.attempt = s.about.Attempt
	if s.about.Verb == events.VerbCompleted {
		leadCompleted(s, l, nil)
		return
	}
	l.failure(s.about.Error())
}

// checkWithdrawing checks an undo that no operator asked for and that a record of the submissions' inbox led to: only the
// parent of a child asks for it (P25).
func (s *eventCheck) checkWithdrawing(f *events.TaskUndoing) *Fault {
	t := s.t.open.state
	switch processed := len(f.Processed) > 0; {
	case t.Parent == nil:
		return faultf("P25", "withdrawn, and it is no child")
	case f.Error == nil || f.Error.Code != events.CodeWithdrawn:
		return faultf("P25", "withdrawn for another reason than that its parent no longer wants it")
	case processed && (f.Ending != events.StateUndone || f.Keep), !processed && f.Ending != events.StateCancelled:
		return faultf("P25", "withdrawn to be %s (keep: %v); it was processed: %v", f.Ending, f.Keep, processed)
	}
	return nil
}

// checkWithdrawn checks that a child which its parent withdraws is being undone (P25).
func (s *eventCheck) checkWithdrawn() *Fault {
	if t := s.t.open.state; t.Parent == nil || t.Ending == "" {
		return faultf("P25", "withdrawn, and it is no child that is being undone (state %s)", t.State)
	}
	return nil
}

func (s *eventCheck) countWithdrawn() { s.t.open.unwithdrawn = false }

// leadWithdrawn sets the token of the parent's undo.
func leadWithdrawn(s *eventCheck, l *lead, _ *input) {
	f, ok := s.e.Fact.(*events.TaskWithdrawn)
	if p := s.t.open.state.Parent; ok && p != nil {
		ref := events.RequestRef{Step: p.Step, Kind: events.Undo, Attempt: f.UndoAttempt}
		l.attempt, l.token = f.UndoAttempt, sumOfText(events.TokenHash(p.Task, ref, f.Token))
	}
}

// checkWithdrawal checks that the event follows from the withdrawal that it names (P25).
func (x *input) checkWithdrawal(cause events.Cause, l *lead) *Fault {
	switch l.fact {
	case (*events.TaskUndoing)(nil).Type():
		if l.refund || l.keep == x.keep {
			return nil
		}
		return faultf("P25", "%s asks to keep what completed: %v; it led to %s with %v", cause, x.keep, l.fact, l.keep)
	case (*events.TaskWithdrawn)(nil).Type():
		if l.attempt == x.ref.Attempt && l.token == x.token {
			return nil
		}
		return faultf("P25", "%s is of undo %d of its parent; it led to %s of undo %d, or with another token", cause, x.ref.Attempt, l.fact, l.attempt)
	}
	return faultf("P25", "%s withdraws a child, and led to %s", cause, l.fact)
}

// family is what relates a task to its parent and its children.
type family struct {
	parent   string // empty: it is no child
	of       events.RequestRef
	token    uint64  // of the parent's attempt, as attempt.token
	item     *int    // the index of the item that it is the task of; nil: none
	children []child // of steps that run one child
}

// child is a child that an attempt started: the index of the attempt, and the child's id.
type child struct {
	attempt int
	id      string
}

// kin returns the family of a task that has one.
func (t *task) kin() *family {
	if t.family == nil {
		t.family = &family{}
	}
	return t.family
}

// clockSkew is the most by which the instants of two partitions' owners may differ (a scheduler whose clock is further
// off gives up its partitions).
const clockSkew = 30 * time.Second

// readPast reports whether a partition of events was fed beyond an instant in ms, so that what was decided there before
// is known.
func (f *finish) readPast(partition int32, at int64) bool {
	p := f.c.parts[partition]
	return p != nil && millis(p.state.At)-clockSkew.Milliseconds() > at
}

// offspring is a task of the log and the attempt of its parent that started it.
type offspring struct {
	task    *task
	attempt int
}

// findChildren fills f.children. Partitions are read one after the other, so the parent is known only now.
func (f *finish) findChildren() {
	for _, t := range f.c.order {
		if t.family == nil || t.family.parent == "" || t.broken || t.open != nil && t.open.state == nil {
			continue
		}
		p := f.c.tasks[t.family.parent]
		if p == nil {
			continue // it isn't fed
		}
		p = p.lifeWith(t.family.of, t.family.token)
		if p.broken || p.plan == nil {
			continue
		}
		if i, ok := p.findAttempt(t.family.of); ok && p.attempts[i].token == t.family.token { // otherwise another than a scheduler submitted it
			f.children[p] = append(f.children[p], offspring{t, i})
		}
	}
}

// checkChildren checks that a child is the one that its parent started, that it has ended when its parent has been
// undone or cancelled, and that a parent which is undone or cancelled has no processed child (P25). An item has one task
// (P26). Partitions are read one after the other, so only what must be in the log by now counts.
func (f *finish) checkChildren() {
	for _, p := range f.c.order {
		children := f.children[p]
		items := map[itemOf]string{}
		for _, x := range children {
			if fault := f.checkChild(p, x, items); fault != nil {
				f.addTaskFault(x.task, fault)
			}
		}
	}
}

// itemOf is an item of an attempt of a step.
type itemOf struct{ attempt, item int }

// checkChild checks a child of an attempt of its parent.
func (f *finish) checkChild(p *task, x offspring, items map[itemOf]string) *Fault {
	t, step := x.task, int(p.attempts[x.attempt].step)
	ofItems := p.plan.Steps[step].StepKind == events.ItemsStep
	switch item := t.family.item; {
	case ofItems && item == nil:
		return faultf("P26", "it is a child of %s, and of none of its items", events.RequestID(p.id, t.family.of))
	case ofItems:
		if other, twice := items[itemOf{x.attempt, *item}]; twice {
			return faultf("P26", "it is the task of item %d of %s, as %q is", *item, events.RequestID(p.id, t.family.of), other)
		}
		items[itemOf{x.attempt, *item}] = t.id
	case p.family == nil || !slices.Contains(p.family.children, child{x.attempt, t.id}):
		return faultf("P25", "it is a child of %s, which started another one", events.RequestID(p.id, t.family.of))
	}
	flags := p.steps[step].flags
	ended := p.state == events.StateUndone || p.state == events.StateCancelled
	if !ended || p.left || flags.has(handUndone|handSettled) || !f.readPast(t.partition, p.statusAt) {
		return nil
	}
	undoes := !ofItems || p.plan.Steps[step].Items.Undoes
	switch {
	case !t.state.Terminal():
		return faultf("P25", "it is %s, and its parent %q is %s", t.state, p.id, p.state)
	case t.state == events.StateProcessed && p.mustBeUndone() && flags.has(completed|unknown) && undoes:
		return faultf("P25", "it is processed, and its parent %q is %s", p.id, p.state)
	}
	return nil
}

// waitsForChild reports whether a run of an open task waits for a child that hasn't ended. The child is checked by itself:
// it may be held.
func (f *finish) waitsForChild(t *task) bool {
	return !t.endedOrHeld() && slices.ContainsFunc(f.children[t], func(x offspring) bool {
		step := int(t.attempts[x.attempt].step)
		return !x.task.state.Terminal() && (t.open.run(step, events.Do).running || t.open.run(step, events.Undo).running)
	})
}

// childrenEnded returns when the last child of a task ended, in ms; 0: none did.
func (f *finish) childrenEnded(t *task) (at int64) {
	for _, x := range f.children[t] {
		if x.task.state.Terminal() {
			at = max(at, x.task.statusAt)
		}
	}
	return at
}

// withdraws reports whether a child's withdrawal is under way.
func (t *task) withdraws() bool {
	for i := range t.steps {
		if t.plan.Steps[i].StepKind.HasChildren() && t.open.run(i, events.Undo).running {
			return true
		}
	}
	return false
}

// isChildRejected reports whether the type of an event is that of a child without a result.
func isChildRejected(fact string) bool {
	return strings.HasPrefix(fact, "waybill.child.") && strings.Contains(fact, ".rejected.")
}

package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// itemsStep runs for each item of a list. Each item is a child task: of the step alone, or of the workflow that the step
// names. So an item has its own attempts, timers, hold and undo, and the parent records only where it begins and ends. At
// most max_parallel items run at the same time. A decision about one item costs the same whatever the number of items.
type itemsStep struct{}

var _ = registerStepKind(events.ItemsStep, itemsStep{})

// maxStartedBytes bounds the submissions of items in one decision. The others start when one of these has ended.
const maxStartedBytes = 4 << 20

// start begins the items. After a resubmit those that failed start again.
func (itemsStep) start(d *decider, i int) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	if depth := d.childDepth(); depth > events.MaxDepth {
		d.failRun(i, events.Do, &events.Error{Code: events.CodeTooDeep, Message: tooDeep(d.childWorkflow(i))})
		return
	}
	f := &events.ItemsBegan{Step: p.ID, Attempt: s.Attempt + 1}
	if s.Items != nil {
		if err := lostOutput(s.Items, p.Items); err != nil {
			d.failRun(i, events.Do, err)
			return
		}
		f.Count = s.Items.Count
	} else if err := d.listItems(i, f); err != nil {
		d.failRun(i, events.Do, err)
		return
	}
	f.Token = d.env.Token(d.Task.ID, events.RequestRef{Step: p.ID, Kind: events.Do, Attempt: f.Attempt})
	d.emit(f, time.Time{}, nil)
	d.continueItems(i)
}

// lostOutput returns the error of an item that completed, and whose output can't be stored (see itemEnd); nil: there is none.
// Another attempt of the step can't have its output either, unless the step has no list of outputs.
func lostOutput(it *events.Items, p *events.PlanItems) *events.Error {
	if p.Summary {
		return nil
	}
	for n := range it.Next {
		if x := it.Item(n); x.State == events.StepCompleted && x.Error != nil {
			e := *x.Error
			e.Details = itemDetails(n, e.Details)
			return &e
		}
	}
	return nil
}

func (d *decider) childDepth() int {
	if d.Task.Parent != nil {
		return d.Task.Parent.Depth + 1
	}
	return 1
}

func (d *decider) childWorkflow(i int) string {
	if w := d.Task.Plan.Steps[i].Workflow; w != "" {
		return w
	}
	return d.Task.Workflow
}

// listItems evaluates the list of a step. A list that is in the task's input is named by its place.
func (d *decider) listItems(i int, f *events.ItemsBegan) *events.Error {
	list, err := d.program.Items(i, d.evaluationScope())
	if err != nil {
		return expressionFailed(err)
	}
	if !events.ValidJSON(list.JSON) {
		return nestsTooDeep("the list of step " + quoted(f.Step))
	}
	if f.Count, err = events.CountItems(list.JSON); err != nil {
		return expressionFailed(err)
	}
	if f.Count > events.MaxItems {
		return &events.Error{Code: events.CodeTooManyItems, Message: fmt.Sprintf("the list has %d items; at most %d", f.Count, events.MaxItems)}
	}
	if list.InInput {
		if f.At = "#" + list.Pointer; samePlace(d.Task.Input, f.At, list.JSON) {
			return nil
		}
	}
	f.At, f.Items = "", list.JSON
	if n, total := len(list.JSON), d.derived.taskBytes(d.Task)+len(list.JSON); n > MaxStepInputBytes || total > MaxTaskBytes {
		return &events.Error{Code: events.CodeTooLarge, Message: tooLarge("the list of step "+quoted(f.Step), n, MaxStepInputBytes, total)}
	}
	return nil
}

func samePlace(input json.RawMessage, at string, list json.RawMessage) bool {
	there, err := events.ListAt(input, at)
	return err == nil && string(there) == string(list)
}

// continueItems goes on with a running step: it is completed if all items have ended, otherwise more of them start.
func (d *decider) continueItems(i int) {
	s := d.Task.Steps[i]
	if s.State != events.StepRunning {
		d.advance()
		return
	}
	if s.Items.Ended() < s.Items.Count {
		d.startItems(i)
	}
	if s = d.Task.Steps[i]; s.State == events.StepRunning && s.Items.Ended() == s.Items.Count {
		d.emit(&events.ItemsCompleted{Step: d.Task.Plan.Steps[i].ID, Attempt: s.Attempt}, time.Time{}, nil)
		d.advance()
	}
}

// resumeItems starts the items, and the undos of items, that could not start during a hold.
func (d *decider) resumeItems() {
	for i := range d.Task.Steps {
		s := d.Task.Steps[i]
		switch {
		case s.Items == nil, d.needDefinitions:
		case s.State == events.StepRunning && d.Task.State == events.StateProcessing:
			d.continueItems(i) // if the last items fail as they start, no reply completes the step
		case s.Undo != nil && s.Undo.State == events.StepRunning && s.Items.ToUndo() > 0:
			d.withdrawNext(i, false)
		}
	}
}

// startItems submits items while there is room. Nothing starts during a hold, nor after the task's complete-by.
func (d *decider) startItems(i int) {
	started := 0
	for d.Task.State == events.StateProcessing && d.now.Before(d.Task.CompleteBy) && started < maxStartedBytes {
		s := d.Task.Steps[i]
		from, ok := s.Items.NextPending()
		if !ok || s.State != events.StepRunning || s.Items.Running >= d.Task.Plan.Steps[i].Items.Parallel {
			return
		}
		if !d.loadProgram() {
			d.failRun(i, events.Do, d.definitionError())
			return
		}
		if d.needDefinitions {
			return
		}
		to, records, bytes, err := d.submitItems(i, from, maxStartedBytes-started)
		if to > from {
			d.emit(&events.ItemsStarted{Step: d.Task.Plan.Steps[i].ID, Attempt: s.Attempt, From: from, To: to}, time.Time{}, nil)
			d.Records = append(d.Records, records...)
		}
		if started += bytes; err == nil {
			continue
		}
		f := &events.ItemEnded{Step: d.Task.Plan.Steps[i].ID, Item: to, Error: err}
		if !d.endItem(i, f, d.outputsTooLarge(i, f)) {
			return
		}
	}
}

// submitItems makes the submissions of consecutive items, at least of one. err is why item number to can't start.
func (d *decider) submitItems(i, from, most int) (to int, records []events.Record, bytes int, err *events.Error) {
	it := d.Task.Steps[i].Items
	end := min(it.Count, from+d.Task.Plan.Steps[i].Items.Parallel-it.Running)
	if from < it.Next { // others above it may not be pending
		end = from + 1
	}
	for to = from; to < end && bytes < most; to++ {
		x, err := d.itemSubmission(i, to)
		if err != nil {
			return to, records, bytes, err
		}
		r := x.Record(d.env.Namespace, d.env.Source)
		records, bytes = append(records, r), bytes+len(r.Value)
	}
	return to, records, bytes, nil
}

// itemSubmission makes the submission of an item's task.
func (d *decider) itemSubmission(i, item int) (*events.Submission, *events.Error) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	scope := d.evaluationScope()
	scope.Item, scope.Index = s.Items.Value(item), item
	input, ferr := d.program.Input(i, scope)
	if ferr != nil {
		return nil, expressionFailed(ferr)
	}
	if !events.ValidJSON(input) {
		return nil, nestsTooDeep("the input of item " + fmt.Sprint(item))
	}
	id, err := d.itemID(i, item, s.Attempt)
	if err != nil {
		return nil, err
	}
	x := &events.Submission{ID: id, Workflow: p.Workflow, Version: p.Version, Input: input, Priority: d.Task.Priority, CompleteBy: d.childDeadline(i),
		Traceparent: d.Task.Traceparent, Parent: &events.Parent{Task: d.Task.ID, Step: p.ID, Attempt: s.Attempt,
			Token: s.Items.Token(s.Attempt), Depth: d.childDepth(), Item: &item,
			KnownUntil: d.Task.ChildrenKnownUntil()}}
	if p.Workflow == "" {
		x.Workflow, x.Version, x.Parent.StepAlone, x.CompleteBy = d.Task.Workflow, d.Task.Version, true, d.Task.CompleteBy
		x.Input = events.ItemInput(item, input, scope.Item)
	}
	if n := len(x.Input); n > MaxStepInputBytes {
		return nil, &events.Error{Code: events.CodeTooLarge, Message: tooLarge(fmt.Sprintf("the input of item %d", item), n, MaxStepInputBytes, n)}
	}
	return x, nil
}

// itemID returns the id of an item's task: <task>/<step>/<index>, or what the definition says. Items that start again
// after a resubmit have another.
func (d *decider) itemID(i, item, attempt int) (string, *events.Error) {
	id := events.ItemTaskID(d.Task.KeyName(), d.Task.Plan.Steps[i].ID, item)
	if d.Task.Plan.Steps[i].Workflow != "" {
		if !d.loadProgram() {
			return "", d.definitionError()
		}
		if d.needDefinitions {
			return id, nil
		}
		scope := d.evaluationScope()
		scope.Item, scope.Index = d.Task.Steps[i].Items.Value(item), item
		own, err := d.program.ChildID(i, scope)
		if err != nil {
			return "", expressionFailed(err)
		}
		if own != "" {
			id = own
		}
	}
	return d.checkChildID(id, attempt)
}

// reply isn't called: see replyOfItem.
func (itemsStep) reply(d *decider, _ int, _ *events.Reply) { d.Ignored = IgnoredStaleReply }

// recover isn't called: no run of items has a timer.
func (itemsStep) recover(d *decider, _ int, _ *events.Recovery) { d.Ignored = IgnoredOutsidePolicy }

// replyOfItem applies what the task of an item says: its end, or that it is held or no longer held.
func (d *decider) replyOfItem(i int, r *events.Reply) {
	s := d.Task.Steps[i]
	if s.Items == nil || r.Item == nil || *r.Item >= s.Items.Count {
		d.Ignored = IgnoredStaleReply
		return
	}
	token := s.Items.Token(r.Ref.Attempt)
	if r.Ref.Kind == events.Undo {
		token = s.Items.UndoToken
	}
	item := s.Items.Item(*r.Item)
	switch {
	case token != "" && !r.TokenMatches(events.TokenHash(d.Task.ID, r.Ref, token)):
		d.markUnusable(events.ReasonBadToken, "the reply to "+quoted(events.RequestID(d.Task.ID, r.Ref))+" doesn't have the token of its items")
	case !awaitsItem(s, &item, r.Ref):
		d.Ignored = IgnoredStaleReply
	case slices.Contains(s.Items.UndoRejected, *r.Item) && r.Outcome != events.Completed:
		d.Ignored = IgnoredDuplicate
	case r.Outcome == events.Held:
		d.emit(&events.ItemHeld{Kind: r.Ref.Kind, Step: r.Ref.Step, Item: *r.Item, Error: r.Failure()}, time.Time{}, nil)
	case r.Outcome == events.Resumed && item.Error == nil:
		d.Ignored = IgnoredDuplicate
	case r.Outcome == events.Resumed:
		d.emit(&events.ItemResumed{Kind: r.Ref.Kind, Step: r.Ref.Step, Item: *r.Item}, time.Time{}, nil)
	case r.Outcome != events.Completed && r.Outcome != events.Rejected:
		d.markUnusable(events.ReasonBadHeader, fmt.Sprintf("%s %q of an item", events.HeaderOutcome, r.Outcome))
	case r.Ref.Kind == events.Undo:
		d.endItemUndo(i, r)
	default:
		f, over := d.itemEnd(i, r)
		if d.endItem(i, f, over) {
			d.continueItems(i)
		}
	}
}

// awaitsItem reports whether a step waits for the end of an item, or of its undo.
func awaitsItem(s *events.Step, item *events.Item, ref events.RequestRef) bool {
	if ref.Kind == events.Undo {
		return s.Undo != nil && s.Undo.State == events.StepRunning && s.Undo.Attempt == ref.Attempt && item.State == events.StepUndoing
	}
	switch s.State {
	case events.StepRunning, events.StepPending, events.StepCancelled, events.StepError:
		return item.State == events.StepRunning && item.Attempt == ref.Attempt
	default:
		return false
	}
}

// itemEnd returns what a reply says about the end of an item. over is why the list of outputs can't have it.
func (d *decider) itemEnd(i int, r *events.Reply) (f *events.ItemEnded, over *events.Error) {
	f = &events.ItemEnded{Step: r.Ref.Step, Item: *r.Item}
	if r.Outcome == events.Rejected {
		f.Error = r.Failure()
	} else {
		f.Output = r.Body
	}
	over = d.outputsTooLarge(i, f)
	if over != nil && f.Error == nil { // the item did run: it is undone with the step, which fails
		f = &events.ItemEnded{Step: f.Step, Item: f.Item, Effect: events.EffectUnknown, Error: over}
	}
	return f, over
}

// outputsTooLarge returns why the list of outputs of a step can't have the output or the error of an item; nil: it can.
func (d *decider) outputsTooLarge(i int, f *events.ItemEnded) *events.Error {
	p := d.Task.Plan.Steps[i].Items
	if p.Summary && len(f.Output) <= MaxOutputBytes {
		return nil
	}
	n := len(f.Output)
	if f.Error != nil && p.Collects {
		n = len(f.Error.JSON())
	}
	it := d.Task.Steps[i].Items
	all, total := it.OutputBytes()+n, d.derived.taskBytes(d.Task)+n
	if it.Ended()+1 == itemsProjected && it.Count > itemsProjected { // fail now, not after an hour of work
		all = max(all, (all-it.Count)/itemsProjected*it.Count+it.Count)
	}
	if all <= MaxOutputBytes && total <= MaxTaskBytes {
		return nil
	}
	return &events.Error{Code: events.CodeTooLarge,
		Message: tooLarge(fmt.Sprintf("the list of outputs of %d items, by those up to item %d,", it.Count, f.Item), all, MaxOutputBytes, total) + "; outputs: summary has no bound"}
}

// itemsProjected is the number of outputs after which the size of the whole list is estimated from them.
const itemsProjected = 100

// endItem records the end of an item. over is why the list of outputs can't have it; nil: it can. It reports whether the step
// continues.
func (d *decider) endItem(i int, f *events.ItemEnded, over *events.Error) bool {
	d.emit(f, time.Time{}, nil)
	collected := f.Error == nil || f.Effect == "" && d.Task.Plan.Steps[i].Items.Collects
	switch {
	case collected && over == nil:
		return true
	case d.Task.Steps[i].State != events.StepRunning: // it has failed already, or the task is being undone
		d.advance()
		return false
	}
	e := f.Error
	if collected {
		e = over
	}
	failed := *e
	failed.Details = itemDetails(f.Item, failed.Details)
	d.failRun(i, events.Do, &failed)
	return false
}

// itemDetails returns the details of a step's error that is the error of an item.
func itemDetails(item int, details json.RawMessage) json.RawMessage {
	b := fmt.Appendf(nil, `{"item":%d`, item)
	if len(details) > 0 {
		b = append(append(b, `,"details":`...), details...)
	}
	return append(b, '}')
}

// withdrawItems starts the undo of a step's items: the tasks of those that run are withdrawn at once, then those of
// completed ones, the last completed first. At most max_parallel of them are undone at the same time.
func (d *decider) withdrawItems(i int) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	f := &events.ItemsUndoStarted{Step: p.ID, Attempt: 1, KeepsCompleted: d.Task.Keep || !p.Items.Undoes}
	if s.Undo != nil {
		f.Attempt = s.Undo.Attempt + 1
	}
	f.Token = d.env.Token(d.Task.ID, events.RequestRef{Step: p.ID, Kind: events.Undo, Attempt: f.Attempt})
	d.emit(f, time.Time{}, nil)
	d.withdrawNext(i, true)
}

// withdrawNext withdraws the next items, or ends the undo of the step. An item whose undo was rejected stops no other one.
func (d *decider) withdrawNext(i int, first bool) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	it := s.Items
	room := 0
	if d.canContinue(events.Undo) {
		room = max(0, p.Items.Parallel-it.Undoing+len(it.UndoRejected))
	}
	if next := it.NextUndo(room, first); len(next) > 0 {
		records := make([]events.Record, 0, len(next))
		for _, n := range next {
			w, err := d.itemWithdrawal(i, n)
			if d.needDefinitions {
				return
			}
			if err != nil {
				d.failRun(i, events.Undo, err)
				return
			}
			records = append(records, w.Record(d.env.Namespace, d.env.Source))
		}
		d.emit(&events.ItemsWithdrawn{Step: p.ID, Items: next}, time.Time{}, nil)
		d.Records = append(d.Records, records...)
	}
	it = d.Task.Steps[i].Items
	switch {
	case it.Undoing > len(it.UndoRejected), it.ToUndo() > 0:
		return
	case len(it.UndoRejected) > 0:
		n := it.UndoRejected[0]
		e := *it.Item(n).Error
		e.Details = itemDetails(n, e.Details)
		d.failRun(i, events.Undo, &e)
		return
	}
	d.emit(&events.ItemsUndone{Step: p.ID, Attempt: s.Undo.Attempt}, time.Time{}, nil)
	d.endCatch(i, events.Undo)
	d.advance()
}

// itemWithdrawal makes the withdrawal of an item's task.
func (d *decider) itemWithdrawal(i, item int) (*events.Withdrawal, *events.Error) {
	s, p := d.Task.Steps[i], &d.Task.Plan.Steps[i]
	x := s.Items.Item(item)
	id, err := d.itemID(i, item, x.Attempt)
	if err != nil {
		return nil, err
	}
	started := events.RequestRef{Step: p.ID, Kind: events.Do, Attempt: x.Attempt}
	return &events.Withdrawal{Task: id, Parent: d.Task.ID, Ref: events.RequestRef{Step: p.ID, Kind: events.Undo, Attempt: s.Undo.Attempt},
		Token: s.Items.UndoToken, Started: events.TokenHash(d.Task.ID, started, s.Items.Token(x.Attempt)),
		Completed: x.State == events.StepCompleted, Keep: d.Task.Keep, Why: withdrawalReason(d.Task), Item: &item}, nil
}

// endItemUndo applies the end of an item's undo.
func (d *decider) endItemUndo(i int, r *events.Reply) {
	if r.Outcome == events.Rejected {
		d.emit(&events.ItemHeld{Kind: events.Undo, Step: r.Ref.Step, Item: *r.Item, Error: r.Failure(), Rejected: true}, time.Time{}, nil)
	} else {
		d.emit(&events.ItemUndone{Step: r.Ref.Step, Item: *r.Item}, time.Time{}, nil)
	}
	d.withdrawNext(i, false)
}

package replay

import (
	"math"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A fork runs no tasks of items. What the log says of them are the replies: their ends, and that they are held.

// itemRef names what the step with for_each asks of an item's task: to run, or to be undone.
type itemRef struct {
	ref  events.RequestRef // of the step
	item int
}

// itemsRecording is what the recorded history says of the items.
type itemsRecording struct {
	started map[itemRef]time.Time
	says    map[itemRef][]answer
	// attempt is the last attempt of each item to run, and of each step to undo its items.
	attempt map[itemRef]int
}

func newItemsRecording() itemsRecording {
	return itemsRecording{map[itemRef]time.Time{}, map[itemRef][]answer{}, map[itemRef]int{}}
}

// last returns what the step asked of an item last.
func (r *itemsRecording) last(step string, k events.Kind, item int) itemRef {
	of := itemRef{events.RequestRef{Step: step, Kind: k}, item}
	if k == events.Undo {
		of.item = 0
	}
	return itemRef{events.RequestRef{Step: step, Kind: k, Attempt: r.attempt[of]}, item}
}

func (r *itemsRecording) recordBegin(e *events.Event, step string, k events.Kind, attempt, item int) {
	of := itemRef{events.RequestRef{Step: step, Kind: k}, item}
	if k == events.Undo {
		of.item = 0
	}
	r.attempt[of] = attempt
	r.started[itemRef{events.RequestRef{Step: step, Kind: k, Attempt: attempt}, item}] = e.At
}

// say records what an item's task has said. An item that never started has said nothing: its input can't be evaluated.
func (r *itemsRecording) say(e *events.Event, step string, k events.Kind, item int, outcome events.Outcome, body []byte) {
	is := r.last(step, k, item)
	began, started := r.started[is]
	if !started {
		return
	}
	if len(body) == 0 {
		body = []byte("null")
	}
	r.says[is] = append(r.says[is], answer{outcome: outcome, body: body, seq: e.Seq, after: max(0, e.At.Sub(began))})
}

// add records an event about items. It reports whether it is one.
func (r *itemsRecording) add(e *events.Event) bool {
	return r.addStart(e) || r.addSaid(e)
}

func (r *itemsRecording) addStart(e *events.Event) bool {
	if f, is := e.Fact.(*events.ItemsStarted); is {
		for i := f.From; i < f.To; i++ {
			r.recordBegin(e, f.Step, events.Do, f.Attempt, i)
		}
		return true
	}
	if f, is := e.Fact.(*events.ItemsUndoStarted); is {
		r.attempt[itemRef{events.RequestRef{Step: f.Step, Kind: events.Undo}, 0}] = f.Attempt
		return true
	}
	f, is := e.Fact.(*events.ItemsWithdrawn)
	if is {
		attempt := r.last(f.Step, events.Undo, 0).ref.Attempt
		for _, i := range f.Items {
			r.recordBegin(e, f.Step, events.Undo, attempt, i)
		}
	}
	return is
}

func (r *itemsRecording) addSaid(e *events.Event) bool {
	if f, is := e.Fact.(*events.ItemEnded); is {
		outcome, body := events.Completed, f.Output
		if f.Error != nil {
			outcome, body = events.Rejected, errorBody(f.Error)
		}
		r.say(e, f.Step, events.Do, f.Item, outcome, body)
		return true
	}
	if f, is := e.Fact.(*events.ItemHeld); is {
		outcome := events.Held
		if f.Rejected {
			outcome = events.Rejected
		}
		r.say(e, f.Step, f.Kind, f.Item, outcome, errorBody(f.Error))
		return true
	}
	if f, is := e.Fact.(*events.ItemResumed); is {
		r.say(e, f.Step, f.Kind, f.Item, events.Resumed, nil)
		return true
	}
	f, is := e.Fact.(*events.ItemUndone)
	if is {
		r.say(e, f.Step, events.Undo, f.Item, events.Completed, nil)
	}
	return is
}

// scheduleItem schedules what the log says of an item, after the shared past, or the assumed end.
func (s *sandbox) scheduleItem(is itemRef, since time.Time) {
	var list []pending
	ends := false
	for _, a := range s.past.items.says[is] {
		ends = ends || !isReport(a.outcome)
		if a.seq > s.out.At {
			list = append(list, pending{moment{at: since.Add(a.after), seq: a.seq}, since.Add(a.after), a})
		}
	}
	if a := s.assumedItem(is.ref); !ends && a.outcome != "" {
		list = append(list, pending{moment{at: since, seq: math.MaxUint64}, since, a})
	}
	if len(list) > 0 {
		s.items[is] = list
	}
}

// assumedItem returns the assumed end of an item. One that fails has no result, and every undo succeeds.
func (s *sandbox) assumedItem(ref events.RequestRef) answer {
	a := s.past.assumedAnswer(ref, 0, s.fork.Assume)
	switch {
	case ref.Kind == events.Undo:
		a.outcome, a.effect, a.body = events.Completed, "", []byte("null")
	case a.outcome == events.Failed:
		a.outcome, a.effect = events.Rejected, ""
	case a.outcome == events.Completed:
		a.body = []byte("null")
	}
	return a
}

// scheduleItems schedules what the items say that an event of the forked course starts.
func (s *sandbox) scheduleItems(e *events.Event) {
	if f, is := e.Fact.(*events.ItemsStarted); is {
		for i := f.From; i < f.To; i++ {
			s.scheduleItem(itemRef{events.RequestRef{Step: f.Step, Kind: events.Do, Attempt: f.Attempt}, i}, e.At)
		}
	}
	if f, is := e.Fact.(*events.ItemsWithdrawn); is {
		i, _ := s.task.Plan.Step(f.Step)
		for _, n := range f.Items {
			s.scheduleItem(itemRef{events.RequestRef{Step: f.Step, Kind: events.Undo, Attempt: s.task.Steps[i].Undo.Attempt}, n}, e.At)
		}
	}
}

// resumeItems schedules what the items say that were running, or being undone, when the fork began.
func (s *sandbox) resumeItems() {
	for i, step := range s.task.Steps {
		if step.Items == nil {
			continue
		}
		for n := range step.Items.Next {
			ref := events.RequestRef{Step: s.task.Plan.Steps[i].ID, Kind: events.Do}
			switch x := step.Items.Item(n); {
			case x.State == events.StepRunning:
				ref.Attempt = x.Attempt
			case x.State == events.StepUndoing && step.Undo != nil:
				ref.Kind, ref.Attempt = events.Undo, step.Undo.Attempt
			default:
				continue
			}
			is := itemRef{ref, n}
			since, recorded := s.past.items.started[is]
			if !recorded {
				since = s.now
			}
			s.scheduleItem(is, since)
		}
	}
}

// firstItem returns the item whose task says something first.
func (s *sandbox) firstItem() (is itemRef, first *pending) {
	for ref, list := range s.items {
		if first == nil || s.compare(list[0].moment, first.moment) < 0 || s.compare(list[0].moment, first.moment) == 0 && ref.item < is.item {
			is, first = ref, &list[0]
		}
	}
	return is, first
}

// deliverItem decides what an item's task says.
func (s *sandbox) deliverItem(is itemRef, says *pending) {
	if s.items[is] = s.items[is][1:]; len(s.items[is]) == 0 {
		delete(s.items, is)
	}
	token := ""
	if i, has := s.task.Plan.Step(is.ref.Step); has && s.task.Steps[i].Items != nil {
		if token = s.task.Steps[i].Items.Token(is.ref.Attempt); is.ref.Kind == events.Undo {
			token = s.task.Steps[i].Items.UndoToken
		}
	}
	s.advanceTo(says.moment)
	s.decide(&events.Reply{Task: s.task.ID, Ref: is.ref, Item: &is.item, Token: token, Outcome: says.outcome, Body: says.body, Source: says.from}, says.assumed)
}

// hasItems reports whether something recorded of an item is pending. Nothing is assumed any more.
func (s *sandbox) hasItems() bool {
	for is, list := range s.items {
		if list = slices.DeleteFunc(list, func(a pending) bool { return a.assumed }); len(list) == 0 {
			delete(s.items, is)
		} else {
			s.items[is] = list
		}
	}
	return len(s.items) > 0
}

package scheduler

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// of returns a forgery that changes one of the matching events.
func of(ok func(f *forger, n *entry) bool, change func(f *forger, i int) bool) func(*forger) string {
	return func(f *forger) string {
		i := f.find(func(n *entry) bool { return ok(f, n) })
		if i < 0 {
			return ""
		}
		task := f.log[i].e.Task
		if !change(f, i) {
			return ""
		}
		return task
	}
}

// fact is like of, for one kind of fact.
func fact[F events.Fact](change func(f *forger, n *entry, x F) bool) func(*forger) string {
	return of(func(_ *forger, n *entry) bool { return is[F](n) }, func(f *forger, i int) bool { return change(f, f.log[i], f.log[i].e.Fact.(F)) })
}

func anyEvent(*forger, *entry) bool { return true }

func armsTimer(_ *forger, n *entry) bool { return n.e.Policy != nil }

// inputOf is like of, for the input that caused an event.
func inputOf[I events.Input](change func(f *forger, i int, r *events.Record, in I) bool) func(*forger) string {
	return of(func(f *forger, n *entry) bool {
		r, _ := f.input(n.e.Cause)
		if r == nil || n.e.Queued || string(r.Key) != n.e.Task {
			return false
		}
		_, ok := decode[I](r)
		return ok
	}, func(f *forger, i int) bool {
		r, _ := f.input(f.log[i].e.Cause)
		in, _ := decode[I](r)
		return change(f, i, r, in)
	})
}

func onlyOf(f *forger, task string, ok func(*entry) bool) (all []*entry) {
	for _, n := range f.log {
		if n.e.Task == task && ok(n) {
			all = append(all, n)
		}
	}
	return all
}

// removeInput removes an input from its inbox, unless it is the last.
func (f *forger) removeInput(c events.Cause) bool {
	_, k := f.input(c)
	if k < 0 || k+1 >= len(f.inputs) || f.inputs[k+1].Topic != f.inputs[k].Topic || f.inputs[k+1].Partition != f.inputs[k].Partition {
		return false
	}
	f.inputs = slices.Delete(f.inputs, k, k+1)
	return true
}

// slotOf returns the slot that an event concerns.
func slotOf(x events.Fact) events.Slot {
	s, _ := (&events.Event{Fact: x}).Slot()
	return s
}

// requestOf returns the index of an attempt's request.
func (f *forger) requestOf(i int) int {
	x := f.log[i].e.Fact.(*events.AttemptStarted)
	id := events.RequestID(f.log[i].e.Task, events.RequestRef{Step: x.Step, Kind: x.Kind, Attempt: x.Attempt})
	return slices.IndexFunc(f.requests, func(r events.Record) bool { got, _ := r.Header(events.HeaderID); return got == id })
}

// requestWith returns a forgery of the request of an attempt.
func requestWith(change func(*events.Request)) func(*forger) string {
	return of(func(_ *forger, n *entry) bool { return is[*events.AttemptStarted](n) }, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k < 0 {
			return false
		}
		r := &f.requests[k]
		q, err := events.DecodeRequest(r)
		if err != nil {
			panic(err)
		}
		change(q)
		agent, _ := ns.AgentOf(r.Topic)
		by := q.Record(ns, "test", agent, r.Partition)
		rewrite(r, by)
		return true
	})
}

// exchange swaps the events of two steps' undos.
func (f *forger) exchange(task, a, b string) {
	for _, n := range f.log {
		if n.e.Task != task || slotOf(n.e.Fact).Kind != events.Undo {
			continue
		}
		to := b
		switch slotOf(n.e.Fact).Step {
		case a:
		case b:
			to = a
		default:
			continue
		}
		switch x := n.e.Fact.(type) {
		case *events.AttemptStarted:
			x.Key = strings.Replace(x.Key, "/"+x.Step+"/", "/"+to+"/", 1)
			x.Step = to
		case *events.AttemptCompleted:
			x.Step = to
		case *events.AttemptFailed:
			x.Step = to
		case *events.AttemptRejected:
			x.Step = to
		case *events.AttemptExpired:
			x.Step = to
		case *events.AttemptProgressed:
			x.Step = to
		case *events.AttemptWaiting:
			x.Step = to
		case *events.RunErrored:
			x.Step = to
		}
	}
}

// moveToStart moves an event directly after its task's start.
func (f *forger) moveToStart(i int) bool {
	n := f.log[i]
	for j := range i {
		m := f.log[j]
		if m.e.Task != n.e.Task || !is[*events.TaskStarted](m) {
			continue
		}
		if !n.e.Due.IsZero() {
			n.e.Due = n.e.Due.Add(m.e.At.Sub(n.e.At))
		}
		n.e.At, n.e.Cause, n.e.Epoch = m.e.At, m.e.Cause, m.e.Epoch
		f.log = slices.Insert(slices.Delete(f.log, i, i+1), j+1, n)
		return true
	}
	return false
}

// startIn replaces an event by the start of a step's first attempt.
func (f *forger) startIn(n *entry, t *events.Task, k int) {
	agent, operation := t.Plan.Agent(k, events.Do)
	step := t.Plan.Steps[k].ID
	by := n.e.At.Add(t.Plan.Steps[k].Attempts.CompleteWithin)
	if t.CompleteBy.Before(by) {
		by = t.CompleteBy
	}
	number := t.Steps[k].Attempt + 1
	n.e.Fact = &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: number, Agent: agent, Operation: operation, Key: events.IdempotencyKey(ns, t.ID, step, events.Do, t.Steps[k].Generation),
		TokenHash: events.TokenHash(t.ID, events.RequestRef{Step: step, Kind: events.Do, Attempt: number}, "forged"), Input: json.RawMessage("{}")}
	n.e.Due, n.e.Policy = by, t.Policy(k, events.Do, events.TimerAttempt)
	n.e.Sum = ""
	seq := n.e.Seq
	f.drop(t.ID, func(m *entry) bool { return m.e.Seq > seq })
}

// mustFollow reports whether the event after i belongs to the same decision and can't be missing. The start of an
// attempt can be missing, since it may wait for its agent, and so can the events that follow from it.
func (f *forger) mustFollow(i int) bool {
	if i+1 == len(f.log) {
		return false
	}
	n, next := f.log[i], f.log[i+1]
	if next.e.Task != n.e.Task || next.e.Cause != n.e.Cause || next.e.Queued != n.e.Queued {
		return false
	}
	switch x := next.e.Fact.(type) {
	case *events.AttemptStarted:
		return x.Kind == events.Undo
	case *events.RunSkipped:
		return false
	case *events.RunErrored:
		if k, _ := f.before[next].Plan.Step(x.Step); x.Kind == events.Do {
			return f.before[next].Steps[k].State != events.StepPending
		}
	case *events.AttemptFailed:
		return x.Kind == events.Undo
	}
	return true
}

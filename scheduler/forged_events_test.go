package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// forgedEvents are forgeries of events.
var forgedEvents = []forgery{
	{"chain: prev", "P2", true, of(func(_ *forger, n *entry) bool { return n.e.Seq > 1 }, func(f *forger, i int) bool {
		f.log[i].e.Prev, f.log[i].prev = "AAAAAAAAAAAAAAAAAAAAAA", true
		return true
	})},
	{"chain: an event is gone", "", true, of(func(f *forger, n *entry) bool { return !f.after[n].State.Terminal() }, func(f *forger, i int) bool {
		if f.next(i) < 0 {
			return false
		}
		for _, n := range f.log {
			n.raw = true
		}
		f.log = slices.Delete(f.log, i, i+1)
		return true
	})},
	{"event dropped", "", false, of(anyEvent, func(f *forger, i int) bool {
		f.log = slices.Delete(f.log, i, i+1)
		return true
	})},
	{"event doubled", "", true, of(anyEvent, func(f *forger, i int) bool {
		f.log = slices.Insert(f.log, i, entryOf(nil, f.log[i].r))
		return true
	})},
	{"event swapped with the next of its task", "", true, of(anyEvent, func(f *forger, i int) bool {
		j := f.next(i)
		if j < 0 || fmt.Sprint(f.log[i].e.Fact) == fmt.Sprint(f.log[j].e.Fact) {
			return false
		}
		a, b := f.log[i], f.log[j]
		_, s1 := a.e.Fact.(*events.AttemptStarted)
		_, s2 := b.e.Fact.(*events.AttemptStarted)
		if s1 && s2 || a.e.Cause == b.e.Cause && a.e.Policy != nil && b.e.Policy != nil { // parallel steps: both orders are valid
			return false
		}
		f.log[i], f.log[j] = f.log[j], f.log[i]
		return true
	})},
	{"event of another task", "", true, of(func(_ *forger, n *entry) bool { return n.e.Seq > 1 }, func(f *forger, i int) bool {
		j := f.find(func(n *entry) bool {
			return n.r.Partition == f.log[i].r.Partition && n.e.Task != f.log[i].e.Task && n.e.Seq > 1
		})
		if j < 0 {
			return false
		}
		n := entryOf(nil, f.log[j].r)
		n.e.Task = f.log[i].e.Task
		f.log = slices.Insert(f.log, i, n)
		return true
	})},
	{"seq", "P2", true, of(anyEvent, func(f *forger, i int) bool { f.log[i].e.Seq += 1; f.log[i].seq = true; return true })},
	{"epoch falls", "P11", true, of(anyEvent, func(f *forger, i int) bool { f.log[i].e.Epoch--; return true })},
	{"epoch rises", "P11", true, of(anyEvent, func(f *forger, i int) bool { f.log[i].e.Epoch++; return true })},
	{"at before the last", "", true, of(anyEvent, func(f *forger, i int) bool { f.log[i].e.At = f.log[i].e.At.Add(-time.Hour); return true })},
	{"at of what arms a timer", "", true, of(armsTimer, func(f *forger, i int) bool { f.log[i].e.At = f.log[i].e.At.Add(time.Millisecond); return true })},
	{"cause: another offset", "", false, of(anyEvent, func(f *forger, i int) bool {
		f.log[i].e.Cause.Offset += int64(1 - 2*f.IntN(2))
		return f.log[i].e.Cause.Offset >= 0
	})},
	{"cause: another inbox", "", false, of(anyEvent, func(f *forger, i int) bool {
		f.log[i].e.Cause.Inbox = (f.log[i].e.Cause.Inbox + 1) % events.Inboxes
		return true
	})},
	{"cause: another partition", "P10", true, of(anyEvent, func(f *forger, i int) bool {
		f.log[i].e.Cause.Partition = 1 - f.log[i].e.Cause.Partition
		return true
	})},
	{"due later", "", true, of(armsTimer, func(f *forger, i int) bool { f.log[i].e.Due = f.log[i].e.Due.Add(time.Second); return true })},
	{"due sooner", "", true, of(func(_ *forger, n *entry) bool {
		// a wait for the agent may have ended with its backoff
		return n.e.Policy != nil && (n.e.Policy.Timer != events.TimerWaiting || n.e.Due.After(n.e.At))
	}, func(f *forger, i int) bool { f.log[i].e.Due = f.log[i].e.Due.Add(-time.Millisecond); return true })},
	{"no timer armed", "", true, of(armsTimer, func(f *forger, i int) bool { f.log[i].e.Due, f.log[i].e.Policy = time.Time{}, nil; return true })},
	{"policy: failures", "P5", true, of(armsTimer, func(f *forger, i int) bool {
		if f.log[i].e.Policy.Timer == events.TimerTask {
			return false
		}
		f.log[i].e.Policy.FailureCount++
		return true
	})},
	{"policy: rule", "P5", true, of(armsTimer, func(f *forger, i int) bool {
		if f.log[i].e.Policy.Timer == events.TimerTask {
			return false
		}
		f.log[i].e.Policy.Attempts.MaxAttempts++
		return true
	})},
	{"policy: timer", "", true, of(armsTimer, func(f *forger, i int) bool {
		p := f.log[i].e.Policy
		if p.Timer == events.TimerTask {
			return false
		}
		if p.Timer == events.TimerAttempt {
			p.Timer = events.TimerFailed
		} else {
			p.Timer = events.TimerAttempt
		}
		return true
	})},
	{"policy: on_error", "", true, of(armsTimer, func(f *forger, i int) bool {
		p := f.log[i].e.Policy
		p.OnError = map[string]string{events.OnErrorHold: events.OnErrorUndo, events.OnErrorUndo: events.OnErrorHold}[p.OnError]
		return true
	})},
	{"policy: complete_by", "", true, of(armsTimer, func(f *forger, i int) bool {
		p := f.log[i].e.Policy
		if p.CompleteBy.IsZero() {
			return false
		}
		p.CompleteBy = p.CompleteBy.Add(time.Second)
		return true
	})},
	{"policy: cooled_down", "", true, of(armsTimer, func(f *forger, i int) bool {
		p := f.log[i].e.Policy
		if p.Timer == events.TimerTask {
			return false
		}
		p.CooledDown = !p.CooledDown
		return true
	})},
	{"a wait cools down", "", true, fact(func(f *forger, n *entry, x *events.AttemptWaiting) bool { x.CoolDown = !x.CoolDown; return true })},
	{"attempt: agent", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool { x.Agent += "x"; return true })},
	{"attempt: operation", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool { x.Operation += "x"; return true })},
	{"attempt: key", "P7", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool { x.Key += "1"; return true })},
	{"attempt: key of another step throughout", "P7", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		step, kind, key := x.Step, x.Kind, events.IdempotencyKey(ns, n.e.Task, "elsewhere", x.Kind, 0)
		for _, m := range onlyOf(f, n.e.Task, is[*events.AttemptStarted]) {
			if y := m.e.Fact.(*events.AttemptStarted); y.Step == step && y.Kind == kind {
				y.Key = key
			}
		}
		return true
	})},
	{"attempt: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool { x.Attempt++; return true })},
	{"reply: number of the attempt", "", true, fact(func(f *forger, n *entry, x *events.AttemptCompleted) bool { x.Attempt++; return true })},
	{"a request that wasn't sent had an effect", "", true, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		if n.e.Cause.Inbox == events.Replies && f.first(slices.Index(f.log, n)) || x.Effect != events.EffectNone {
			return false
		}
		x.Effect = events.EffectUnknown
		return true
	})},
	{"undone for an operator who asked for a cancel", "", true, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool {
		if x.Ending != events.StateCancelled || len(onlyOf(f, n.e.Task, is[*events.TaskCancelled])) == 0 {
			return false
		}
		x.Ending = events.StateUndone
		return true
	})},
	{"undone by itself, and the plan says hold", "", true, fact(func(f *forger, n *entry, x *events.TaskHeld) bool {
		if s := f.before[n].State; s != events.StateProcessing && s != events.StatePending {
			return false
		}
		n.e.Fact = &events.TaskUndoing{Ending: events.StateUndone, Error: x.Error}
		n.e.Sum = ""
		return true
	})},
	{"held, and the plan says undo", "", true, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool {
		if x.RequestID != "" {
			return false
		}
		n.e.Fact = &events.TaskHeld{Error: x.Error}
		return true
	})},
	{"undo passed over", "", true, fact(func(f *forger, n *entry, x *events.AttemptCompleted) bool {
		if x.Kind != events.Undo {
			return false
		}
		step := x.Step
		f.drop(n.e.Task, func(n *entry) bool { s := slotOf(n.e.Fact); return s.Step == step && s.Kind == events.Undo })
		return true
	})},
	{"undos in another order", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		if x.Kind != events.Undo {
			return false
		}
		first := x.Step
		for _, m := range onlyOf(f, n.e.Task, is[*events.AttemptStarted]) {
			y := m.e.Fact.(*events.AttemptStarted)
			if y.Kind == events.Undo && y.Step != first && m.e.Seq > n.e.Seq && f.after[m].Plan != nil {
				f.exchange(n.e.Task, first, y.Step)
				return true
			}
		}
		return false
	})},
	{"undo of what isn't to be undone", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		if x.Kind != events.Undo {
			return false
		}
		t := f.before[n]
		for i := range t.Steps {
			if s := t.Steps[i]; t.Plan.Steps[i].Undo != nil && s.Attempt == 0 && s.State != events.StepCompleted {
				x.Step = t.Plan.Steps[i].ID
				return true
			}
		}
		return false
	})},
	{"a step's events are gone", "", true, of(func(_ *forger, n *entry) bool { return is[*events.TaskProcessed](n) }, func(f *forger, i int) bool {
		task := f.log[i].e.Task
		step := pick(f.dice, f.before[f.log[i]].Plan.Steps).ID
		f.drop(task, func(n *entry) bool {
			if x, ok := n.e.Fact.(*events.RunSkipped); ok {
				return x.Step == step
			}
			return slotOf(n.e.Fact).Step == step
		})
		return true
	})},
	{"processed with a step in error", "", true, fact(func(f *forger, n *entry, x *events.RunErrored) bool {
		if f.before[n].State != events.StateProcessing {
			return false
		}
		seq := n.e.Seq
		task := n.e.Task
		f.drop(task, func(m *entry) bool { return m.e.Seq > seq+1 })
		all := onlyOf(f, task, func(m *entry) bool { return m.e.Seq == seq+1 })
		if len(all) == 0 {
			return false
		}
		all[0].e.Fact = &events.TaskProcessed{Output: json.RawMessage("null")}
		all[0].e.Sum = "x"
		return true
	})},
	{"ends twice", "P2", true, of(func(f *forger, n *entry) bool { return f.after[n].State.Terminal() }, func(f *forger, i int) bool {
		f.log = slices.Insert(f.log, i+1, entryOf(nil, f.log[i].r))
		return true
	})},
	{"ends as what was not decided", "", true, of(func(f *forger, n *entry) bool { return is[*events.TaskUndone](n) }, func(f *forger, i int) bool {
		f.log[i].e.Fact = &events.TaskCancelled{}
		return true
	})},
	{"a step starts before its needs", "", true, of(func(f *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.AttemptStarted)
		if !ok || x.Kind != events.Do || x.Attempt != 1 || n.e.Queued {
			return false
		}
		k, _ := f.before[n].Plan.Step(x.Step)
		return len(f.before[n].Plan.Steps[k].Needs) > 0
	}, func(f *forger, i int) bool { return f.moveToStart(i) })},
	{"a step starts while another is in error", "", true, fact(func(f *forger, n *entry, x *events.TaskHeld) bool {
		t := f.before[n]
		i := slices.Index(f.log, n)
		if t.State != events.StateProcessing || i == 0 || !is[*events.RunErrored](f.log[i-1]) && !is[*events.AttemptRejected](f.log[i-1]) {
			return false
		}
		for k := range t.Steps {
			if t.Steps[k].State == events.StepPending && ancestorsDone(t, k) {
				f.startIn(n, t, k)
				return true
			}
		}
		return false
	})},
	{"a step is skipped before its needs", "", true, of(func(f *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.RunSkipped)
		if !ok {
			return false
		}
		k, _ := f.before[n].Plan.Step(x.Step)
		return len(f.before[n].Plan.Steps[k].Needs) > 0
	}, func(f *forger, i int) bool { return f.moveToStart(i) })},
	{"a decision's end is gone", "", true, of(func(f *forger, n *entry) bool { return f.mustFollow(slices.Index(f.log, n)) }, func(f *forger, i int) bool {
		seq := f.log[i].e.Seq
		f.drop(f.log[i].e.Task, func(n *entry) bool { return n.e.Seq > seq })
		return true
	})},
	{"a decision is gone", "", false, of(func(f *forger, n *entry) bool { return !n.e.Queued && n.e.Cause.Inbox == events.Replies }, func(f *forger, i int) bool {
		c := f.log[i].e.Cause
		f.log = slices.DeleteFunc(f.log, func(n *entry) bool { return n.e.Cause == c })
		return true
	})},
	{"a task is gone", "P10 P15", false, of(anyEvent, func(f *forger, i int) bool {
		task := f.log[i].e.Task
		f.drop(task, func(*entry) bool { return true })
		f.requests = slices.DeleteFunc(f.requests, func(r events.Record) bool { return string(r.Key) == task })
		return true
	})},
	{"a task in another partition", "P10", true, of(anyEvent, func(f *forger, i int) bool {
		task, p := f.log[i].e.Task, f.log[i].r.Partition
		var moved []*entry
		for _, n := range f.log {
			if n.e.Task == task {
				n.r.Partition = 1 - p
				n.e.Cause.Partition = 1 - p
				moved = append(moved, n)
			}
		}
		return len(moved) > 0
	})},
	{"written by another owner", "P11", true, of(anyEvent, func(f *forger, i int) bool {
		f.log[i].r.Headers = withHeader(f.log[i].r.Headers, events.HeaderSource, string(ns)+"scheduler/somebody")
		return true
	})},
	{"retry without its wait", "", true, fact(func(f *forger, n *entry, x *events.AttemptWaiting) bool {
		i := slices.Index(f.log, n)
		j := f.next(i)
		if j < 0 || !is[*events.AttemptStarted](f.log[j]) || slotOf(f.log[j].e.Fact) != slotOf(x) || !n.e.Due.After(n.e.At) { // or the wait was over
			return false
		}
		f.replace(i, f.log[j])
		return true
	})},
	{"queued", "", false, of(func(_ *forger, n *entry) bool { return true }, func(f *forger, i int) bool { f.log[i].e.Queued = !f.log[i].e.Queued; return true })},
}

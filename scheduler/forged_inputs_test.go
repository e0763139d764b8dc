package scheduler

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// forgedInputs are forgeries of inputs, and of records that are written together with events.
var forgedInputs = []forgery{
	{"reply: output", "", false, fact(func(f *forger, n *entry, x *events.AttemptCompleted) bool {
		if x.Kind == events.Undo {
			return false
		}
		x.Output = json.RawMessage(`{"forged":true}`)
		return true
	})},
	{"reply: effect", "", false, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		if n.e.Cause.Inbox != events.Replies || x.Kind == events.Undo {
			return false
		}
		x.Effect = map[events.Effect]events.Effect{events.EffectNone: events.EffectUnknown, events.EffectUnknown: events.EffectNone}[x.Effect]
		return true
	})},
	{"reply: rejected for failed", "", false, fact(func(f *forger, n *entry, x *events.AttemptRejected) bool {
		n.e.Fact = &events.AttemptFailed{Kind: x.Kind, Step: x.Step, Attempt: x.Attempt, Error: x.Error, Effect: events.EffectUnknown}
		return true
	})},
	{"reply: completed for failed", "", false, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		if n.e.Cause.Inbox != events.Replies {
			return false
		}
		n.e.Due, n.e.Policy = time.Time{}, nil
		n.e.Fact = &events.AttemptCompleted{Kind: x.Kind, Step: x.Step, Attempt: x.Attempt}
		return true
	})},
	{"reply gone", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		return f.removeInput(f.log[i].e.Cause)
	})},
	{"reply of another attempt", "P3", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Ref.Attempt++
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"reply of another outcome", "", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Outcome = map[events.Outcome]events.Outcome{events.Completed: events.Rejected, events.Failed: events.Completed, events.Rejected: events.Failed}[in.Outcome]
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"recovery gone", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		return f.removeInput(f.log[i].e.Cause)
	})},
	{"recovery of another timer", "P4", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		in.Timer++
		rewrite(r, in.Record(ns, "test", r.Partition))
		return true
	})},
	{"recovery: undo or hold for a retry", "P4", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		if !is[*events.AttemptStarted](f.log[i]) || !f.first(i) {
			return false
		}
		in.Action = events.ActionHold
		rewrite(r, in.Record(ns, "test", r.Partition))
		return true
	})},
	{"recovery: another action for the task's timer", "P4", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		if in.Step != "" {
			return false
		}
		in.Action = map[events.Action]events.Action{events.ActionHold: events.ActionUndo, events.ActionUndo: events.ActionHold}[in.Action]
		rewrite(r, in.Record(ns, "test", r.Partition))
		return true
	})},
	{"control gone", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		return f.removeInput(f.log[i].e.Cause)
	})},
	{"control: another command", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		if !f.first(i) {
			return false
		}
		in.Command = map[events.Command]events.Command{events.Cancel: events.UndoTask, events.UndoTask: events.Cancel, events.Resubmit: events.Cancel, events.Release: events.Resubmit}[in.Command]
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"control: keep", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		if in.Command != events.Cancel || !is[*events.TaskUndoing](f.log[i]) {
			return false
		}
		in.Keep = !in.Keep
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"control: released as", "", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		if in.Command != events.Release || !is[*events.RunReleased](f.log[i]) {
			return false
		}
		in.As = map[events.StepState]events.StepState{events.StepCompleted: events.StepUndone, events.StepUndone: events.StepCompleted}[in.As]
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"control: released output", "P10", false, fact(func(f *forger, n *entry, x *events.RunReleased) bool { x.Output = json.RawMessage("7"); return true })},
	{"released as undone while it is processed, or the other way round", "", true, fact(func(f *forger, n *entry, x *events.RunReleased) bool {
		x.As = map[events.StepState]events.StepState{events.StepCompleted: events.StepUndone, events.StepUndone: events.StepCompleted}[x.As]
		return true
	})},
	{"control: who asked", "P10", false, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool {
		if x.RequestID == "" {
			return false
		}
		x.Who = "somebody else"
		return true
	})},
	{"submission: input", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool {
		x.Input = json.RawMessage(`{"n":77}`)
		return true
	})},
	{"submission: priority", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool { x.Priority++; return true })},
	{"submission: digest", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool { x.Digest = "x"; return true })},
	{"request gone", "P10", false, of(func(_ *forger, n *entry) bool { return is[*events.AttemptStarted](n) }, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k >= 0 {
			f.requests = slices.Delete(f.requests, k, k+1)
		}
		return k >= 0
	})},
	{"request doubled", "P10", false, of(func(_ *forger, n *entry) bool { return is[*events.AttemptStarted](n) }, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k >= 0 {
			f.requests = append(f.requests, f.requests[k])
		}
		return k >= 0
	})},
	{"request: another token", "P10", false, requestWith(func(q *events.Request) { q.Token += "1" })},
	{"attempt: another token", "", false, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		x.TokenHash = events.TokenHash(n.e.Task, events.RequestRef{Step: x.Step, Kind: x.Kind, Attempt: x.Attempt}, "forged")
		return true
	})},
	{"attempt: no token", "P18", false, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool { x.TokenHash = ""; return true })},
	{"reply: another token", "P18", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Token += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i)
	})},
	{"request: another key", "P10", false, requestWith(func(q *events.Request) { q.IdempotencyKey += "1" })},
	{"request: another operation", "P10", false, requestWith(func(q *events.Request) { q.Operation += "1" })},
	{"request: more time", "P10", false, requestWith(func(q *events.Request) { q.CompleteBy = q.CompleteBy.Add(time.Second) })},
	{"request: another agent", "P10", false, of(func(_ *forger, n *entry) bool { return is[*events.AttemptStarted](n) }, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k >= 0 {
			f.requests[k].Topic += "x"
		}
		return k >= 0
	})},
	{"alert gone", "P1", false, of(func(_ *forger, n *entry) bool { return is[*events.TaskHeld](n) }, func(f *forger, i int) bool {
		id := f.log[i].e.ID(0)
		f.alerts = slices.DeleteFunc(f.alerts, func(r events.Record) bool { got, _ := r.Header(events.HeaderID); return got == id })
		return true
	})},
}

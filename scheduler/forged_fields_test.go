package scheduler

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// forgedFields are forgeries of single fields. Together they change each field of an event, an input, a request or a
// dead letter. The fields below aren't forged, since no other record determines their value:
//
//   - Of any event: its record's timestamp, ce_specversion and content-type; at, if no timer is armed and no other
//     event of the partition is between; and prev, since a forger recomputes it.
//   - Of received: the version, if the submission named none; and the plan, except where the task's course and its
//     policies show it. Both come from the definition.
//   - Results of expressions: the output of processed, and whether a step is skipped.
//   - The input of an attempt without its request, and the undone step's data in an undo's request.
//   - The instance of a reply, and the traceparent, if an event has none. Older builds wrote none.
//   - The error of a request that wasn't sent, and of a task that is held because of its output or because it was late.
//   - complete_by and until of a recovery, which a scheduler computes itself, and the sender of a recovery.
//   - ce_id of any input, except in the answer to a control; and ce_id of a dead letter, which is identified by its
//     origin.
//   - Of an alert, everything but its task: an alert can be derived from its event. The same holds for a notification
//     and an answer.
var forgedFields = []forgery{
	{"key", "", true, anywhere(rawly(func(f *forger, n *entry) { n.r.Key = []byte(string(n.r.Key) + "x") }))},
	{"ce_id: number", "", true, rawly(func(f *forger, n *entry) {
		n.r.Headers = withHeader(n.r.Headers, events.HeaderID, events.TaskEventID(n.e.Task, n.e.Seq+1))
	})},
	{"ce_id: task", "", true, rawly(func(f *forger, n *entry) {
		n.r.Headers = withHeader(n.r.Headers, events.HeaderID, events.TaskEventID(n.e.Task+"x", n.e.Seq))
	})},
	{"ce_type", "", true, rawly(func(f *forger, n *entry) {
		n.r.Headers = withHeader(n.r.Headers, events.HeaderType, (*events.RunReleased)(nil).Type()+"x")
	})},
	{"ce_source is gone", "P11", true, rawly(func(f *forger, n *entry) {
		n.r.Headers = slices.DeleteFunc(slices.Clone(n.r.Headers), func(h events.Header) bool { return h.Key == events.HeaderSource })
	})},
	{"sum", "P2", true, sumOf(func(f *forger, n *entry) { n.e.Sum = "AAAAAAAAAAAAAAAAAAAAAA" })},
	{"sum is gone", "P2", true, sumOf(func(f *forger, n *entry) { n.e.Sum = "" })},
	{"at after the next", "P11", true, anywhere(of(func(f *forger, n *entry) bool { return n.r.Offset < int64(len(f.log))/8 && n.e.Policy == nil }, func(f *forger, i int) bool {
		f.log[i].e.At = f.log[i].e.At.Add(24 * time.Hour)
		return slices.ContainsFunc(f.log[i+1:], func(n *entry) bool { return n.r.Partition == f.log[i].r.Partition && n.e.Task == f.log[i].e.Task })
	}))},
	{"due without a policy", "", true, of(armsTimer, func(f *forger, i int) bool { f.log[i].e.Policy = nil; return true })},
	{"a policy without due", "", true, of(armsTimer, func(f *forger, i int) bool { f.log[i].e.Due = time.Time{}; return true })},
	{"policy: complete_within", "P5", true, policy(func(p *events.Policy) { p.Attempts.CompleteWithin += time.Second })},
	{"policy: backoff", "P5", true, policy(func(p *events.Policy) { p.Attempts.Backoff += time.Second })},
	{"policy: factor", "P5", true, policy(func(p *events.Policy) { p.Attempts.Factor++ })},
	{"policy: max", "P5", true, policy(func(p *events.Policy) { p.Attempts.Max += time.Second })},
	{"policy: cool_down", "P5", true, policy(func(p *events.Policy) { p.Attempts.CoolDown += time.Second })},

	{"claim: owner", "", true, claim(func(f *forger, i int) bool { f.log[i].e.Fact.(*events.PartitionClaimed).Owner += "x"; return true })},
	{"claim: epoch", "", true, claim(func(f *forger, i int) bool { f.log[i].e.Epoch++; return true })},
	{"claim: at", "", true, claim(func(f *forger, i int) bool { f.log[i].e.At = f.log[i].e.At.Add(24 * time.Hour); return true })},
	{"claim: cause in another partition", "", true, claim(func(f *forger, i int) bool { f.log[i].e.Cause.Partition = 1 - f.log[i].e.Cause.Partition; return true })},
	{"claim: cause comes later", "", true, claim(func(f *forger, i int) bool {
		if !f.goesOn(i) { // the log doesn't show the position of its inbox
			return false
		}
		f.log[i].e.Cause.Offset += 1 << 20
		return true
	})},
	{"claim is gone", "", true, claim(func(f *forger, i int) bool { f.log = slices.Delete(f.log, i, i+1); return true })},
	{"claim: number", "", true, claim(func(f *forger, i int) bool { f.log[i].e.Seq++; return true })},
	{"claim twice", "", true, claim(func(f *forger, i int) bool { f.log = slices.Insert(f.log, i, entryOf(nil, f.log[i].r)); return true })},

	{"received: workflow", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool { x.Workflow += "x"; return true })},
	{"received: reply_to", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool { x.ReplyTo += "x"; return true })},
	{"received: labels", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool {
		x.Labels = map[string]string{"a": "b"}
		return true
	})},
	{"received: complete_by", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool {
		x.CompleteBy = n.e.At.Add(time.Hour * 77)
		return true
	})},
	{"received: traceparent", "P10", false, fact(func(f *forger, n *entry, x *events.TaskReceived) bool { x.Traceparent += "x"; return true })},
	{"undoing: why", "P10", false, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool { x.Why += "x"; return x.RequestID != "" })},
	{"undoing: request", "P10", false, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool { x.RequestID += "x"; return len(x.RequestID) > 1 })},
	{"undoing: keep", "", false, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool { x.Keep = !x.Keep; return true })},
	{"undoing: error of another step", "P2", true, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool { return x.RequestID == "" && otherStep(x.Error) })},
	{"undoing: another error", "P2", true, fact(func(f *forger, n *entry, x *events.TaskUndoing) bool {
		return x.RequestID == "" && f.ofStep(n, x.Error) && otherCode(x.Error)
	})},
	{"held: error of another step", "P2", true, fact(func(f *forger, n *entry, x *events.TaskHeld) bool { return otherStep(x.Error) })},
	{"held: another error", "P2", true, fact(func(f *forger, n *entry, x *events.TaskHeld) bool { return f.ofStep(n, x.Error) && otherCode(x.Error) })},
	{"resumed: who", "P10", false, fact(func(f *forger, n *entry, x *events.TaskResumed) bool { x.Who += "x"; return x.RequestID != "" })},
	{"resumed: request", "P10", false, fact(func(f *forger, n *entry, x *events.TaskResumed) bool { x.RequestID += "x"; return len(x.RequestID) > 1 })},
	{"released: step", "", false, fact(func(f *forger, n *entry, x *events.RunReleased) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"released: who", "P10", false, fact(func(f *forger, n *entry, x *events.RunReleased) bool { x.Who += "x"; return true })},
	{"released: request", "P10", false, fact(func(f *forger, n *entry, x *events.RunReleased) bool { x.RequestID += "x"; return true })},
	{"skipped: another step", "", true, fact(func(f *forger, n *entry, x *events.RunSkipped) bool {
		x.Step = another(f.before[n], x.Step)
		k, ok := f.before[n].Plan.Step(x.Step)
		return ok && f.before[n].Steps[k].State != events.StepPending
	})},
	{"attempt: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"attempt: input", "P10", false, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		x.Input = json.RawMessage(`{"forged":true}`)
		return x.Kind == events.Do && x.Attempt == 1
	})},
	{"completed: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptCompleted) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"completed: instance", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptCompleted) bool {
		x.Instance += "x"
		return len(x.Instance) > 1
	})},
	// A step whose agent doesn't exist fails without a request. If several fail so in one decision and the task is then
	// held, nothing else in the log says which.
	{"failed: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != "" && x.Error.Code != events.CodeNoSuchAgent
	})},
	{"failed: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool { x.Attempt++; return true })},
	{"failed: instance", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool { x.Instance += "x"; return len(x.Instance) > 1 })},
	{"failed: the wait that the agent asked for", "", true, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		x.RetryAfter += time.Second
		return n.e.Policy != nil
	})},
	{"failed: not counted", "", true, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		x.Deferred = !x.Deferred
		return n.e.Policy != nil
	})},
	{"failed: error", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptFailed) bool {
		return n.e.Cause.Inbox == events.Replies && !n.e.Queued && f.first(slices.Index(f.log, n)) && otherCode(x.Error)
	})},
	{"rejected: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptRejected) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"rejected: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptRejected) bool { x.Attempt++; return true })},
	{"rejected: instance", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptRejected) bool {
		x.Instance += "x"
		return len(x.Instance) > 1
	})},
	{"rejected: error", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptRejected) bool { return otherCode(x.Error) })},
	{"expired: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptExpired) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"expired: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptExpired) bool { x.Attempt++; return true })},
	{"expired: silence", "P22", false, fact(func(f *forger, n *entry, x *events.AttemptExpired) bool {
		x.Silence += time.Second
		return true
	})},
	{"progressed: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptProgressed) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"progressed: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptProgressed) bool { x.Attempt++; return true })},
	{"progressed: instance", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptProgressed) bool {
		x.Instance += "x"
		return len(x.Instance) > 1
	})},
	{"progressed: value", "P3", false, fact(func(f *forger, n *entry, x *events.AttemptProgressed) bool {
		x.Progress = json.RawMessage(`{"forged":true}`)
		return true
	})},
	{"started: complete-by of a heartbeat", "", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		x.CompleteBy = x.CompleteBy.Add(time.Second)
		return x.CompleteBy.Year() > 1
	})},
	{"wait: another step", "", true, fact(func(f *forger, n *entry, x *events.AttemptWaiting) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},
	{"wait: number", "", true, fact(func(f *forger, n *entry, x *events.AttemptWaiting) bool { x.Attempt++; return true })},
	{"errored: another step", "", true, fact(func(f *forger, n *entry, x *events.RunErrored) bool {
		x.Step = another(f.before[n], x.Step)
		return x.Step != ""
	})},

	{"submission: another workflow", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Submission) bool {
		in.Workflow += "x"
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"submission: another version", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Submission) bool {
		in.Version += 7
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"submission: another traceparent", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Submission) bool {
		in.Traceparent += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i)
	})},
	{"reply: another body", "P3", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Body = json.RawMessage(`{"code":"forged"}`)
		rewrite(r, in.Record(ns, in.Source))
		return in.Outcome != events.Completed || in.Ref.Kind == events.Do && is[*events.AttemptCompleted](f.log[i])
	})},
	{"reply: another effect", "P3", false, of(func(f *forger, n *entry) bool {
		return is[*events.AttemptFailed](n) && n.e.Cause.Inbox == events.Replies && !n.e.Queued && f.first(slices.Index(f.log, n))
	}, func(f *forger, i int) bool {
		r, _ := f.input(f.log[i].e.Cause)
		if r == nil {
			return false
		}
		in, ok := decode[*events.Reply](r)
		if !ok || in.Outcome != events.Failed {
			return false
		}
		in.Effect = map[events.Effect]events.Effect{events.EffectNone: events.EffectUnknown, events.EffectUnknown: events.EffectNone}[in.Effect]
		rewrite(r, in.Record(ns, in.Source))
		return true
	})},
	{"reply of another step", "P3", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Ref.Step += "x"
		rewrite(r, in.Record(ns, in.Source))
		return true
	})},
	{"reply of an undo for a step's, or the other way round", "P3", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		in.Ref.Kind = map[events.Kind]events.Kind{events.Do: events.Undo, events.Undo: events.Check, events.Check: events.Do}[in.Ref.Kind]
		rewrite(r, in.Record(ns, in.Source))
		return true
	})},
	{"reply of another source", "P3", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Reply) bool {
		rewrite(r, in.Record(ns, "somebody else"))
		return true
	})},
	{"recovery of another step", "P4", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		in.Step += "x"
		if in.Kind == "" {
			in.Kind = events.Do
		}
		rewrite(r, in.Record(ns, "test", r.Partition))
		return true
	})},
	{"recovery of an undo for a step's, or the other way round", "P4", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Recovery) bool {
		in.Kind = map[events.Kind]events.Kind{events.Do: events.Undo, events.Undo: events.Check, events.Check: events.Do}[in.Kind]
		rewrite(r, in.Record(ns, "test", r.Partition))
		return in.Step != ""
	})},
	{"control of somebody else", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		in.Who += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i)
	})},
	{"control: another reason why", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		in.Why += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i)
	})},
	{"control: another request", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		in.RequestID += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i)
	})},
	{"control of another step", "P10", false, inputOf(func(f *forger, i int, r *events.Record, in *events.Control) bool {
		in.Step += "x"
		rewrite(r, in.Record(ns, "test"))
		return f.first(i) && (in.Command == events.Release || in.Command == events.Resubmit)
	})},
	{"input of another task", "", false, of(anyEvent, func(f *forger, i int) bool {
		r, _ := f.input(f.log[i].e.Cause)
		if r == nil || !f.first(i) || f.log[i].e.Queued || string(r.Key) != f.log[i].e.Task {
			return false
		}
		r.Key = []byte(f.log[i].e.Task + "x")
		return true
	})},

	{"request: another value", "P10", false, of(func(_ *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.AttemptStarted)
		return ok && x.Kind == events.Do
	}, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k >= 0 {
			f.requests[k].Value = json.RawMessage(`{"forged":true}`)
		}
		return k >= 0
	})},
	{"request: another key of the record", "P10", false, of(func(_ *forger, n *entry) bool { return is[*events.AttemptStarted](n) }, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k >= 0 {
			f.requests[k].Key = []byte("another")
		}
		return k >= 0
	})},
	{"request of another attempt", "P10", false, requestWith(func(q *events.Request) { q.Ref.Attempt += 70 })},
	{"request: another traceparent", "P10", false, requestWith(func(q *events.Request) { q.Traceparent += "x" })},

	{"dead letter is gone", "P15", false, letter(func(f *forger, i int) { f.dead = slices.Delete(f.dead, i, i+1) })},
	{"dead letter of another record", "P15", false, letter(func(f *forger, i int) {
		origin, _ := f.dead[i].Header(events.HeaderOrigin)
		f.dead[i].Headers = withHeader(f.dead[i].Headers, events.HeaderOrigin, origin+"7")
	})},
	{"dead letter: other bytes", "P15", false, letter(func(f *forger, i int) { f.dead[i].Value = []byte("forged") })},
}

// rawly returns a forgery that changes an encoded record.
func rawly(change func(f *forger, n *entry)) func(*forger) string {
	return of(func(f *forger, n *entry) bool { return n.e.Seq > 1 }, func(f *forger, i int) bool {
		for _, n := range f.log {
			n.raw = true
		}
		change(f, f.log[i])
		return true
	})
}

// sumOf returns a forgery that changes a checksum.
func sumOf(change func(f *forger, n *entry)) func(*forger) string {
	return of(func(_ *forger, n *entry) bool { return n.e.Sum != "" }, func(f *forger, i int) bool {
		for _, n := range f.log {
			n.raw = true
		}
		n := f.log[i]
		change(f, n)
		n.r.Value = n.e.Value()
		return true
	})
}

// policy returns a forgery that changes the policy of a step's timer.
func policy(change func(*events.Policy)) func(*forger) string {
	return of(func(_ *forger, n *entry) bool { return n.e.Policy != nil && n.e.Policy.Timer != events.TimerTask }, func(f *forger, i int) bool {
		change(f.log[i].e.Policy)
		return true
	})
}

// anywhere returns a forgery after which a fault of any task counts, since the forged event may name another task.
func anywhere(forge func(*forger) string) func(*forger) string {
	return func(f *forger) string {
		if forge(f) == "" {
			return ""
		}
		return ofNoTask
	}
}

// claim returns a forgery of a claim. A claim belongs to no task, so a fault of any task counts.
func claim(change func(f *forger, i int) bool) func(*forger) string {
	return func(f *forger) string {
		i := f.findAny(is[*events.PartitionClaimed])
		if i < 0 || !change(f, i) {
			return ""
		}
		return ofNoTask
	}
}

// goesOn reports whether a later event of the same partition was caused by a record of the same inbox.
func (f *forger) goesOn(i int) bool {
	at := f.log[i]
	return slices.ContainsFunc(f.log[i+1:], func(n *entry) bool {
		return n.r.Partition == at.r.Partition && n.e.Cause.Inbox == at.e.Cause.Inbox
	})
}

// letter returns a forgery of a dead letter. An input without events is turned into a dead letter first.
func letter(change func(f *forger, i int)) func(*forger) string {
	return func(f *forger) string {
		used, least := map[events.Cause]bool{}, map[events.Cause]int64{}
		for _, n := range f.log {
			c := n.e.Cause
			used[c] = true
			of := events.Cause{Inbox: c.Inbox, Partition: c.Partition}
			least[of] = max(least[of], c.Offset)
		}
		for i := range f.inputs {
			r := &f.inputs[i]
			kind, _ := events.ParseInbox(r.Topic[len(ns):])
			if used[events.Cause{Inbox: kind, Partition: r.Partition, Offset: r.Offset}] || r.Offset >= least[events.Cause{Inbox: kind, Partition: r.Partition}] {
				continue
			}
			r.Value = []byte("junk")
			f.dead = append(f.dead, events.Deadletter(ns, "test", r, &events.Unusable{Reason: events.ReasonBadJSON}))
			if r := f.check(true); r.Broken > 0 {
				panic(r.String())
			}
			change(f, len(f.dead)-1)
			return ofNoTask
		}
		return ""
	}
}

// another returns the id of another step of a task.
func another(t *events.Task, step string) string {
	for i := range t.Plan.Steps {
		if s := t.Plan.Steps[i].ID; s != step {
			return s
		}
	}
	return ""
}

func otherStep(err *events.Error) bool {
	if err == nil || err.Step == "" {
		return false
	}
	err.Step += "x"
	return true
}

// ofStep reports whether an error comes from a step or the task's timer, not from an expression.
func (f *forger) ofStep(n *entry, err *events.Error) bool {
	return err != nil && (err.Step != "" || n.e.Cause.Inbox == events.Recoveries && f.first(slices.Index(f.log, n)))
}

func otherCode(err *events.Error) bool {
	if err == nil {
		return false
	}
	err.Code += "x"
	return true
}

package scheduler

import (
	"encoding/json"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// forgedChecks are forgeries of checks and of their answers.
var forgedChecks = []forgery{
	{"check: the answer with another token", "P18", false, checkReply(1, func(f *forger, r *events.Record, in *events.Reply) bool {
		in.Token += "x"
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"check: the answer to the check before", "P3 P18", false, checkReply(2, func(f *forger, r *events.Record, in *events.Reply) bool {
		in.Ref.Attempt--
		if in.Token = f.tokenOf(in.Task, in.Ref); in.Token == "" {
			return false
		}
		rewrite(r, in.Record(ns, "test"))
		return true
	})},
	{"check: the answer is gone", "P10", false, fact(func(f *forger, n *entry, _ *events.CheckCompleted) bool { return f.removeInput(n.e.Cause) })},
	{"check: ended by the check before", "", true, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		x.Attempt--
		return true
	})},
	{"check: answered again", "", true, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		again := entryOf(nil, n.r)
		again.e.Fact.(*events.CheckCompleted).Became = pick(f.dice, []events.Became{events.BecameNone, events.BecameUnknown})
		f.log = slices.Insert(f.log, slices.Index(f.log, n)+1, again)
		return true
	})},
	{"check: another output", "", false, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		x.Output = json.RawMessage(`{"forged":true}`)
		return x.Became == events.BecameCompleted
	})},
	{"check: the effect happened, and the answer said none or unknown", "", false, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		was := x.Became
		x.Became, x.Output, x.Error = events.BecameCompleted, json.RawMessage("null"), nil
		return was != events.BecameCompleted
	})},
	{"check: nothing happened, and the answer said completed or unknown", "", false, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		was := x.Became
		x.Became, x.Output, x.Error = events.BecameNone, nil, nil
		return was != events.BecameNone
	})},
	{"check: an output of what didn't happen", "P23", true, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		x.Output = json.RawMessage("7")
		return x.Became != events.BecameCompleted
	})},
	{"check: an answer that can't be used says none", "P23", true, fact(func(f *forger, n *entry, x *events.CheckCompleted) bool {
		x.Became = events.BecameNone
		return x.Error != nil
	})},
	{"check: the request asks about another key", "P10", false, checkRequest(func(of *events.CheckOf) { of.IdempotencyKey += "1" })},
	{"check: the request asks about another input", "P10", false, checkRequest(func(of *events.CheckOf) { of.Input = json.RawMessage(`{"forged":true}`) })},
	{"check: of a known effect", "P23", true, of(func(f *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.AttemptStarted)
		if !ok || x.Kind != events.Do || x.Attempt == 1 {
			return false
		}
		i := f.stepOf(n, x.Step)
		return f.before[n].Plan.Steps[i].Check != nil && !f.before[n].Steps[i].Unknown
	}, func(f *forger, i int) bool {
		n := f.log[i]
		f.startRunIn(n, f.before[n], f.stepOf(n, n.e.Fact.About().Step), events.Check)
		return true
	})},
	{"check: a retry, and nobody asked", "P23", true, afterCheck(func(f *forger, answer, next *entry) bool { return isRetryOf(next, answer.e.Fact.About().Step) },
		func(f *forger, answer, retry *entry) bool { return f.forgetCheck(answer, retry) })},
	{"check: asked before the wait is over", "P23 P5", true, of(func(f *forger, n *entry) bool {
		j := f.next(slices.Index(f.log, n))
		if !is[*events.AttemptWaiting](n) || !n.e.Due.After(n.e.At) || j < 0 || n.e.Fact.About().Kind != events.Do {
			return false
		}
		x, ok := f.log[j].e.Fact.(*events.AttemptStarted)
		return ok && x.Kind == events.Check && x.Step == n.e.Fact.About().Step
	}, func(f *forger, i int) bool {
		f.replace(i, f.log[f.next(i)])
		return true
	})},
	{"check: a recovery that asks for something else", "P4", false, of(func(f *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.AttemptStarted)
		return ok && x.Kind == events.Check && n.e.Cause.Inbox == events.Recoveries && f.first(slices.Index(f.log, n))
	}, func(f *forger, i int) bool {
		r, _ := f.input(f.log[i].e.Cause)
		in, ok := decode[*events.Recovery](r)
		if !ok || string(r.Key) != f.log[i].e.Task {
			return false
		}
		in.Action = map[events.Action]events.Action{events.ActionRetry: events.ActionUndo, events.ActionWait: events.ActionHold, events.ActionUndo: events.ActionWait, events.ActionHold: events.ActionRetry}[in.Action]
		rewrite(r, in.Record(ns, "test", r.Partition))
		return true
	})},
	{"check: an undo of what didn't happen", "P23", true, afterCheck(func(f *forger, answer, _ *entry) bool {
		x := answer.e.Fact.(*events.CheckCompleted)
		return x.Became == events.BecameNone && f.after[answer].State == events.StateUndoing && f.after[answer].Plan.Steps[f.stepOf(answer, x.Step)].Undo != nil
	}, func(f *forger, answer, next *entry) bool {
		f.startRunIn(next, f.after[answer], f.stepOf(answer, answer.e.Fact.About().Step), events.Undo)
		return true
	})},
}

// afterCheck is like of, for answers to checks and the event that follows in the same decision.
func afterCheck(ok func(f *forger, answer, next *entry) bool, change func(f *forger, answer, next *entry) bool) func(*forger) string {
	next := func(f *forger, n *entry) *entry {
		if !is[*events.CheckCompleted](n) {
			return nil
		}
		if j := f.next(slices.Index(f.log, n)); j >= 0 && f.log[j].e.Cause == n.e.Cause {
			return f.log[j]
		}
		return nil
	}
	return of(func(f *forger, n *entry) bool { m := next(f, n); return m != nil && ok(f, n, m) },
		func(f *forger, i int) bool { return change(f, f.log[i], next(f, f.log[i])) })
}

// stepOf returns the index of a step in the plan of an event's task.
func (f *forger) stepOf(n *entry, step string) int {
	i, _ := f.before[n].Plan.Step(step)
	return i
}

// checkReply is like inputOf, for the replies that ended a check, from an attempt on.
func checkReply(least int, change func(f *forger, r *events.Record, in *events.Reply) bool) func(*forger) string {
	return of(func(_ *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.CheckCompleted)
		return ok && x.Attempt >= least
	}, func(f *forger, i int) bool {
		n := f.log[i]
		r, _ := f.input(n.e.Cause)
		if r == nil || string(r.Key) != n.e.Task {
			return false
		}
		in, ok := decode[*events.Reply](r)
		return ok && change(f, r, in)
	})
}

// tokenOf returns the token in the request of an attempt; empty: there is none.
func (f *forger) tokenOf(task string, ref events.RequestRef) string {
	for i := range f.requests {
		if q, err := events.DecodeRequest(&f.requests[i]); err == nil && q.Task == task && q.Ref == ref {
			return q.Token
		}
	}
	return ""
}

// checkRequest returns a forgery of what the request of a check asks about.
func checkRequest(change func(*events.CheckOf)) func(*forger) string {
	return of(func(f *forger, n *entry) bool {
		x, ok := n.e.Fact.(*events.AttemptStarted)
		return ok && x.Kind == events.Check
	}, func(f *forger, i int) bool {
		k := f.requestOf(i)
		if k < 0 {
			return false
		}
		r := &f.requests[k]
		q, err := events.DecodeRequest(r)
		if err != nil {
			panic(err)
		}
		s := f.before[f.log[i]].Steps[f.stepOf(f.log[i], q.Ref.Step)]
		of := events.CheckOf{IdempotencyKey: s.Key, Input: s.Input}
		change(&of)
		q.Value = events.CheckValue(of)
		agent, _ := ns.AgentOf(r.Topic)
		rewrite(r, q.Record(ns, "test", agent, r.Partition))
		return true
	})
}

// startRunIn replaces an event by the start of a check or an undo.
func (f *forger) startRunIn(n *entry, t *events.Task, i int, k events.Kind) {
	step, number := t.Plan.Steps[i].ID, 1
	if r := t.Run(i, k); r != nil {
		number = r.Attempt + 1
	}
	agent, operation := t.Plan.Agent(i, k)
	ref := events.RequestRef{Step: step, Kind: k, Attempt: number}
	n.e.Fact = &events.AttemptStarted{Kind: k, Step: step, Attempt: number, Agent: agent, Operation: operation,
		Key: events.IdempotencyKey(ns, t.ID, step, k, 0), TokenHash: events.TokenHash(t.ID, ref, "forged")}
	n.e.Due, n.e.Policy = n.e.At.Add(t.Plan.AttemptsOf(i, k).CompleteWithin), t.Policy(i, k, events.TimerAttempt)
	n.e.Sum = ""
	seq := n.e.Seq
	f.drop(t.ID, func(m *entry) bool { return m.e.Seq > seq })
}

// isRetryOf reports whether an event starts another attempt at a step.
func isRetryOf(n *entry, step string) bool {
	x, ok := n.e.Fact.(*events.AttemptStarted)
	return ok && x.Kind == events.Do && x.Step == step
}

// forgetCheck removes a check that one attempt ended, as a scheduler would that forgot to ask: the retry begins when the
// check began.
func (f *forger) forgetCheck(answer, retry *entry) bool {
	x := answer.e.Fact.About()
	i := f.find(func(m *entry) bool {
		s, ok := m.e.Fact.(*events.AttemptStarted)
		return ok && m.e.Task == answer.e.Task && s.Kind == events.Check && s.Step == x.Step && s.Attempt == x.Attempt
	})
	if i < 0 || f.log[i].e.Seq+1 != answer.e.Seq {
		return false
	}
	if s := f.before[f.log[i]].Steps[f.stepOf(answer, x.Step)]; s.Check != nil && s.KindState().Checking == s.Attempt {
		return false // an earlier attempt of the check was the first to ask
	}
	seq := retry.e.Seq
	f.drop(answer.e.Task, func(m *entry) bool { return m == answer || m.e.Seq > seq })
	f.replace(i, retry)
	return true
}

// replace moves a later event into the place of another, as its decision.
func (f *forger) replace(i int, by *entry) {
	n := f.log[i]
	by.e.Due = n.e.At.Add(by.e.Due.Sub(by.e.At))
	by.e.At, by.e.Cause, by.e.Epoch, by.e.Queued = n.e.At, n.e.Cause, n.e.Epoch, n.e.Queued
	by.r.Headers = n.r.Headers // the headers of the original
	f.log = slices.DeleteFunc(f.log, func(m *entry) bool { return m == by })
	f.log[slices.Index(f.log, n)] = by
}

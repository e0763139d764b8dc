package scheduler

import "github.com/waybill-run/waybill/events"

// forgedRepeats are forgeries of the calls of a repeat.
var forgedRepeats = []forgery{
	{"repeat: a call with the key of the call before", "P23", true, fact(func(f *forger, n *entry, x *events.AttemptStarted) bool {
		run := runBefore(f, n)
		if x.Kind != events.Do || run.Interim().LastCall == 0 || run.Interim().LastCall != run.Attempt {
			return false
		}
		x.Key = run.Key
		return true
	})},
	{"repeat: the last call is followed by another", "P23", true, fact(func(f *forger, n *entry, x *events.RunErrored) bool {
		if x.Error == nil || x.Error.Code != events.CodeRepeatExhausted {
			return false
		}
		t := f.before[n]
		i, _ := t.Plan.Step(x.Step)
		n.e.Fact = &events.AttemptStarted{Kind: events.Do, Step: x.Step, Attempt: t.Steps[i].Attempt + 1, Agent: t.Plan.Steps[i].Agent,
			Operation: t.Plan.Steps[i].Operation, Key: events.IdempotencyKey(ns, n.e.Task, x.Step, events.Do, t.Steps[i].Generation), TokenHash: "x"}
		n.e.Due, n.e.Policy = n.e.At.Add(t.Plan.Steps[i].Attempts.CompleteWithin), t.Policy(i, events.Do, events.TimerAttempt)
		return true
	})},
}

// runBefore returns the run of an event's step before the event.
func runBefore(f *forger, n *entry) *events.Run {
	t, a := f.before[n], n.e.Fact.About()
	i, ok := t.Plan.Step(a.Step)
	if r := t.Run(i, a.Kind); ok && r != nil {
		return r
	}
	return &events.Run{}
}

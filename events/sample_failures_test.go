package events

import "time"

// failureSamples returns samples of what a definition says about known failures.
func failureSamples(f Fact, e *Event) []sample {
	b := *e
	name := ""
	switch f := f.(type) {
	case *TaskReceived:
		received := *f
		received.Computed, received.Plan = nil, failurePlan()
		b.Fact, name = &received, "failures"
	case *AttemptStarted:
		policy := *e.Policy
		policy.Final = true
		b.Policy, name = &policy, "final"
	default:
		return nil
	}
	return []sample{{name: f.Type() + "." + name, record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
		decode: func(r *Record) (any, error) { return DecodeEvent(r) }}}
}

func failurePlan() *Plan {
	return NewPlan(OnErrorUndo, time.Hour, []PlanStep{
		{ID: "charge", Agent: "payments", Operation: "charge", Catch: []string{"no_funds"}, Attempts: sampleAttempts(), RetryCodes: RetryCodes{Except: []string{"no_funds", "expired"}},
			Undo: &PlanUndo{Agent: "payments", Operation: "refund", Attempts: sampleAttempts(), RetryCodes: RetryCodes{Only: []string{"busy"}}}},
		{ID: "book", Agent: "ledger", Operation: "book", Attempts: sampleAttempts(), Pivot: true},
	})
}

// caughtFact returns the fact of a caught error, with every field set.
func caughtFact() Fact { return &RunCaught{Step: "charge", Error: sampleError} }

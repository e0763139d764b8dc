package mutation

const (
	flow   = "scheduler/flow.go"
	bound  = "scheduler/bound.go"
	voices = "scheduler/voices.go"
)

// flowMutations: how many requests an agent has, and which step is next.
var flowMutations = []mutation{
	one("bound-of-an-agent", flow,
		`if f.room(a) > 0 {`, `if a.outstanding >= 0 {`,
		"scheduler", "TestQueueByPriority"),
	one("who-waits-goes-first", flow,
		`case len(a.queue) > 0:`, `case len(a.queue) < 0:`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("critical-overtakes", "scheduler/queue.go",
		`return since.Add(-worth)`, `return since.Add(0 * worth)`,
		"scheduler", "TestQueueByPriority"),
	one("low-is-not-starved", "scheduler/queue.go",
		`const ageOfPriority = 10 * time.Second`, `const ageOfPriority = 6 * time.Hour`,
		"scheduler", "TestQueueByPriority"),
	one("one-probe-at-a-time", flow,
		`case a.probing() || a.near(now, ""):`, `case a.near(now, ""):`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("undo-rolled-back", "scheduler/flow.go",
		`(restored || i >= len(t.Steps)`, `(i >= len(t.Steps)`,
		"scheduler", "TestFlowTakesBackAnUndoThatWasRolledBack"),
	one("any-reply-ends-silence", "scheduler/transaction.go",
		`s.partition.flow.hears(agent, now)`, `_ = agent`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("flow-of-a-rollback", "scheduler/transaction.go",
		`s.partition.flow.restate(t, tx.lane.at(s), true)`, `_ = t`,
		"scheduler", "TestFlowIsThatOfTheTasks"),
	one("refused-retry-waits-for-its-turn", decide,
		`d.Ignored = IgnoredQueued`, `d.Ignored = IgnoredOutsidePolicy`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("old-requests-are-no-probe", flow,
		`case a.probing() || a.near(now, ""):`, `case a.outstanding > 0 || a.near(now, ""):`,
		"scheduler", "TestOldRequestsHoldBackNoProbe"),
	one("time-outs-beside-quick-answers", bound,
		` && o.slow(slowShare)`, ``,
		"scheduler", "TestWhatShowsThatAnAgentIsBehind"),
	one("attempts-from-before-the-bound", bound,
		`if began.Before(o.since) {`, `if began.Before(o.since) && o.bound < 0 {`,
		"scheduler", "TestBoundIsWhatIsAnsweredInTime"),
	one("bound-by-the-rate", bound,
		`o.bound = min(max(o.little(), o.least*partitions), anyRoom)`, `o.bound = o.least * partitions`,
		"scheduler", "TestBoundIsWhatIsAnsweredInTime"),
	one("bound-raises-itself", bound,
		`o.raise(at, waiting, outstanding)`, `_ = waiting`,
		"scheduler", "TestBoundOfRandomAgents"),
	one("bound-and-calls-that-hang", bound,
		`o.early[i]*100 > (o.ended+outstanding)*m.ofHundred`, `o.early[i]*100 > (o.ended+outstanding)*(m.ofHundred+30)`,
		"scheduler", "TestBoundIsRaisedBesideCallsThatHang"),
	one("what-comes-first-comes-early", bound,
		`o.early[i]*100 > (o.ended+outstanding)*m.ofHundred`, `o.early[i]*100 > o.ended*m.ofHundred`,
		"scheduler", "TestBoundOfRandomAgents"),
	one("attempts-from-before-a-raise", bound,
		`	o.bound = min(o.bound+by, anyRoom)
	o.anew(at)`, `	o.bound = min(o.bound+by, anyRoom)
	o.anew(o.since)`,
		"scheduler", "TestBoundIsJudgedByWhatBeganUnderIt"),
	one("lag-of-a-busy-lane", "scheduler/transaction.go",
		`ok && !r.Time.IsZero() && r.Time.Before(at)`, `ok && r.Time.After(at)`,
		"scheduler", "TestAgentOfABusyLaneIsNotBehind"),
	one("bound-that-is-needed", bound,
		`	if waiting {
		o.needed = at
	}
`, ``,
		"scheduler", "TestBoundLapses"),
	one("what-times-out-by-itself", flow,
		`v.loses(p.task, p.first)`, `v.loses(p.task, p.began)`,
		"scheduler", "TestSilenceIsOfTheAgent"),
	one("who-was-silent-is-flooded", flow,
		`		v.restart(at)
`, ``,
		"scheduler", "TestSilentAgentWithoutCapacityIsProbed"),
	one("first-burst", bound,
		`leastSlots*partitions+o.proven, anyRoom`, `anyRoom, anyRoom`,
		"scheduler", "TestFirstBurstFloodsNobody"),
	one("slow-calls-show-nothing", bound,
		`took*openShare < within || asEver {`, `took*openShare < within || asEver && within == 0 {`,
		"scheduler", "TestSlowCallsAreNoWantOfCapacity"),
	one("steady-work-is-held-up", bound,
		`o.proven, o.best, o.needed = outstanding, 0, at`, `o.proven, o.best, o.needed = 0, 0, at`,
		"scheduler", "TestSteadyWorkGoesOn"),
	one("spare-of-a-bound", flow,
		`n = f.voices.spare(a.name)`, `n = 0`,
		"scheduler", "TestBoundIsForAllPartitions"),
	one("bound-of-a-rollback", voices,
		`		*vs.agents[agent] = v
`, `		_, _ = agent, v
`,
		"scheduler", "TestBoundOfARollbackAndOfARestore"),
	one("outstanding-of-a-restore", voices,
		`			vs.change(a.name).proven += a.outstanding
`, ``,
		"scheduler", "TestWhatIsOutstandingWasLetOut"),
}

package mutation

const flow = "scheduler/flow.go"

// flowMutations: how many requests an agent has, and which step is next.
var flowMutations = []mutation{
	one("bound-of-an-agent", flow,
		`if a.outstanding < a.slots {`, `if a.outstanding >= 0 {`,
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
	one("any-reply-ends-silence", "scheduler/transaction.go",
		`s.partition.flow.hears(agent, tx.lane.at(s))`, `_ = agent`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("flow-of-a-rollback", "scheduler/transaction.go",
		`s.partition.flow.update(t, tx.lane.at(s), true)`, `_ = t`,
		"scheduler", "TestFlowIsThatOfTheTasks"),
	one("refused-retry-waits-for-its-turn", decide,
		`d.Ignored = IgnoredQueued`, `d.Ignored = IgnoredOutsidePolicy`,
		"scheduler", "TestSilentAgentIsProbed"),
	one("old-requests-are-no-probe", flow,
		`case a.probing() || a.near(now, ""):`, `case a.outstanding > 0 || a.near(now, ""):`,
		"scheduler", "TestOldRequestsHoldBackNoProbe"),
}

package mutation

// scheduleMutations break what schedules promise.
var scheduleMutations = []mutation{
	one("instant-decided-twice", "internal/schedule.Kept.advance",
		`!at.After(k.Decided)`, `false`,
		"internal/schedule", "TestOutdatedDecisions"),
	one("decision-of-a-lost-partition", "internal/schedule.State.current",
		`return epoch == s.epoch`, `return true`,
		"internal/schedule", "TestOutdatedDecisions"),
	one("time-that-the-clock-skips", "internal/schedule.resolve",
		`offsetAt(at, zone) == offsetAt(first, zone)`, `offsetAt(at, zone) != 0`,
		"internal/schedule", "TestDaylightSaving"),
	one("instants-of-a-pause", "internal/schedule.Kept.from",
		`k.Applied.Since.After(k.Decided)`, `false`,
		"internal/schedule", "TestDefinitionsThatChange"),
	one("refused-task-counts-as-started", "internal/schedule.Kept.noTask",
		"k.Started--\n\t\tk.Refused++", "k.Refused++",
		"internal/schedule", "TestInstantsWithoutATask"),
	one("task-of-an-older-definition", "internal/schedule.Kept.noTask",
		`o.Cause == Backfilled && n.Status == events.StatusRefused`, `false`,
		"internal/schedule", "TestInstantsWithoutATask"),
	one("task-without-a-decision", "internal/verify.finish.checkSchedules",
		`!decided &&`, `!decided && at.offset < 0 &&`,
		"internal/verify", "TestScheduledTasks"),
}

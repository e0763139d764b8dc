package mutation

// intakeMutations break intakes: a record is taken in twice, or never.
var intakeMutations = []mutation{
	one("unmappable-record-left-out", "internal/intake.Program.mapped",
		`err != nil || !holds`, `err != nil || !holds`+"{\nreturn out, nil\n}; if err != nil",
		"internal/intake", "TestMapUnusable"),
	one("record-that-led-to-two-tasks-unseen", "internal/verify.Checker.checkIntake",
		`!taken`, `!taken || true`,
		"internal/verify", "TestIntakes"),
}

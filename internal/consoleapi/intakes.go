package consoleapi

// IntakeCommand is a command to an intake.
type IntakeCommand struct {
	Reason string `json:"reason" jsonschema:"Why. It is written to the log."`
}

// IntakeResult is what a command did to an intake.
type IntakeResult struct {
	Intake string `json:"intake" jsonschema:"The name of the intake."`
	Result string `json:"result" enum:"created,changed,unchanged,paused,resumed,deleted" jsonschema:"What was done."`
}

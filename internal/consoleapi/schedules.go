package consoleapi

// ScheduleCommand is a command to a schedule.
type ScheduleCommand struct {
	Reason string `json:"reason" jsonschema:"Why. It is written to the log."`
}

// BackfillCommand starts the tasks of past instants.
type BackfillCommand struct {
	Reason string `json:"reason" jsonschema:"Why. It is written to the log."`
	From   string `json:"from" format:"date-time" jsonschema:"The first instant."`
	To     string `json:"to" format:"date-time" jsonschema:"The end of the instants, exclusive."`
}

// ScheduleResult is what a command did to a schedule.
type ScheduleResult struct {
	Schedule string `json:"schedule" jsonschema:"The name of the schedule."`
	Result   string `json:"result" enum:"created,changed,unchanged,paused,resumed,deleted,asked" jsonschema:"What was done. asked: a supervisor starts the tasks."`
	Request  string `json:"request,omitempty" jsonschema:"The id of a trigger or a backfill. The schedule's recent instants name it."`
	Instants int    `json:"instants,omitempty" jsonschema:"The number of instants of a backfill."`
}

package events

// The descriptions of heartbeats and progress.
func init() {
	endsBy := fieldSchema{typ: "string", pattern: instantPattern, text: "The attempt's complete-by, if it has a heartbeat. Absent: it is due."}
	for name, d := range map[string]fieldSchema{
		"heartbeat_ms":                        {typ: "integer", text: "The longest silence between two reports of progress of an attempt, in milliseconds. Absent: the agent needn't report."},
		"progress":                            {text: "What the agent reported: any JSON of at most 4 KiB. Absent: nothing, or the progress of the task's steps has 64 KiB; the value before counts then."},
		"silence_ms":                          {typ: "integer", text: "The heartbeat that passed without progress, in milliseconds. Absent: complete-by passed."},
		"waybill.step.started.v1/complete_by": endsBy,
		"waybill.undo.started.v1/complete_by": endsBy,
		"headers.ce_heartbeat":                {typ: "string", pattern: `^[0-9]+(\.[0-9]+)?$`, text: "The longest silence, in seconds: report progress more often. Absent: no progress is needed."},
		"headers.ce_progress":                 {typ: "string", text: "The last progress that an earlier attempt reported: any JSON of at most 4 KiB. Absent: none."},
	} {
		described[name] = d
	}
	freeform["progress"] = true
	schemaTexts["waybill.step.progressed.v1"] = struct {
		text     string
		required []string
	}{"The agent of the running attempt reported progress. due is the end of the silence that the heartbeat allows, or the attempt's complete-by.", []string{"step", "attempt", "due", "policy"}}
}

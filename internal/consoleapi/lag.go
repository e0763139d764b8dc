package consoleapi

// LagList is the lag by time.
type LagList struct {
	Since  *string `json:"since" format:"date-time" jsonschema:"When this console sampled first. null: it hasn't sampled yet."`
	From   *string `json:"from" format:"date-time" jsonschema:"When the first step begins: at most an hour ago. null: there are no points."`
	StepMS int64   `json:"step_ms" jsonschema:"The length of a step in milliseconds."`
	Series []Lag   `json:"series" jsonschema:"The schedulers first, then the agents by name: at most 50."`
}

// Lag is the lag of the schedulers or of an agent.
type Lag struct {
	Agent  string   `json:"agent,omitempty" jsonschema:"The name of the agent. Absent: the schedulers, all inboxes together."`
	Points []*int64 `json:"points" jsonschema:"The greatest lag that was sampled in each step. null: nothing was sampled, because no client asked."`
}

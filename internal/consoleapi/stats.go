package consoleapi

import "github.com/waybill-run/waybill/events"

// Stats is what happened to tasks in a time.
type Stats struct {
	At         *string  `json:"at,omitempty" format:"date-time" jsonschema:"When the step begins. Absent: it is the sum of all steps."`
	Submitted  int64    `json:"submitted" jsonschema:"The number of tasks that were accepted."`
	Processed  int64    `json:"processed" jsonschema:"The number of tasks that ended as processed."`
	Undone     int64    `json:"undone" jsonschema:"The number of tasks that ended as undone."`
	Cancelled  int64    `json:"cancelled" jsonschema:"The number of tasks that ended as cancelled."`
	Held       int64    `json:"held" jsonschema:"The number of holds that began."`
	HoldsEnded int64    `json:"holds_ended" jsonschema:"The number of holds that ended."`
	Attempts   int64    `json:"attempts" jsonschema:"The number of requests that were sent to agents."`
	Failures   int64    `json:"failures" jsonschema:"The number of attempts that failed or expired."`
	Latency    *Latency `json:"latency" jsonschema:"How long the tasks took that ended as processed, from their submission on. null: none did."`
}

// Latency is the distribution of durations.
type Latency struct {
	Count int64 `json:"count" jsonschema:"The number of durations."`
	P50   int64 `json:"p50_ms" jsonschema:"The median in milliseconds, at most 1/32 too long."`
	P95   int64 `json:"p95_ms" jsonschema:"The 95th percentile in milliseconds, at most 1/32 too long."`
	P99   int64 `json:"p99_ms" jsonschema:"The 99th percentile in milliseconds, at most 1/32 too long."`
	Max   int64 `json:"max_ms" jsonschema:"The longest duration in milliseconds."`
}

// StatsSeries is stats by time.
type StatsSeries struct {
	Workflow string  `json:"workflow,omitempty" jsonschema:"The name of the workflow. Absent: the series is not of one workflow."`
	Points   []Stats `json:"points" jsonschema:"The stats of each step, also of those without events. The last step may not be over."`
	Total    Stats   `json:"total" jsonschema:"The sum of the points."`
}

// AgentStats is what happened to the requests of an agent in a time.
type AgentStats struct {
	At       *string  `json:"at,omitempty" format:"date-time" jsonschema:"When the step begins. Absent: it is the sum of all steps."`
	Attempts int64    `json:"attempts" jsonschema:"The number of attempts that ended: the agent replied, or they expired. Operations, undos and checks count."`
	Failures int64    `json:"failures" jsonschema:"The number of them that failed or expired. A rejection isn't a failure."`
	Latency  *Latency `json:"latency" jsonschema:"How long the agent took to reply, from the event of the request to that of the reply. The time in the request topic is part of it. null: it didn't reply."`
}

// AgentSeries is what happened to the requests of an agent, by time.
type AgentSeries struct {
	Agent  string       `json:"agent" jsonschema:"The name of the agent."`
	Points []AgentStats `json:"points" jsonschema:"The stats of each step, also of those without events. The last step may not be over."`
	Total  AgentStats   `json:"total" jsonschema:"The sum of the points."`
}

// StatsList lists stats.
type StatsList struct {
	From       *string       `json:"from" format:"date-time" jsonschema:"When the first step begins."`
	To         *string       `json:"to" format:"date-time" jsonschema:"When the last step ends."`
	StepMS     int64         `json:"step_ms" jsonschema:"The length of a step in milliseconds."`
	Series     []StatsSeries `json:"series" jsonschema:"The series, that with the most submissions first. Empty if by is agent."`
	Agents     []AgentSeries `json:"agents,omitempty" jsonschema:"The series of the agents, that with the most attempts first, if by is agent. Agents without attempts are left out."`
	Left       int           `json:"left_off" jsonschema:"The number of series that are left out: an answer has at most 50."`
	AsOf       []events.AsOf `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete []Incomplete  `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

package intake

import (
	"encoding/json"
	"errors"
)

// ErrNotFound: there is no intake with the name.
var ErrNotFound = errors.New("there is no such intake")

// The states of an intake.
const (
	StateRunning = "running"
	StatePaused  = "paused"
	StateStopped = "stopped" // no process runs it
	StateFault   = "fault"   // its definition can't be used
)

// IntakeStatus is an intake in the JSON of the API and the CLI.
type IntakeStatus struct {
	Name       string          `json:"name" jsonschema:"The name of the intake."`
	State      string          `json:"state" enum:"running,paused,stopped,fault" jsonschema:"The state of the intake. stopped: no process runs it. fault: its definition can't be used."`
	Topic      string          `json:"topic" jsonschema:"The topic that it consumes."`
	Format     Format          `json:"format" jsonschema:"The format of the topic's values: json, cloudevents or avro."`
	To         string          `json:"to" jsonschema:"What a record becomes: the name of a workflow, or that of a signal after the word signal."`
	Lag        *int64          `json:"lag" jsonschema:"How many records it has still to consume. null: unknown."`
	Members    int             `json:"members" jsonschema:"How many workers of processes consume the topic."`
	AppliedAt  *string         `json:"applied_at" format:"date-time" jsonschema:"When the definition was written last. null: unknown."`
	By         string          `json:"by" jsonschema:"Who wrote it, by a console's token. Empty: unknown."`
	Claimed    string          `json:"by_claimed" jsonschema:"Who wrote it, unverified. Empty: unknown."`
	Why        string          `json:"why" jsonschema:"Why it was written, or paused. Empty: nobody said."`
	Fault      string          `json:"fault,omitempty" jsonschema:"Why the definition, or the lag, can't be read. Absent: it can."`
	Definition json.RawMessage `json:"definition" jsonschema:"The definition, as applied, with its defaults. null: it can't be read."`
}

package consoleapi

import "github.com/waybill-run/waybill/events"

// ErrorGroup is the held tasks with the same error.
type ErrorGroup struct {
	Group    string `json:"group" jsonschema:"The id of the group. It is the same in every console and after a rebuild."`
	Other    bool   `json:"other,omitempty" jsonschema:"true: a partition has more than 1,000 groups, and this one has the errors of all others. Its texts are empty. Absent: false."`
	Workflow string `json:"workflow" jsonschema:"The name of the workflow."`
	Step     string `json:"step" jsonschema:"The held step. Empty: the error is the task's."`
	Kind     string `json:"kind" jsonschema:"do: the step's operation is held. undo: its undo is. Empty: no step is."`
	Code     string `json:"code" jsonschema:"The code of the error."`
	Pattern  string `json:"pattern" jsonschema:"What the messages have in common. # stands for a value: an id, a number, or a text in quotes. It has at most 256 bytes."`
	Message  string `json:"message" jsonschema:"The message of the latest hold, cut at 4 KiB."`

	Held      int64         `json:"held" jsonschema:"The number of tasks that are held now."`
	Versions  []VersionHeld `json:"versions" jsonschema:"The held tasks by version of the workflow, in order."`
	Holds     int64         `json:"holds" jsonschema:"The number of holds since first_seen, also of those that have ended."`
	FirstSeen *string       `json:"first_seen" format:"date-time" jsonschema:"When the first hold began."`
	LastSeen  *string       `json:"last_seen" format:"date-time" jsonschema:"When the latest hold began."`
	Trend     Trend         `json:"trend" jsonschema:"The holds of the last 24 hours. The last hour isn't over."`
	Sample    []string      `json:"sample" jsonschema:"The ids of some held tasks, the newest first. Only the first 30 groups have them."`
}

// VersionHeld is the held tasks of a version.
type VersionHeld struct {
	Version int   `json:"version" jsonschema:"The version of the workflow."`
	Held    int64 `json:"held" jsonschema:"The number of its tasks that are held now."`
}

// Trend is counts by time.
type Trend struct {
	From   *string `json:"from" format:"date-time" jsonschema:"When the first hour begins."`
	StepMS int64   `json:"step_ms" jsonschema:"The length of an hour in milliseconds."`
	Holds  []int64 `json:"holds" jsonschema:"The number of holds that began in each hour."`
}

// ErrorGroupList lists error groups.
type ErrorGroupList struct {
	Groups     []ErrorGroup  `json:"groups" jsonschema:"The groups."`
	Held       int64         `json:"held" jsonschema:"The number of tasks that are held now, of the workflow that was asked for, or of all."`
	Left       int           `json:"left_off" jsonschema:"The number of groups that are left out because of limit."`
	AsOf       []events.AsOf `json:"as_of" jsonschema:"The part of each partition that the answer reflects."`
	Incomplete []Incomplete  `json:"incomplete" jsonschema:"What the answer lacks. Empty: nothing."`
}

package schedule

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Schedule is a schedule as people see it.
type Schedule struct {
	Name       string            `json:"schedule" jsonschema:"The name of the schedule."`
	State      string            `json:"state" enum:"active,paused,unusable" jsonschema:"The state of the schedule. unusable: fault says why."`
	Fault      string            `json:"fault,omitempty" jsonschema:"Why this build can't use the definition."`
	Definition json.RawMessage   `json:"definition" jsonschema:"The definition, as it was applied, with its defaults."`
	Next       *string           `json:"next_at" format:"date-time" jsonschema:"The next instant. null: it is paused or unusable."`
	Queued     *string           `json:"queued_at,omitempty" format:"date-time" jsonschema:"The instant that waits for the end of an earlier task."`
	Last       *ScheduleInstant  `json:"last" jsonschema:"The last instant. null: there was none."`
	Running    []string          `json:"running" jsonschema:"The tasks that haven't ended, at most 100."`
	Requests   int               `json:"requests" jsonschema:"The number of triggers and backfills that aren't done."`
	Started    int64             `json:"started" jsonschema:"How many tasks it has started, without those that were refused."`
	Skipped    int64             `json:"skipped" jsonschema:"How many instants it has skipped."`
	Refused    int64             `json:"refused" jsonschema:"How many of its tasks were refused."`
	AppliedAt  *string           `json:"applied_at" format:"date-time" jsonschema:"When it was applied, paused or resumed last."`
	By         string            `json:"by,omitempty" jsonschema:"Who did that: the name of a token."`
	Claimed    string            `json:"by_claimed,omitempty" jsonschema:"Who claims to have done that; it isn't verified."`
	Why        string            `json:"why,omitempty" jsonschema:"The reason that was given for that. Absent: none."`
	Recent     []ScheduleInstant `json:"recent,omitempty" jsonschema:"The last instants, the newest first. Only of a single schedule."`
}

// ScheduleInstant is what became of an instant.
type ScheduleInstant struct {
	At      *string `json:"at" format:"date-time" jsonschema:"The instant."`
	To      *string `json:"to,omitempty" format:"date-time" jsonschema:"The last of several instants that were skipped."`
	Count   int64   `json:"count,omitempty" jsonschema:"How many instants were skipped."`
	Task    string  `json:"task,omitempty" jsonschema:"The id of the task. Absent: the instant was skipped."`
	Cause   Cause   `json:"cause,omitempty" enum:"due,queued,triggered,backfilled" jsonschema:"Why the task started."`
	Status  string  `json:"status,omitempty" jsonschema:"The last status of the task. Absent: no scheduler has accepted it yet."`
	Skipped Why     `json:"skipped,omitempty" enum:"overlap,missed,replaced,failed,too_many,had_task" jsonschema:"Why the instant was skipped."`
	Detail  string  `json:"detail,omitempty" jsonschema:"Why an expression failed, or why the task was refused."`
	Request string  `json:"request,omitempty" jsonschema:"The id of the trigger or the backfill."`
	EndedAt *string `json:"ended_at,omitempty" format:"date-time" jsonschema:"When the task ended."`
}

// The states of a schedule.
const (
	StateActive   = "active"
	StatePaused   = "paused"
	StateUnusable = "unusable"
)

// runningShown bounds the tasks that a view has.
const runningShown = 100

// View returns what people see of a schedule. recent: also its last instants.
func (k *Kept) View(recent bool) Schedule {
	v := Schedule{Name: k.Name, State: StateActive, Fault: k.Fault, Definition: k.Applied.Body, Next: events.InstantText(k.Next()), Requests: len(k.requests),
		Started: k.Started, Skipped: k.Skipped, Refused: k.Refused, AppliedAt: events.InstantText(k.Applied.At), By: k.Applied.By.Who, Claimed: k.Applied.By.Claimed, Why: k.Applied.By.Why}
	switch {
	case k.Fault != "":
		v.State = StateUnusable
	case k.Applied.Paused != nil:
		v.State = StatePaused
	}
	if len(v.Definition) == 0 {
		v.Definition = json.RawMessage("null")
	}
	if k.Queued != nil {
		v.Queued = events.InstantText(*k.Queued)
	}
	running := slices.Sorted(maps.Keys(k.Running))
	v.Running = append([]string{}, running[:min(len(running), runningShown)]...)
	for i, o := range slices.Backward(k.Recent) {
		ov := o.view()
		if i == len(k.Recent)-1 {
			v.Last = &ov
		}
		if !recent {
			break
		}
		v.Recent = append(v.Recent, ov)
	}
	return v
}

func (o *Outcome) view() ScheduleInstant {
	return ScheduleInstant{At: events.InstantText(o.At), To: events.InstantText(o.To), Count: o.Count, Task: o.Task, Cause: o.Cause, Status: o.Status, Skipped: o.Why, Detail: o.Detail,
		Request: o.Request, EndedAt: events.InstantText(o.Ended)}
}

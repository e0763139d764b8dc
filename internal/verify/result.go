package verify

import (
	"maps"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
)

// Result is a Report as tools print it. Offsets are strings because they may exceed 2^53.
type Result struct {
	Tasks       int                      `json:"tasks"`
	States      map[events.TaskState]int `json:"states"`
	Events      int                      `json:"events"`
	Inputs      int                      `json:"inputs"`       // still in the inboxes
	Pending     int                      `json:"pending"`      // upper bound of those not consumed yet: an input without an effect leaves no trace
	Unreadable  int                      `json:"unreadable"`   // inputs that can't be used
	Deadletters int                      `json:"dead_letters"` // of inputs
	// Unchecked are consumed inputs that led to no event, and can't be checked: their dead letters may have been deleted.
	// DeadlettersSince is since when inputs are checked; absent: all are, or none.
	Unchecked        int     `json:"unchecked"`
	DeadlettersSince *string `json:"dead_letters_since,omitempty"`
	Overdue          int     `json:"overdue"` // timers of open tasks that are due
	Recoveries       struct {
		Accepted int `json:"accepted"`
		Rejected int `json:"rejected"` // only of inputs still in the inbox
	} `json:"recoveries"`
	Lateness struct {
		Timers int   `json:"timers"`
		P50    int64 `json:"p50_ms"`
		P99    int64 `json:"p99_ms"`
		Max    int64 `json:"max_ms"`
	} `json:"lateness"`
	LateReplies struct {
		Count int   `json:"count"` // only of inputs still in the inbox
		Max   int64 `json:"max_ms"`
	} `json:"late_replies"`
	Range    *ResultRange  `json:"range,omitempty"`
	Broken   int           `json:"broken"`
	Faults   []ResultFault `json:"faults"`   // the first faults
	Timeline []events.Line `json:"timeline"` // events around the first broken task's fault
	AsOf     []events.AsOf `json:"as_of"`
}

// ResultRange is the time range of --since and --until.
type ResultRange struct {
	Since       *string `json:"since"`
	Until       *string `json:"until"`
	OtherEvents int     `json:"other_events"` // events of skipped tasks
}

// ResultFault is one broken guarantee.
type ResultFault struct {
	Promise   string `json:"promise"`
	Task      string `json:"task,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
	Offset    string `json:"offset,omitempty"`
	What      string `json:"what"`
}

// Result converts the report of a check with these options. next is the offset after the last event that was read, by
// partition. Its Timeline is empty.
func (r *Report) Result(o Options, next map[int32]int64) *Result {
	v := &Result{Tasks: r.Tasks, States: r.States, Events: r.Events, Inputs: r.Inputs, Pending: r.Pending, Unreadable: r.Unreadable,
		Deadletters: r.Deadletters, Unchecked: r.Unchecked, DeadlettersSince: events.InstantText(r.DeadlettersSince), Overdue: r.Overdue, Broken: r.Broken, Faults: []ResultFault{}, Timeline: []events.Line{}}
	v.Recoveries.Accepted, v.Recoveries.Rejected = r.Recoveries.Accepted, r.Recoveries.Rejected
	v.Lateness.Timers, v.Lateness.P50 = r.Lateness.Timers, r.Lateness.P50.Milliseconds()
	v.Lateness.P99, v.Lateness.Max = r.Lateness.P99.Milliseconds(), r.Lateness.Max.Milliseconds()
	v.LateReplies.Count, v.LateReplies.Max = r.LateReplies, r.LatestReply.Milliseconds()
	if !o.Since.IsZero() || !o.Until.IsZero() {
		v.Range = &ResultRange{Since: events.InstantText(o.Since), Until: events.InstantText(o.Until), OtherEvents: r.Others}
	}
	for _, f := range r.Faults {
		x := ResultFault{Promise: f.Promise, Task: f.Task, Topic: f.Topic, Partition: f.Partition, What: f.What}
		if f.Topic != "" {
			x.Offset = strconv.FormatInt(f.Offset, 10)
		}
		v.Faults = append(v.Faults, x)
	}
	for _, p := range slices.Sorted(maps.Keys(next)) {
		v.AsOf = append(v.AsOf, events.AsOf{Partition: p, Offset: strconv.FormatInt(next[p], 10)})
	}
	return v
}

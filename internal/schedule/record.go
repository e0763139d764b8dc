package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
)

// The types of the records of the topic of schedules. It also has the notifications of the tasks.
const (
	TypeClaimed  = "waybill.schedule.claimed.v1"
	TypeStarted  = "waybill.schedule.started.v1"
	TypeQueued   = "waybill.schedule.queued.v1"
	TypeSkipped  = "waybill.schedule.skipped.v1"
	TypeTrigger  = "waybill.schedule.trigger_requested.v1"
	TypeBackfill = "waybill.schedule.backfill_requested.v1"
	TypeFinished = "waybill.schedule.backfill_finished.v1"
	TypeKept     = "waybill.schedule.kept.v1"
	TypeSnapshot = "waybill.schedule.snapshot.v1"
)

// Claim is the begin of a process that decides. The first claim of an epoch counts.
type Claim struct {
	Epoch int64  `json:"epoch"`
	Owner string `json:"owner"`
}

// Cause is why a task starts.
type Cause string

// The causes.
const (
	Due        Cause = "due"
	Queue      Cause = "queued" // an instant that waited for the end of an earlier task
	Triggered  Cause = "triggered"
	Backfilled Cause = "backfilled"
)

// Start is the decision to start the task of an instant.
type Start struct {
	Epoch      int64           `json:"epoch"`
	At         time.Time       `json:"at"`
	Cause      Cause           `json:"cause"`
	Request    string          `json:"request,omitempty"` // of a trigger or a backfill
	Submission json.RawMessage `json:"submission"`
}

// Wait is the decision that an instant waits until the tasks of the schedule have ended.
type Wait struct {
	Epoch int64     `json:"epoch"`
	At    time.Time `json:"at"`
	// Cancel: the tasks are cancelled. Another instant that waits is replaced.
	Cancel bool `json:"cancel,omitempty"`
}

// Why is why an instant is skipped.
type Why string

// The reasons.
const (
	Overlapped Why = "overlap"  // an earlier task hasn't ended
	Missed     Why = "missed"   // for longer than catch_up
	Replaced   Why = "replaced" // a later instant cancels the earlier task too
	Failed     Why = "failed"   // an expression failed
	TooMany    Why = "too_many" // tasks haven't ended
	HadTask    Why = "had_task" // of a backfill: the instant had a task before
)

// Skipping is the decision that instants have no task.
type Skipping struct {
	Epoch   int64     `json:"epoch"`
	At      time.Time `json:"at"`          // the first
	To      time.Time `json:"to,omitzero"` // the last, of several
	Count   int64     `json:"count"`
	Cause   Cause     `json:"cause"`
	Why     Why       `json:"why"`
	Detail  string    `json:"detail,omitempty"`
	Request string    `json:"request,omitempty"` // of a trigger or a backfill
}

// Finish is the end of a backfill: all of its instants are decided.
type Finish struct {
	Epoch   int64  `json:"epoch"`
	Request string `json:"request"`
}

// Request asks for a task now (a trigger), or for those of a range of instants (a backfill).
type Request struct {
	ID       string    `json:"id"`
	From     time.Time `json:"from,omitzero"` // of a backfill: the first instant
	To       time.Time `json:"to,omitzero"`   // of a backfill: the end, which isn't an instant of it
	By       string    `json:"by,omitempty"`
	Claimed  string    `json:"by_claimed,omitempty"`
	Why      string    `json:"why,omitempty"`
	backfill bool
}

// namespace is that of the ids of records.
var namespace = uuid.MustParse("0d0b2e52-6a0f-4f0e-9d1c-3c6c1f6b57a1")

// Records makes the records of schedules.
type Records struct {
	Namespace events.Namespace
	Source    string
}

func (m *Records) record(kind, schedule string, v any) (events.Record, error) {
	value, err := events.EncodeJSON(v)
	if err != nil {
		return events.Record{}, fmt.Errorf("encode a record of the schedule %s: %w", schedule, err)
	}
	return events.Record{Topic: m.Namespace.Schedules(), Partition: 0, Key: []byte(schedule), Value: value,
		Headers: events.CloudHeaders(kind, m.Source, uuid.NewSHA1(namespace, []byte(kind+"\x00"+schedule+"\x00"+string(value))).String())}, nil
}

// Claimed returns the record of a claim.
func (m *Records) Claimed(c Claim) (events.Record, error) { return m.record(TypeClaimed, "", c) }

// Trigger returns the record of a request for a task now.
func (m *Records) Trigger(schedule string, r Request) (events.Record, error) {
	return m.record(TypeTrigger, schedule, r)
}

// Backfill returns the record of a request for the tasks of a range.
func (m *Records) Backfill(schedule string, r Request) (events.Record, error) {
	return m.record(TypeBackfill, schedule, r)
}

// Decided returns the record of a decision: a *Start, a *Wait, a *Skipping or a *Finish.
func (m *Records) Decided(schedule string, decision any) (events.Record, error) {
	switch decision.(type) {
	case *Start:
		return m.record(TypeStarted, schedule, decision)
	case *Wait:
		return m.record(TypeQueued, schedule, decision)
	case *Skipping:
		return m.record(TypeSkipped, schedule, decision)
	case *Finish:
		return m.record(TypeFinished, schedule, decision)
	}
	panic(fmt.Sprintf("schedule: %T is no decision", decision))
}

var errNoRecord = errors.New("it is no record of a schedule")

// decode returns the content of a record.
func decode(r *events.Record) (v any, err error) {
	kind, _ := r.Header(events.HeaderType)
	switch kind {
	case TypeClaimed:
		v = &Claim{}
	case TypeStarted:
		v = &Start{}
	case TypeQueued:
		v = &Wait{}
	case TypeSkipped:
		v = &Skipping{}
	case TypeTrigger:
		v = &Request{}
	case TypeBackfill:
		v = &Request{backfill: true}
	case TypeFinished:
		v = &Finish{}
	case TypeKept:
		v = &keptRecord{}
	case TypeSnapshot:
		v = &Snapshot{}
	case events.TypeNotification:
		return events.DecodeNotification(r)
	default:
		return nil, errNoRecord
	}
	return v, json.Unmarshal(r.Value, v)
}

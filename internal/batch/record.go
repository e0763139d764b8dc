package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
)

// The types of the records of the topic of batches.
const (
	TypeTargets  = "waybill.batch.targets.v1"
	TypeSelected = "waybill.batch.selected.v1"
	TypeReported = "waybill.batch.reported.v1"
	TypeStop     = "waybill.batch.stop_requested.v1"
	TypeEnded    = "waybill.batch.ended.v1"
)

const (
	// pieceTargetsMax and pieceBytesMax bound the targets of a record.
	pieceTargetsMax = 1000
	pieceBytesMax   = 256 << 10
	// ReportMax bounds the results of a record.
	ReportMax = 500
	// whyMaxBytes bounds the reason of a result in a record.
	whyMaxBytes = 500
)

// Order is a batch as it was ordered: who gives which command, why and how. The record that has it comes after the
// targets.
type Order struct {
	ID           string         `json:"id"`
	Draft        string         `json:"draft"` // its targets have the same
	Command      events.Command `json:"command"`
	Step         string         `json:"step,omitempty"`
	Keep         bool           `json:"keep,omitempty"`
	Processed    bool           `json:"processed,omitempty"`
	Version      int            `json:"version,omitempty"` // migrate: the version to migrate to
	DryRun       bool           `json:"dry_run,omitempty"` // the commands have no effect
	By           string         `json:"by,omitempty"`
	Claimed      string         `json:"by_claimed,omitempty"`
	Why          string         `json:"why"`
	Filter       string         `json:"filter,omitempty"` // empty: the tasks were named
	Rate         float64        `json:"rate,omitempty"`
	Canary       int            `json:"canary,omitempty"`
	CanaryWithin int64          `json:"canary_within_ms,omitempty"`
	Tasks        int            `json:"tasks"`
}

// Control returns the command that each task gets.
func (o *Order) Control() events.Control {
	return events.Control{Command: o.Command, Step: o.Step, Keep: o.Keep, Processed: o.Processed, Version: o.Version, DryRun: o.DryRun, By: events.By{Who: o.By, Claimed: o.Claimed, Why: o.Why}}
}

// Plan returns how the commands are sent.
func (o *Order) Plan() Plan {
	return Plan{Rate: o.Rate, Canary: o.Canary, CanaryWithin: time.Duration(o.CanaryWithin) * time.Millisecond}
}

// Same reports whether another order with the same id repeats this one.
func (o *Order) Same(other *Order) bool {
	return o.Command == other.Command && o.Step == other.Step && o.Keep == other.Keep && o.Processed == other.Processed && o.Version == other.Version && o.DryRun == other.DryRun && o.Filter == other.Filter
}

// targetsPiece is some of the targets of a batch.
type targetsPiece struct {
	Draft   string   `json:"draft"`
	Targets []Target `json:"targets"`
}

// Report is what became of some tasks.
type Report struct {
	Results []ReportedResult `json:"results"`
	Trouble string           `json:"trouble,omitempty"`
}

// ReportedResult is what became of the task with a number, in the order of the targets.
type ReportedResult struct {
	Number int              `json:"n"`
	Status Status           `json:"status"`
	State  events.TaskState `json:"state,omitempty"`
	Why    string           `json:"why,omitempty"`
}

// StopRequest asks to stop a batch.
type StopRequest struct {
	By      string `json:"by,omitempty"`
	Claimed string `json:"by_claimed,omitempty"`
	Why     string `json:"why"`
}

// End is the end of a batch.
type End struct {
	Why      string `json:"why,omitempty"` // of a batch that was stopped
	TimedOut bool   `json:"timed_out,omitempty"`
}

// Records makes the records of batches.
type Records struct {
	Namespace events.Namespace
	Source    string
}

func (m *Records) record(kind, id string, v any) (events.Record, error) {
	value, err := events.EncodeJSON(v)
	if err != nil {
		return events.Record{}, fmt.Errorf("encode a record of the batch %s: %w", id, err)
	}
	return events.Record{Topic: m.Namespace.Batches(), Partition: 0, Key: []byte(id), Value: value, Headers: events.CloudHeaders(kind, m.Source, uuid.NewSHA1(namespace, []byte(kind+"\x00"+id+"\x00"+string(value))).String())}, nil
}

// Ordered returns the records of a new batch: the pieces of its targets, which are written first, and the order.
func (m *Records) Ordered(o Order, targets []Target) (pieces []events.Record, order events.Record, err error) {
	o.Tasks = len(targets)
	for len(targets) > 0 {
		n, bytes := 0, 0
		for n < len(targets) && n < pieceTargetsMax && bytes < pieceBytesMax {
			t := &targets[n]
			bytes += len(t.Task) + len(t.Workflow) + len(t.Step) + len(t.Code) + 100
			n++
		}
		r, err := m.record(TypeTargets, o.ID, targetsPiece{o.Draft, targets[:n]})
		if err != nil {
			return nil, order, err
		}
		pieces, targets = append(pieces, r), targets[n:]
	}
	order, err = m.record(TypeSelected, o.ID, o)
	return pieces, order, err
}

// Reported returns the record of some results.
func (m *Records) Reported(id string, r Report) (events.Record, error) {
	for i := range r.Results {
		if why := &r.Results[i].Why; len(*why) > whyMaxBytes {
			*why = validPrefix(*why)
		}
	}
	return m.record(TypeReported, id, r)
}

// validPrefix returns the beginning of a text, without a part of a character at its end.
func validPrefix(text string) string { return strings.ToValidUTF8(text[:whyMaxBytes], "") }

// StopRequested returns the record of a request to stop.
func (m *Records) StopRequested(id string, s StopRequest) (events.Record, error) {
	return m.record(TypeStop, id, s)
}

// Ended returns the record of an end.
func (m *Records) Ended(id string, e End) (events.Record, error) { return m.record(TypeEnded, id, e) }

var errNoRecord = errors.New("it is not a record of a batch")

// decode returns the content of a record.
func decode(r *events.Record) (v any, err error) {
	kind, _ := r.Header(events.HeaderType)
	switch kind {
	case TypeTargets:
		v = &targetsPiece{}
	case TypeSelected:
		v = &Order{}
	case TypeReported:
		v = &Report{}
	case TypeStop:
		v = &StopRequest{}
	case TypeEnded:
		v = &End{}
	default:
		return nil, errNoRecord
	}
	return v, json.Unmarshal(r.Value, v)
}

package schedule

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A snapshot is the state of all schedules as of an offset of their topic, written into it: records of TypeKept, then one of
// TypeSnapshot. A process reads the topic from that offset on instead of from its start. And what the schedules have decided
// outlives the retention of the topic: otherwise, one that is due each year would forget that it was.
//
// The state is a function of the records before the offset, so it doesn't matter which process has written it.
const (
	snapshotRecords  = 10_000         // how many records are in the log, at most, without a snapshot
	snapshotShare    = 4              // but at least this many times what the snapshot has
	snapshotInterval = 24 * time.Hour // the longest time without one; far below the topic's retention
)

// SnapshotWindows are how far back to look for the end of a snapshot, one after the other; the last: everywhere. It is less than
// an hour old if there are many records.
var SnapshotWindows = []time.Duration{time.Hour, snapshotInterval + time.Hour, 0}

// Snapshot is the end of a snapshot.
type Snapshot struct {
	ID      string `json:"id"`
	Epoch   int64  `json:"epoch"` // the last claim
	Owner   string `json:"owner"`
	From    int64  `json:"from"`    // the offset of the first record that isn't in it
	Records int    `json:"records"` // of TypeKept
}

// keptRecord is a part of a snapshot: a schedule, or a task that hasn't ended.
type keptRecord struct {
	Snapshot string        `json:"snapshot"`
	Schedule *keptSchedule `json:"schedule,omitempty"`
	Run      *Run          `json:"run,omitempty"`
}

type keptSchedule struct {
	Decided  time.Time     `json:"decided,omitzero"`
	Queued   *time.Time    `json:"queued,omitempty"`
	Recent   []*Outcome    `json:"recent,omitempty"`
	Started  int64         `json:"started"`
	Skipped  int64         `json:"skipped"`
	Refused  int64         `json:"refused"`
	Requests []keptRequest `json:"requests,omitempty"`
}

type keptRequest struct {
	Request
	Backfill bool      `json:"backfill"`
	At       time.Time `json:"at"`
	Done     time.Time `json:"done"`
}

// awaited is a snapshot that is being read.
type awaited struct {
	end  Snapshot
	kept []keptOf
	held []events.Record // those that aren't in it
}

type keptOf struct {
	schedule string
	keptRecord
}

// SnapshotDue reports whether a snapshot is to be written, at the brokers' time.
func (s *State) SnapshotDue(now time.Time) bool {
	size := 0
	for _, k := range s.schedules {
		size += 1 + len(k.Running)
	}
	return size > 0 && (now.Sub(s.snapshotAt) >= snapshotInterval || s.sinceSnapshot >= max(snapshotRecords, snapshotShare*size))
}

// Await makes a state, which has no records yet, read a snapshot. The records from end.From on are to be applied.
func (s *State) Await(end Snapshot) { s.awaited = &awaited{end: end} }

// hold keeps a record until the snapshot is read. The record that ends the snapshot is applied, and then those that were held.
func (s *State) hold(r *events.Record, v any) {
	a := s.awaited
	switch v := v.(type) {
	case *keptRecord:
		if v.Snapshot == a.end.ID {
			a.kept = append(a.kept, keptOf{string(r.Key), *v})
		}
		return
	case *Snapshot:
		if v.ID != a.end.ID {
			return
		}
	default:
		a.held = append(a.held, *r)
		return
	}
	s.awaited = nil
	s.epoch, s.owner = a.end.Epoch, a.end.Owner
	for i := range a.kept {
		s.load(&a.kept[i])
	}
	for i := range a.held {
		s.Apply(&a.held[i])
	}
	s.snapshotAt, s.sinceSnapshot = r.Time, len(a.held)
}

func (s *State) load(r *keptOf) {
	k := s.kept(r.schedule)
	if run := r.Run; run != nil {
		k.Running[run.Task] = run
		i := slices.IndexFunc(k.Recent, func(o *Outcome) bool { return o.Task == run.Task && o.Ended.IsZero() })
		if i < 0 { // too old to be shown
			s.tasks[run.Task] = &Outcome{At: run.At, Task: run.Task, Cause: run.Cause, Decided: run.Decided, Status: run.Status}
		} else {
			s.tasks[run.Task] = k.Recent[i]
		}
		return
	}
	from := r.Schedule
	k.Decided, k.Queued, k.Recent, k.Started, k.Skipped, k.Refused = from.Decided, from.Queued, from.Recent, from.Started, from.Skipped, from.Refused
	for i := range from.Requests {
		q := &from.Requests[i]
		q.backfill = q.Backfill
		k.requests = append(k.requests, &openRequest{Request: q.Request, at: q.At, done: q.Done})
	}
}

// Snapshot returns the records of a snapshot of the state, which has the records below an offset.
func (m *Records) Snapshot(s *State, id string, from int64) (rs []events.Record, err error) {
	add := func(kind, schedule string, v any) {
		if err == nil {
			var r events.Record
			r, err = m.record(kind, schedule, v)
			rs = append(rs, r)
		}
	}
	for name, k := range s.schedules {
		one := &keptSchedule{k.Decided, k.Queued, k.Recent, k.Started, k.Skipped, k.Refused, nil}
		for _, o := range k.requests {
			one.Requests = append(one.Requests, keptRequest{o.Request, o.backfill, o.at, o.done})
		}
		add(TypeKept, name, &keptRecord{Snapshot: id, Schedule: one})
		for _, run := range k.Running {
			add(TypeKept, name, &keptRecord{Snapshot: id, Run: run})
		}
	}
	add(TypeSnapshot, "", &Snapshot{ID: id, Epoch: s.epoch, Owner: s.owner, From: from, Records: len(rs)})
	return rs, err
}

// SnapshotEnd returns the end of a snapshot; nil: the record is another one.
func SnapshotEnd(r *events.Record) *Snapshot {
	if kind, _ := r.Header(events.HeaderType); kind != TypeSnapshot {
		return nil
	}
	if v, err := decode(r); err == nil {
		return v.(*Snapshot)
	}
	return nil
}

package schedule

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// RecentMax bounds the outcomes of a schedule that are kept.
	RecentMax = 20
	// RunningMax bounds the tasks of a schedule that haven't ended.
	RunningMax = 1000
	// RequestsMax bounds the triggers and backfills of a schedule that aren't done.
	RequestsMax = 100
	// BackfillMax bounds the instants of a backfill.
	BackfillMax = 10_000
)

// Errors of those who keep schedules.
var (
	// ErrNotRead: the process hasn't read the topic of schedules to its end yet.
	ErrNotRead = errors.New("the schedules have not been read yet")
	// ErrNotFound: there is no such schedule.
	ErrNotFound = errors.New("no such schedule")
)

// Run is a task of a schedule that hasn't ended, as far as is known.
type Run struct {
	Task       string          `json:"task"`
	At         time.Time       `json:"at"` // the instant
	Cause      Cause           `json:"cause"`
	Decided    time.Time       `json:"decided"` // when it was decided
	Submission json.RawMessage `json:"submission"`
	Received   bool            `json:"received"`         // a scheduler has accepted it
	Status     string          `json:"status,omitempty"` // of the last notification
	Cancel     bool            `json:"cancel,omitempty"` // it is to be cancelled
}

// Outcome is what became of an instant, or of several that were skipped.
type Outcome struct {
	At      time.Time `json:"at"`
	To      time.Time `json:"to,omitzero"`     // zero: it is about one instant
	Count   int64     `json:"count,omitempty"` // of skipped instants
	Task    string    `json:"task,omitempty"`  // empty: it was skipped
	Cause   Cause     `json:"cause,omitempty"`
	Status  string    `json:"status,omitempty"`  // of the task; empty: not received yet
	Why     Why       `json:"why,omitempty"`     // of a skipped one
	Detail  string    `json:"detail,omitempty"`  // of a skipped one, or of a refused task
	Request string    `json:"request,omitempty"` // the trigger or backfill; empty: none
	Decided time.Time `json:"decided"`
	Ended   time.Time `json:"ended,omitzero"` // of the task; zero: it hasn't
}

// Kept is what is known of a schedule.
type Kept struct {
	Name       string
	Applied    *events.NamedDefinition // nil: deleted
	Definition *Definition             // nil: deleted, or Fault says why not
	Fault      string
	Decided    time.Time  // all instants of the rule up to it are decided
	Queued     *time.Time // the instant that waits for the end of earlier tasks
	Running    map[string]*Run
	Recent     []*Outcome // the oldest first
	Started    int64
	Skipped    int64
	Refused    int64 // tasks that schedulers refused
	requests   []*openRequest
	next       time.Time // cached by Next
}

// openRequest is a trigger or a backfill that isn't done.
type openRequest struct {
	Request
	at   time.Time // the instant of a trigger
	done time.Time // of a backfill: all instants up to it are decided
}

// State is all schedules, as of the records that were applied. It is for one goroutine at a time.
type State struct {
	schedules  map[string]*Kept
	epoch      int64
	owner      string
	claimedAt  time.Time           // the broker's time of the last claim
	tasks      map[string]*Outcome // of tasks that haven't ended
	Unreadable int                 // records that were left out
	Outdated   int                 // decisions of processes that had lost the partition

	awaited       *awaited  // nil: no snapshot is being read
	snapshotAt    time.Time // when the last one was written; zero: none was seen
	sinceSnapshot int       // how many records came after it
}

// NewState returns a state without records.
func NewState() *State { return &State{schedules: map[string]*Kept{}, tasks: map[string]*Outcome{}} }

// Find returns a schedule; nil: there is none.
func (s *State) Find(name string) *Kept {
	if k := s.schedules[name]; k != nil && k.Applied != nil {
		return k
	}
	return nil
}

// All returns the schedules, by name.
func (s *State) All() (all []*Kept) {
	for _, name := range slices.Sorted(maps.Keys(s.schedules)) {
		if k := s.schedules[name]; k.Applied != nil {
			all = append(all, k)
		}
	}
	return all
}

// Unended calls each with the tasks that haven't ended, also those of deleted schedules, with the names of their schedules.
func (s *State) Unended(each func(schedule string, run *Run)) {
	for name, k := range s.schedules {
		for _, run := range k.Running {
			each(name, run)
		}
	}
}

// Ended reports whether a task has ended, or isn't known.
func (s *State) Ended(task string) bool { return s.tasks[task] == nil }

// Epoch returns the last claim.
func (s *State) Epoch() (epoch int64, owner string) { return s.epoch, s.owner }

// ClaimedAt returns the broker's time of the last claim; zero: the log doesn't have it.
func (s *State) ClaimedAt() time.Time { return s.claimedAt }

func (s *State) kept(name string) *Kept {
	k := s.schedules[name]
	if k == nil {
		k = &Kept{Name: name, Running: map[string]*Run{}}
		s.schedules[name] = k
	}
	return k
}

// ResetRecords forgets what the records of the topic of schedules said. Definitions stay.
func (s *State) ResetRecords() {
	old := s.schedules
	*s = *NewState()
	for name, k := range old {
		if k.Applied != nil {
			n := s.kept(name)
			n.Applied, n.Definition, n.Fault = k.Applied, k.Definition, k.Fault
		}
	}
}

// ApplyDefinition applies a record of the topic of definitions.
func (s *State) ApplyDefinition(r *events.Record) {
	d, is, err := events.DecodeNamedDefinition(r)
	if !is || d.Kind != events.ScheduleDefinition {
		return
	}
	k := s.kept(d.Name)
	k.Applied, k.Definition, k.Fault, k.next = d, nil, "", time.Time{}
	if err == nil && len(d.Body) == 0 {
		k.Applied = nil
		return
	}
	if err == nil {
		k.Definition, err = ParseStored(d.Body)
	}
	if err != nil {
		k.Definition, k.Fault = nil, err.Error()
	}
}

// Apply applies a record of the topic of schedules. Records that can't be read are left out.
func (s *State) Apply(r *events.Record) {
	v, err := decode(r)
	if err != nil {
		s.Unreadable++
		return
	}
	if s.awaited != nil {
		s.hold(r, v)
		return
	}
	s.sinceSnapshot++
	name := string(r.Key)
	switch v := v.(type) {
	case *keptRecord:
	case *Snapshot:
		s.snapshotAt, s.sinceSnapshot = r.Time, 0
	case *Claim:
		if v.Epoch > s.epoch { // the first of its epoch
			s.epoch, s.owner, s.claimedAt = v.Epoch, v.Owner, r.Time
		}
	case *events.Notification:
		s.applyNotification(v, r.Time)
	case *Request:
		s.applyRequest(s.kept(name), v, r.Time)
	case *Start:
		if s.current(v.Epoch) {
			s.applyStart(s.kept(name), v, r.Time)
		}
	case *Wait:
		if s.current(v.Epoch) {
			s.kept(name).applyWait(v, r.Time)
		}
	case *Finish:
		if k := s.kept(name); s.current(v.Epoch) {
			k.requests = slices.DeleteFunc(k.requests, func(o *openRequest) bool { return o.ID == v.Request })
		}
	case *Skipping:
		if s.current(v.Epoch) {
			s.kept(name).applySkipping(v, r.Time)
		}
	}
}

// NextEpoch returns the epoch of a claim. position is the offset below which all records are applied. The retention of the topic may
// have deleted all claims, and other processes may still know them, so an epoch is also higher than that of any claim
// that was ever written below the position.
func (s *State) NextEpoch(position int64) int64 { return max(s.epoch, position) + 1 }

// current reports whether the process with an epoch may decide.
func (s *State) current(epoch int64) bool {
	if s.epoch == 0 { // its claim is no longer in the log
		s.epoch = epoch
	}
	if epoch != s.epoch {
		s.Outdated++
	}
	return epoch == s.epoch
}

func (s *State) applyRequest(k *Kept, r *Request, at time.Time) {
	if len(k.requests) >= RequestsMax || slices.ContainsFunc(k.requests, func(o *openRequest) bool { return o.ID == r.ID }) {
		return
	}
	o := &openRequest{Request: *r, at: at.Truncate(time.Millisecond), done: r.From.Add(-time.Millisecond)}
	for _, other := range k.requests { // the ids of tasks have milliseconds
		if !other.backfill && !other.at.Before(o.at) {
			o.at = other.at.Add(time.Millisecond)
		}
	}
	k.requests = append(k.requests, o)
}

func (s *State) applyStart(k *Kept, d *Start, at time.Time) {
	task := events.ScheduledTask(k.Name, d.At)
	if !k.advance(d.Cause, d.Request, d.At) {
		return
	}
	if s.tasks[task] != nil {
		k.Skipped++
		k.remember(&Outcome{At: d.At, Count: 1, Cause: d.Cause, Why: HadTask, Detail: "its task hasn't ended", Request: d.Request, Decided: at})
		return
	}
	k.Started++
	o := &Outcome{At: d.At, Task: task, Cause: d.Cause, Request: d.Request, Decided: at}
	k.Running[task] = &Run{Task: task, At: d.At, Cause: d.Cause, Decided: at, Submission: d.Submission}
	s.tasks[task] = o
	k.remember(o)
}

// advance notes that an instant is decided. It reports whether it wasn't before: the first decision counts.
func (k *Kept) advance(cause Cause, request string, at time.Time) bool {
	switch cause {
	case Due:
		if !at.After(k.Decided) {
			return false
		}
		k.Decided = at
		return true
	case Queue:
		if k.Queued == nil || !k.Queued.Equal(at) {
			return false
		}
		k.Queued = nil
		return true
	case Triggered, Backfilled:
	}
	i := slices.IndexFunc(k.requests, func(o *openRequest) bool { return o.ID == request })
	switch {
	case i < 0:
		return false
	case !k.requests[i].backfill:
		k.requests = slices.Delete(k.requests, i, i+1)
	case !at.After(k.requests[i].done):
		return false
	default:
		k.requests[i].done = at
	}
	return true
}

func (k *Kept) applyWait(d *Wait, at time.Time) {
	if !k.advance(Due, "", d.At) {
		return
	}
	if d.Cancel {
		if k.Queued != nil {
			k.Skipped++
			k.remember(&Outcome{At: *k.Queued, Count: 1, Why: Replaced, Decided: at})
		}
		for _, run := range k.Running {
			run.Cancel = true
		}
	}
	k.Queued = &d.At
}

func (k *Kept) applySkipping(d *Skipping, at time.Time) {
	last := d.At
	if d.To.After(last) {
		last = d.To
	}
	if !k.advance(d.Cause, d.Request, last) {
		return
	}
	k.Skipped += d.Count
	if last := k.last(); last != nil && last.Task == "" && last.Why == d.Why && d.Why == Overlapped { // one line for many
		last.Count, last.To, last.Decided = last.Count+d.Count, d.At, at
		return
	}
	k.remember(&Outcome{At: d.At, To: d.To, Count: d.Count, Cause: d.Cause, Why: d.Why, Detail: d.Detail, Request: d.Request, Decided: at})
}

func (k *Kept) last() *Outcome {
	if len(k.Recent) == 0 {
		return nil
	}
	return k.Recent[len(k.Recent)-1]
}

func (k *Kept) remember(o *Outcome) {
	if len(k.Recent) == RecentMax {
		k.Recent = slices.Delete(k.Recent, 0, 1)
	}
	k.Recent = append(k.Recent, o)
}

func (s *State) applyNotification(n *events.Notification, at time.Time) {
	o := s.tasks[n.Task]
	if o == nil {
		return // it has ended, or its start is no longer in the log
	}
	name, _, _ := strings.Cut(n.Task, "@")
	k := s.schedules[name]
	run := k.Running[n.Task]
	o.Status, run.Status = n.Status, n.Status
	if !endsTask(n.Status) {
		run.Received = true
		return
	}
	o.Ended, o.Detail = at, n.Reason
	delete(s.tasks, n.Task)
	delete(k.Running, n.Task)
	if !run.Received {
		k.noTask(o, n)
	}
}

// noTask corrects the outcome of a task that has ended, if the decision to start it started none.
func (k *Kept) noTask(o *Outcome, n *events.Notification) {
	had := ""
	switch {
	case o.Cause == Backfilled && n.Status == events.StatusRefused && strings.HasPrefix(n.Reason, string(events.ReasonIDConflict)):
		had = "its task is of another definition"
	case n.Status == events.StatusRefused:
		k.Started--
		k.Refused++
		return
	case o.Cause == Backfilled && n.At.Before(o.Decided):
		had = "its task was " + n.Status + " before"
	default:
		return
	}
	k.Started--
	k.Skipped++
	*o = Outcome{At: o.At, Count: 1, Cause: o.Cause, Why: HadTask, Detail: had, Request: o.Request, Decided: o.Decided}
}

// endsTask reports whether a notification with a status is the last one of a task.
func endsTask(status string) bool {
	switch status {
	case events.StatusRefused, events.StatusForgotten, string(events.StateProcessed), string(events.StateUndone), string(events.StateCancelled):
		return true
	}
	return false
}

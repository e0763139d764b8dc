package verify

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The types of the records of the topic of schedules that are checked. They are read independently of the package that
// writes them.
const (
	topicSchedules  = "schedules"
	scheduleClaimed = "waybill.schedule.claimed.v1"
	scheduleStarted = "waybill.schedule.started.v1"
	// startWithin is how long after its decision a task of a schedule may be received. It is also the margin for clocks.
	startWithin = 10 * time.Minute
)

// schedules is what was fed of the topic of schedules (P27), and the tasks that say that a schedule started them.
type schedules struct {
	fed     bool
	first   time.Time // of the first record; zero: there was none
	trimmed bool      // records before the first one were deleted
	epoch   int64
	started map[string]scheduleStart // by task
	refused map[string]bool
	tasks   map[string]scheduledTask // whose reply_to is the topic
}

func newSchedules() schedules {
	return schedules{started: map[string]scheduleStart{}, refused: map[string]bool{}, tasks: map[string]scheduledTask{}}
}

// scheduledTask is where a task was received.
type scheduledTask struct {
	partition int32
	offset    int64
	at        time.Time
}

type scheduleStart struct {
	at      time.Time // of the decision
	offset  int64
	digests []string // of its submissions: a backfill under a newer definition decides another one
}

// SchedulesRead reports that the topic of schedules is fed from its start. It is called before Schedule, on the merged
// checker.
func (c *Checker) SchedulesRead() { c.schedules.fed = true }

// Schedule adds a record of the topic of schedules. A decision counts if its epoch is that of the last claim. The time of the
// first one of each instant counts.
func (c *Checker) Schedule(r *events.Record) {
	s := &c.schedules
	if s.first.IsZero() {
		s.first, s.trimmed = r.Time, r.Offset > 0
	}
	kind, _ := r.Header(events.HeaderType)
	var v struct {
		Epoch      int64           `json:"epoch"`
		At         time.Time       `json:"at"`
		Submission json.RawMessage `json:"submission"`
	}
	switch kind {
	case events.TypeNotification:
		if n, err := events.DecodeNotification(r); err == nil && n.Status == events.StatusRefused {
			s.refused[n.Task] = true
		}
		return
	case scheduleClaimed, scheduleStarted:
	default:
		return
	}
	if err := json.Unmarshal(r.Value, &v); err != nil {
		c.faults.add(Fault{"P27", "", topicSchedules, r.Partition, r.Offset, "a record that can't be read: " + err.Error()})
		return
	}
	switch {
	case kind == scheduleClaimed && v.Epoch > s.epoch:
		s.epoch = v.Epoch
	case kind == scheduleStarted && (v.Epoch == s.epoch || s.epoch == 0):
		task := events.ScheduledTask(string(r.Key), v.At)
		start, twice := s.started[task]
		if !twice {
			start.at, start.offset = r.Time, r.Offset
		}
		if _, in, err := events.DecodeInput(events.Tasks, &events.Record{Key: []byte(task), Value: v.Submission}); err == nil {
			start.digests = append(start.digests, in.(*events.Submission).Digest())
		}
		s.started[task] = start
	}
}

// recordScheduled records a task that says that a schedule started it.
func (c *Checker) recordScheduled(s *eventCheck, f *events.TaskReceived) {
	if f.ReplyTo == c.o.Namespace.Schedules() {
		c.schedules.tasks[s.t.id] = scheduledTask{s.r.Partition, s.r.Offset, s.e.At}
	}
}

// checkSchedules checks that each decision to start has led to a task, and that each task of a schedule has a decision (P27).
func (f *finish) checkSchedules() {
	s := &f.c.schedules
	if !s.fed {
		return
	}
	waiting := f.unusedSubmissions()
	for task, start := range s.started {
		t := f.c.tasks[task]
		_, own := s.tasks[task]
		switch {
		case t != nil && own && !s.refused[task] && len(start.digests) > 0 && !slices.ContainsFunc(start.digests, func(x string) bool { return sumOfText(x) == t.digest }):
			f.faults.add(Fault{"P27", task, topicSchedules, 0, start.offset, "the submission of its task isn't the one that was decided"})
		case t != nil || waiting[task] || s.refused[task] || !f.covers(task, start.at) || f.now.Sub(start.at) < startWithin:
		default:
			f.faults.add(Fault{"P27", task, topicSchedules, 0, start.offset, "the instant was decided at " + start.at.UTC().Format(events.TimeLayout) + ", and no task started"})
		}
	}
	for task, at := range s.tasks {
		if _, decided := s.started[task]; !decided && s.keepsDecision(task, at.at) {
			f.faults.add(Fault{"P27", task, topicEvents, at.partition, at.offset, "no decision of a schedule started it"})
		}
	}
}

// keepsDecision reports whether the topic still has the decision of a task that was received at an instant. A task may wait
// in its inbox for any time. So after records were deleted, the task's own instant counts, before which nothing is decided.
// Backfills of older instants are not checked then.
func (s *schedules) keepsDecision(task string, received time.Time) bool {
	if s.first.IsZero() || !s.trimmed {
		return received.After(s.first)
	}
	_, instant, ok := events.ParseScheduledTask(task)
	return ok && instant.After(s.first.Add(startWithin))
}

// covers reports whether the events of a task that was submitted at an instant were fed.
func (f *finish) covers(task string, at time.Time) bool {
	o := &f.c.o
	if at.Before(o.Since) || !o.Until.IsZero() && at.After(o.Until) {
		return false
	}
	return o.Partitions == 0 || f.c.parts[events.Partition([]byte(task), o.Partitions)] != nil
}

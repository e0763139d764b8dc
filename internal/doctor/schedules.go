package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
	"github.com/waybill-run/waybill/internal/text"
)

// overdueAfter is how long an instant of a schedule may wait to be decided. It exceeds the time of a takeover.
const overdueAfter = time.Minute

// Schedules is what was observed of schedules.
type Schedules struct {
	At   time.Time
	List []schedule.Schedule
}

// readSchedules reads the schedules and what became of their instants. A topic that is missing or has no leader is reported
// elsewhere.
func (c *Collector) readSchedules(ctx context.Context, o *Observation) error {
	topic, state := c.Namespace.Schedules(), schedule.NewState()
	_, exists, err := c.Admin.TopicPartitions(ctx, topic)
	if err != nil || !exists || len(o.Leaderless[topic]) > 0 {
		return err
	}
	err = c.Admin.ReadCompacted(ctx, c.Namespace.Definitions(), func(r events.Record) error {
		state.ApplyDefinition(&r)
		return nil
	})
	if err != nil {
		return err
	}
	from := int64(0)
	snapshot, err := schedulerun.FindSnapshot(ctx, c.Reader, topic)
	if err != nil {
		return err
	}
	if snapshot != nil {
		state.Await(*snapshot)
		from = snapshot.From
	}
	_, err = c.Reader.ReadAll(ctx, topic, logreader.Range{From: from}, func(rs []events.Record) error {
		for i := range rs {
			state.Apply(&rs[i])
		}
		return nil
	}, nil)
	o.Schedules.At = time.Now()
	for _, k := range state.All() {
		o.Schedules.List = append(o.Schedules.List, k.View(false))
	}
	return err
}

// scheduleFindings judges the schedules.
func scheduleFindings(o *Schedules) (list []Finding) {
	fault := func(s *schedule.Schedule, found, fix string) {
		list = append(list, Finding{"schedules", Fault, s.Name + ": " + found, fix})
	}
	overdue := 0
	for i := range o.List {
		s := &o.List[i]
		if next, err := time.Parse(events.TimeLayout, deref(s.Next)); err == nil && o.At.Sub(next) > overdueAfter {
			overdue++
		}
		switch {
		case s.Fault != "":
			fault(s, s.Fault, "apply it again, or delete it")
		case s.Last != nil && s.Last.Status == events.StatusRefused:
			fault(s, "its last task was refused: "+s.Last.Detail, "apply the workflow that it names, or change the schedule")
		case s.Last != nil && s.Last.Skipped == schedule.Failed:
			fault(s, "an expression failed at its last instant: "+s.Last.Detail, "change the schedule")
		case s.Last != nil && s.Last.Skipped == schedule.Overlapped && len(s.Running) > 0:
			list = append(list, Finding{"schedules", Note, fmt.Sprintf("%s: instants are skipped, because task %s hasn't ended", s.Name, s.Running[0]), "`waybill task why` says what it waits for"})
		}
	}
	if overdue > 0 {
		list = append(list, Finding{"schedules", Fault, fmt.Sprintf("instants of %s are due, and no supervisor starts their tasks", text.Count(overdue, "schedule")),
			"start one: waybill supervisor; it needs the rights on the topic of schedules (docs/operate/security.md)"})
	}
	if len(list) == 0 && len(o.List) > 0 {
		list = append(list, Finding{"schedules", OK, fmt.Sprint(len(o.List)), ""})
	}
	return list
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

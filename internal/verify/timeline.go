package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The numbers of events that a timeline shows: the first of the task, those up to the fault, and those after it.
const (
	timelineFirst  = 1
	timelineBefore = 12
	timelineAfter  = 1
)

// Timeline collects, in a second pass over the log, the events around a fault: those of its task, or else of its
// partition.
type Timeline struct {
	Fault   Fault
	Omitted int // events of the task between the first and those shown
	first   []events.Line
	before  []events.Line
	after   []events.Line
}

// Timeline creates a Timeline of the first fault with a task, or else of the first fault with a record. It is nil if
// there is none.
func (r *Report) Timeline() *Timeline {
	for _, f := range r.Faults {
		if f.Task != "" {
			return &Timeline{Fault: f}
		}
	}
	for _, f := range r.Faults {
		if f.Topic != "" {
			return &Timeline{Fault: f}
		}
	}
	return nil
}

// Add adds the next record of the fault's partition of events, and ignores other records. The line of an unreadable
// record has the timestamp and the offset from Kafka.
func (l *Timeline) Add(r *events.Record) {
	f := &l.Fault
	if f.Task != "" && string(r.Key) != f.Task || f.Task == "" && r.Partition != f.Partition {
		return
	}
	line, err := events.TimelineLine(r)
	if err != nil {
		line.Type, line.Partition, line.Offset = "("+err.Error()+")", r.Partition, strconv.FormatInt(r.Offset, 10)
	}
	if _, err := time.Parse(time.RFC3339, line.At); err != nil {
		line.At = r.Time.UTC().Format(events.TimeLayout)
	}
	line.Data = slices.Clone(line.Data)
	if !json.Valid(line.Data) {
		line.Data = nil
	}
	switch past := f.Topic == topicEvents && r.Offset > f.Offset; {
	case past && len(l.after) < timelineAfter:
		l.after = append(l.after, line)
	case past:
	case f.Task != "" && len(l.first) < timelineFirst:
		l.first = append(l.first, line)
	default:
		if l.before = append(l.before, line); len(l.before) > timelineBefore {
			l.before = l.before[1:]
			l.Omitted++
		}
	}
}

// Lines returns the collected lines in the order of the log.
func (l *Timeline) Lines() []events.Line {
	return append(append(append([]events.Line(nil), l.first...), l.before...), l.after...)
}

// String returns the fault and the events around it, one line each.
func (l *Timeline) String() string {
	s := l.Fault.String() + "\n"
	for i, e := range l.Lines() {
		if i == len(l.first) && l.Omitted > 0 {
			s += fmt.Sprintf("      ... %d events ...\n", l.Omitted)
		}
		s += fmt.Sprintf("%5d %s %-30s %-10s %s %s\n", e.Seq, e.At, e.Type, e.Step, e.Offset, e.Data)
	}
	return s
}

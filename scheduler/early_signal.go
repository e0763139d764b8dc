package scheduler

import (
	"errors"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A signal may be read before the submission of its task, since they are in two topics. So a signal of an unknown task
// isn't a dead letter at once. Its inbox is paused and read again until
//
//   - the signal is earlySignalGrace old, and
//   - submissions that are as much younger than the signal have been read, or none has been read for that long. After a
//     takeover old submissions may still wait.
//
// The client writes the time of a record. A time that is further ahead than the grace counts for nothing, so that no
// record delays the signals of a partition for long.
const (
	earlySignalGrace = 5 * time.Second
	earlySignalRetry = 250 * time.Millisecond
)

// errSignalEarly says that the task of a signal isn't known yet.
var errSignalEarly = errors.New("the task of a signal isn't known yet")

// submissionsRead says how far a partition's submissions were read.
type submissionsRead struct {
	to time.Time // the newest timestamp
	at time.Time // when one was read, or when reading began
}

// add records that submissions were read.
func (s *submissionsRead) add(o submissionsRead) {
	if o.to.After(s.to) {
		s.to = o.to
	}
	if o.at.After(s.at) {
		s.at = o.at
	}
}

// isEarlySignal reports whether a signal is of a task whose submission may still be read. The age of the record counts,
// so that many signals of unknown tasks wait no longer than one.
func (tx *transaction) isEarlySignal(s *speculation, r *events.Record, task string, in events.Input) bool {
	if _, signal := in.(*events.Signal); !signal || r.Time.IsZero() || s.tasks[task] != nil {
		return false
	}
	read := s.partition.submissions
	read.add(s.submissions)
	return isEarly(r.Time, tx.worker.decisionTime(s), read) && s.partition.tasks.Task(task) == nil
}

// isEarly reports whether a submission that belongs to a signal of this time may still be read.
func isEarly(signal, now time.Time, read submissionsRead) bool {
	age := now.Sub(signal)
	if age < earlySignalGrace {
		return age > -earlySignalGrace
	}
	return read.to.Before(signal.Add(earlySignalGrace)) && now.Sub(read.at) < earlySignalGrace
}

package scheduler

import (
	"errors"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A signal may be read before the submission of its task, since they are in two topics. So a signal of an unknown task
// is a dead letter only when it is earlySignalGrace old. Until then its inbox is paused and read again. The client writes
// the time of a record, so a time that is further ahead than that counts for nothing: the wait is at most twice as long.
const (
	earlySignalGrace = 5 * time.Second
	earlySignalRetry = 250 * time.Millisecond
)

// errSignalEarly says that the task of a signal isn't known yet.
var errSignalEarly = errors.New("the task of a signal isn't known yet")

// isEarlySignal reports whether a signal is of a task that may be submitted in a moment. The age of the record counts,
// so that many signals of unknown tasks wait no longer than one.
func (tx *transaction) isEarlySignal(s *speculation, r *events.Record, task string, in events.Input) bool {
	if _, signal := in.(*events.Signal); !signal || r.Time.IsZero() || s.tasks[task] != nil {
		return false
	}
	age := tx.worker.decisionTime(s).Sub(r.Time)
	return age.Abs() < earlySignalGrace && s.partition.tasks.Task(task) == nil
}

package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Ids of ended tasks are forgotten by an event of the partition (events.PartitionForgot). A supervisor asks for it once
// one may be forgotten. Whatever the number of ids, the event is one, and so is what a transaction does about it: the
// store hides forgotten ids, and deletes them later, some with each Save.

// forgetAt returns from when on the id of the task may be forgotten, if it ends now; zero: never.
func (d *decider) forgetAt() time.Time { return d.Task.ForgetAtEnd(d.now) }

// unknownTask says that a task isn't there.
func (d *decider) unknownTask(id string) string {
	why := "there is no task " + quoted(id)
	if !d.env.Forgot.IsZero() {
		why += "; if there was one, it has ended and its id was forgotten (dedupe_for of its workflow)"
	}
	return why
}

// forget decides a recovery that asks to forget ids: all that may be forgotten now, in one event.
func (tx *transaction) forget(s *speculation, cause events.Cause) {
	now := events.Millis(tx.worker.decisionTime(s))
	switch due := s.state.ForgetDue; {
	case due.IsZero() || now.Before(due):
		tx.counts.Ignored[IgnoredNotDue]++
		return
	case !s.partition.tasks.MayForget():
		tx.counts.Ignored[IgnoredSnapshotRuns]++
		return
	}
	e := &events.Event{Seq: uint64(now.UnixMilli()), Epoch: s.state.Epoch, At: now, Cause: cause,
		Fact: &events.PartitionForgot{Until: now, Next: s.nextForgetAt(now)}}
	value := e.Seal(nil)
	if err := s.state.Evolve(e); err != nil {
		panic("scheduler: " + err.Error())
	}
	s.forgot = true
	tx.counts.Recoveries++
	tx.write(e.Record(tx.worker.cfg.Namespace, tx.worker.source, s.partition.id, value))
}

// nextForgetAt returns the earliest ForgetAt after an instant of the ended tasks that are known; zero: none has one.
func (s *speculation) nextForgetAt(after time.Time) time.Time {
	next := s.partition.tasks.NextForgetAt(after)
	for _, t := range s.tasks {
		if at := t.ForgetAt; !t.Open() && at.After(after) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

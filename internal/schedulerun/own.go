package schedulerun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/schedule"
)

const (
	// clockCheckInterval is the maximum time between two readings of the clock, which may be corrected meanwhile.
	clockCheckInterval = time.Second
	// resendInterval is how long a submission waits for its confirmation before it is sent again.
	resendInterval = 30 * time.Second
	// askInterval is how often the owner asks at most for the status of a task that hasn't ended. So it learns the end of a
	// task whose notification was lost. Such a submission starts no task: the id may have been forgotten.
	askInterval = 10 * time.Minute
	// askAgeShare lowers the rate for old tasks: they are asked for after this share of their age.
	askAgeShare = 10
	// clockTrustedAfter is how long after its claim an owner doesn't rely on the process's clock alone, and clockAheadMax
	// what that may be ahead of the broker's then: see owner.now.
	clockTrustedAfter = time.Minute
	clockAheadMax     = time.Second
)

// errReplaced says that another process has claimed a later epoch.
var errReplaced = errors.New("another process starts the tasks of schedules now")

// owner is a process while it decides. One goroutine has it.
type owner struct {
	*Service
	decider schedule.Decider
	id      string
	sent    map[string]time.Time // submissions and cancels, by task
	cancels map[string]time.Time
	// claimedAt is the broker's time of the claim, and claimRead when it was read, by the process's monotonic clock.
	claimedAt, claimRead time.Time
}

// now returns the broker's time. A process that has just started has no sample of it, and its own clock may be hours ahead: it
// would start the tasks of instants that haven't come, or skip them as missed. So the time of the claim in the log limits it.
func (o *owner) now() time.Time {
	now, since := o.cfg.Now(), time.Since(o.claimRead)
	if by := o.claimedAt.Add(since); !o.claimedAt.IsZero() && since < clockTrustedAfter && now.After(by.Add(clockAheadMax)) {
		return by
	}
	return now
}

// own decides until ctx ends.
func (s *Service) own(ctx context.Context) error {
	if err := s.AwaitDefinitions(ctx); err != nil {
		return err
	}
	o := &owner{Service: s, id: s.cfg.Source + "/" + uuid.NewString(), sent: map[string]time.Time{}, cancels: map[string]time.Time{}}
	if err := o.claim(ctx); err != nil {
		return err
	}
	s.cfg.Log.Info("this process starts the tasks of schedules", "epoch", o.decider.Epoch)
	for {
		changed := s.topic.Changed()
		wait, err := o.act(ctx)
		if err != nil {
			return err
		}
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// claim begins an epoch.
func (o *owner) claim(ctx context.Context) error {
	o.topic.Lock()
	epoch := o.state.NextEpoch(o.topic.Position())
	o.topic.Unlock()
	r, err := o.records.Claimed(schedule.Claim{Epoch: epoch, Owner: o.id})
	if err == nil {
		err = o.topic.Write(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("claim the schedules: %w", err)
	}
	o.decider = schedule.Decider{Epoch: epoch, Namespace: o.cfg.Kafka.Namespace}
	o.topic.Lock()
	defer o.topic.Unlock()
	o.claimedAt, o.claimRead = o.state.ClaimedAt(), time.Now()
	return o.current()
}

// current returns errReplaced if this process may not decide any more. The caller holds the lock.
func (o *owner) current() error {
	if epoch, id := o.state.Epoch(); epoch != o.decider.Epoch || id != o.id {
		return errReplaced
	}
	return nil
}

// act decides what is due, and sends what was decided. It returns how long to wait; 0: there is more to decide.
func (o *owner) act(ctx context.Context) (wait time.Duration, err error) {
	if err := o.writeSnapshot(ctx); err != nil {
		return 0, err
	}
	decisions, wait, err := o.decide()
	if err != nil {
		return 0, err
	}
	if len(decisions) > 0 {
		if err := o.topic.Write(ctx, decisions...); err != nil {
			return 0, fmt.Errorf("write decisions: %w", err)
		}
		wait = 0
	}
	o.send(ctx)
	return wait, nil
}

// decide returns the records of what is decided now, and how long to wait for the next instant.
func (o *owner) decide() (rs []events.Record, wait time.Duration, err error) {
	o.topic.Lock()
	defer o.topic.Unlock()
	if err := o.current(); err != nil {
		return nil, 0, err
	}
	now := o.now()
	wait = clockCheckInterval
	for _, k := range o.state.All() {
		for _, decision := range o.decider.Decide(k, now) {
			r, err := o.records.Decided(k.Name, decision)
			if err != nil {
				return nil, 0, err
			}
			rs = append(rs, r)
			o.report(decision, now)
		}
		if next := k.Next(); !next.IsZero() {
			wait = min(wait, max(time.Millisecond, next.Sub(now)))
		}
	}
	return rs, wait, nil
}

func (o *owner) report(decision any, now time.Time) {
	if o.cfg.Decided == nil {
		return
	}
	late := time.Duration(0)
	if d, is := decision.(*schedule.Start); is && d.Cause == schedule.Due {
		late = now.Sub(d.At)
	}
	o.cfg.Decided(decision, late)
}

// send sends the submissions and cancels that were decided and aren't confirmed. It doesn't wait until they are written: a
// partition without a leader must not delay other schedules. One that isn't written is sent again after resendInterval, or
// askInterval, like any that isn't confirmed.
func (o *owner) send(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, resendInterval)
	defer cancel()
	for _, r := range o.outbox(time.Now()) {
		o.cfg.Producer.SendAsync(within, r, func(_ events.Record, err error) {
			if err != nil && ctx.Err() == nil {
				o.cfg.Log.Warn("the submission or cancellation of a schedule's task was not written; it is sent again", "task", string(r.Key), "error", err)
			}
		})
	}
}

// outbox returns what is to be sent now.
func (o *owner) outbox(now time.Time) (rs []events.Record) {
	ns := o.cfg.Kafka.Namespace
	o.topic.Lock()
	defer o.topic.Unlock()
	o.state.Unended(func(name string, run *schedule.Run) {
		if o.shouldSend(run, now) {
			o.sent[run.Task] = now
			rs = append(rs, o.submission(run))
		}
		if at, sent := o.cancels[run.Task]; run.Cancel && run.Received && (!sent || now.Sub(at) > askInterval) {
			o.cancels[run.Task] = now
			x := &events.Control{Task: run.Task, Command: events.Cancel, By: events.By{Claimed: "schedule " + name, Why: "overlap: cancel_running", RequestID: "overlap " + run.Task}}
			rs = append(rs, x.Record(ns, o.cfg.Source))
		}
	})
	ended := func(task string, _ time.Time) bool { return o.state.Ended(task) }
	maps.DeleteFunc(o.sent, ended)
	maps.DeleteFunc(o.cancels, ended)
	return rs
}

// submission returns the submission of a task. If a scheduler has accepted it before, it only asks for the task's status.
func (o *owner) submission(run *schedule.Run) events.Record {
	r := events.Record{Topic: o.cfg.Kafka.Namespace.Inbox(events.Tasks), Partition: -1, Key: []byte(run.Task), Value: run.Submission,
		Headers: events.CloudHeaders(events.TypeSubmission, o.cfg.Source, run.Task)}
	if run.Received {
		r.Headers = append(r.Headers, events.StatusQueryHeader())
	}
	return r
}

// shouldSend reports whether the submission of a task is to be sent.
func (o *owner) shouldSend(run *schedule.Run, now time.Time) bool {
	at, sent := o.sent[run.Task]
	switch {
	case !run.Received:
		return !sent || now.Sub(at) > resendInterval
	case !sent: // another process has sent it: its notifications may be on their way
		o.sent[run.Task] = now
		return false
	}
	return now.Sub(at) > max(askInterval, o.cfg.Now().Sub(run.Decided)/askAgeShare)
}

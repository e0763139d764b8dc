package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Run follows the log until ctx ends (nil), or until an error that waiting doesn't fix. Before it returns, it saves
// and closes all partitions. A partition whose projection failed isn't saved. If an iteration hangs, Run returns a
// *watchdog.StalledError without waiting for it. Run may be called once; after an error, restart the process.
func (s *Supervisor) Run(ctx context.Context, client Client) error {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		alarm := time.AfterFunc(s.cfg.SweepInterval, client.Wake)
		err := s.loop(sending, client, alarm)
		alarm.Stop()
		stop()
		s.background.Wait()
		s.closeAll()
		ended <- err
	}()
	return s.watchdog.Watch("supervisor", ended)
}

func (s *Supervisor) loop(ctx context.Context, client Client, alarm *time.Timer) error {
	for {
		rs, err := client.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("supervisor: poll %s: %w", s.cfg.Namespace.Events(), err)
		}
		d, err := s.runOnce(ctx, client, rs, time.Now())
		if err != nil {
			return err
		}
		alarm.Reset(d)
	}
}

// ErrClock: the clock was ahead. Timers that were asked for too early are snoozed too long. A new Run asks by the
// right clock.
var ErrClock = errors.New("the clock was ahead")

// runOnce is one iteration of the loop. local is when its records were read. It returns how long the next poll may
// wait.
func (s *Supervisor) runOnce(ctx context.Context, client Client, rs []events.Record, local time.Time) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchdog.Begin()
	defer s.watchdog.End()
	ps := s.updateAssignment(client.Assigned(), local)
	if err := s.apply(rs); err != nil {
		return 0, err
	}
	if err := s.updatePositions(client, ps, local); err != nil {
		return 0, err
	}
	s.handleResults()
	now, local := s.cfg.Clock.Now(), time.Now()
	if ahead := s.latestNow.Sub(now); ahead > WarnSkew {
		return 0, fmt.Errorf("supervisor: %w by %v: recoveries were asked for, and repeated, by that clock", ErrClock, ahead)
	}
	s.latestNow = now
	s.sendDue(ctx, client, ps, now, local)
	s.save(ps, local)
	s.commitOffsets(ctx, client, ps, local)
	s.reportArmed(ps, local)
	s.warnOfSkew(local)
	return sleepAtMost(ps, s.cfg.Clock.Now(), time.Now(), s.cfg.SweepInterval), nil
}

// updateAssignment closes revoked partitions and begins new assignments. It returns the assigned partitions, by
// number.
func (s *Supervisor) updateAssignment(assigned map[int32]uint64, local time.Time) []*partition {
	for id, p := range s.partitions {
		if _, ok := assigned[id]; ok {
			continue
		}
		s.closePartition(p)
	}
	ps := make([]*partition, 0, len(assigned))
	for id, generation := range assigned {
		p, ok := s.partitions[id]
		if !ok {
			continue // Start is opening it: no record of it is read before
		}
		if p.generation != generation {
			p.beginAssignment(generation, local)
			s.listener.Assigned(id)
		}
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *partition) int { return cmp.Compare(a.id, b.id) })
	return ps
}

// closePartition saves and closes a partition.
func (s *Supervisor) closePartition(p *partition) {
	delete(s.partitions, p.id)
	delete(s.committedOffsets, p.id)
	defer p.deadlines.Discard()
	if p.generation != 0 {
		s.listener.Lost(p.id)
	}
	if p.unsaved > 0 {
		p.deadlines.Save()
	}
}

// discardPartition closes a partition whose projection failed. Its state is unknown, so it isn't saved.
func (s *Supervisor) discardPartition(p *partition) {
	delete(s.partitions, p.id)
	p.deadlines.Discard()
	s.listener.Lost(p.id)
}

func (s *Supervisor) apply(rs []events.Record) error {
	for i := range rs {
		r := &rs[i]
		p, ok := s.partitions[r.Partition]
		if !ok {
			continue
		}
		if err := p.deadlines.Apply(r); err != nil {
			s.discardPartition(p)
			return fmt.Errorf("supervisor: apply %s: %w", events.Origin(r), err)
		}
		p.unsaved++
	}
	return nil
}

// warnOfSkew reports a skew of the local clock, at most once per WarnEvery.
func (s *Supervisor) warnOfSkew(local time.Time) {
	skew := time.Until(s.cfg.Clock.Now())
	if skew.Abs() > WarnSkew && (s.warnedAt.IsZero() || local.Sub(s.warnedAt) >= WarnEvery) {
		s.warnedAt = local
		s.listener.Skew(skew)
	}
}

// updatePositions sets which partitions are restored and which are behind. It fails if a projection is ahead of the
// log.
func (s *Supervisor) updatePositions(client Client, ps []*partition, local time.Time) error {
	topic := s.cfg.Namespace.Events()
	for _, p := range ps {
		position, ok2 := client.Position(topic, p.id)
		if ok2 {
			if err := p.deadlines.CheckReadTo(position); err != nil {
				s.discardPartition(p)
				return fmt.Errorf("supervisor: partition %d: %w", p.id, err)
			}
		}
		tail, ok := client.Tail(topic, p.id)
		p.behind = ok && ok2 && position < tail
		if p.restored {
			continue
		}
		high, ok := client.HighWatermark(topic, p.id)
		if p.restored = ok && ok2 && position >= high; p.restored {
			s.listener.Restored(p.id, local.Sub(p.since))
		}
	}
	return nil
}

// handleResults handles the ended sends and commits.
func (s *Supervisor) handleResults() {
	for {
		select {
		case done := <-s.endedSends:
			s.finishBatch(done)
		case err := <-s.endedCommits:
			s.committing = false
			if err != nil {
				clear(s.committedOffsets)
				s.listener.CommitFailed(err)
			}
		default:
			return
		}
	}
}

// finishBatch ends a batch. Written recoveries snooze their timers; after a failure all stay due.
func (s *Supervisor) finishBatch(done batch) {
	p := done.to
	p.sending = false
	if done.err != nil {
		p.pauseAfterFailure(time.Now())
		s.listener.SendFailed(p.id, done.err)
		return
	}
	p.failures = 0
	at := done.at.Add(done.took)
	here := s.partitions[p.id] == p
	if done.forget {
		s.listener.Asked(events.ActionForget)
	}
	for i := range done.recoveries {
		a := &done.recoveries[i]
		if here {
			p.deadlines.Snooze(a.due, at.Add(a.snooze))
		}
		if a.recovery == nil {
			continue
		}
		s.listener.Asked(a.recovery.Action)
		if a.due.Asked == 0 {
			s.listener.Late(at.Sub(a.due.Armed.Timer.Due))
		}
	}
}

// sendDue sends the recoveries of one page of due timers in each partition that may ask. The next page follows
// when this one is written.
func (s *Supervisor) sendDue(ctx context.Context, client Client, ps []*partition, now, local time.Time) {
	for _, p := range ps {
		due, forget := p.due(now, local), p.forgets(now, local, forgetEverySweeps*s.cfg.SweepInterval)
		if len(due) == 0 && !forget {
			continue
		}
		if forget {
			p.forgetAskedAt = local
		}
		p.sending = true
		s.send(ctx, client, batch{to: p, recoveries: decide(due, now), forget: forget, at: now})
	}
}

// send writes a batch concurrently with the loop. A partition that can't be written to delays neither the loop nor
// other partitions.
func (s *Supervisor) send(ctx context.Context, client Client, batch batch) {
	rs := make([]events.Record, 0, len(batch.recoveries)+1)
	for i := range batch.recoveries {
		a := &batch.recoveries[i]
		if a.recovery == nil {
			t := &a.due.Armed
			s.listener.Unreadable(batch.to.id, fmt.Errorf("task %q: timer %d, step %q: its policy (timer %q, on_error %q) calls for an action that this build doesn't know; run the newest build",
				a.due.Task, t.Timer.Seq, t.Slot.Step, t.Policy.Timer, t.Policy.OnError))
			continue
		}
		// The inboxes have the same partitions as the events.
		rs = append(rs, a.recovery.Record(s.cfg.Namespace, s.cfg.Source, batch.to.id))
	}
	if batch.forget {
		forget := events.Recovery{Action: events.ActionForget}
		rs = append(rs, forget.Record(s.cfg.Namespace, s.cfg.Source, batch.to.id))
	}
	s.background.Go(func() {
		if len(rs) > 0 {
			started := time.Now()
			batch.err = s.cfg.Outbox.Send(ctx, rs...)
			batch.took = time.Since(started)
		}
		select {
		case s.endedSends <- batch:
			client.Wake()
		case <-ctx.Done():
		}
	})
}

func (s *Supervisor) save(ps []*partition, local time.Time) {
	for _, p := range ps {
		if !p.saveDue(local) {
			continue
		}
		p.deadlines.Save()
		p.unsaved, p.savedAt = 0, local
	}
}

// commitOffsets commits changed positions as the group's offsets, concurrently with the loop.
func (s *Supervisor) commitOffsets(ctx context.Context, client Client, ps []*partition, local time.Time) {
	if s.committing || local.Sub(s.committedAt) < CommitEvery {
		return
	}
	s.committedAt = local
	moved := map[int32]int64{}
	for _, p := range ps {
		position, ok := client.Position(s.cfg.Namespace.Events(), p.id)
		if before, known := s.committedOffsets[p.id]; ok && (!known || before != position) {
			moved[p.id], s.committedOffsets[p.id] = position, position
		}
	}
	if len(moved) == 0 {
		return
	}
	s.committing = true
	s.background.Go(func() { s.endedCommits <- client.Commit(ctx, moved) })
}

func (s *Supervisor) reportArmed(ps []*partition, local time.Time) {
	if local.Sub(s.countedAt) < s.cfg.SweepInterval {
		return
	}
	s.countedAt = local
	for _, p := range ps {
		s.listener.Armed(p.id, p.deadlines.Armed())
	}
}

// closeAll saves and closes all partitions.
func (s *Supervisor) closeAll() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.cancelClosing()
	s.starts.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchdog.Begin()
	defer s.watchdog.End()
	for _, p := range s.partitions {
		s.closePartition(p)
	}
}

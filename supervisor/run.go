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

// Run follows the log until ctx ends, and then returns nil, or until something
// fails that no waiting heals. Before it returns, what was applied is saved,
// except of a partition whose projection failed, and all are closed. A turn that
// hangs is not waited for: *turns.StalledError. A supervisor runs once; after an error,
// start the process again.
func (s *Supervisor) Run(ctx context.Context, log Log) error {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		alarm := time.AfterFunc(s.cfg.SweepInterval, log.Wake)
		err := s.loop(sending, log, alarm)
		alarm.Stop()
		stop()
		s.background.Wait()
		ended <- errors.Join(err, s.close())
	}()
	return s.turns.Watch("supervisor", ended)
}

func (s *Supervisor) loop(ctx context.Context, log Log, alarm *time.Timer) error {
	for {
		rs, err := log.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("supervisor: poll %s: %w", s.cfg.Namespace.Events(), err)
		}
		d, err := s.step(ctx, log, rs, time.Now())
		if err != nil {
			return err
		}
		alarm.Reset(d)
	}
}

// ErrClock: the clock was found to have been ahead. A timer that was asked for
// then would be asked for again only when that time comes. Run again: what is
// armed is asked for by the right time.
var ErrClock = errors.New("the clock was ahead")

// step is one turn of the loop; local is when its records were read. It returns
// how long the next poll may wait.
func (s *Supervisor) step(ctx context.Context, log Log, rs []events.Record, local time.Time) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Begin()
	defer s.turns.End()
	ps, err := s.assign(log.Assigned(), local)
	if err != nil {
		return 0, err
	}
	if err := s.apply(rs); err != nil {
		return 0, err
	}
	if err := s.reach(log, ps, local); err != nil {
		return 0, err
	}
	s.collect()
	now, local := s.cfg.Clock.Now(), time.Now()
	if ahead := s.latest.Sub(now); ahead > WarnSkew {
		return 0, fmt.Errorf("supervisor: %w by %v: what was asked for, and when to ask again, went by it", ErrClock, ahead)
	}
	s.latest = now
	s.sweep(ctx, log, ps, now, local)
	if err := s.save(ps, local); err != nil {
		return 0, err
	}
	s.commit(ctx, log, ps, local)
	s.count(ps, local)
	s.warn(local)
	return sleep(ps, s.cfg.Clock.Now(), time.Now(), s.cfg.SweepInterval), nil
}

// assign drops the partitions that went and begins those that came. It returns
// what is held then, by number.
func (s *Supervisor) assign(assigned map[int32]uint64, local time.Time) ([]*partition, error) {
	for id, p := range s.held {
		if _, ok := assigned[id]; ok {
			continue
		}
		if err := s.drop(p); err != nil {
			return nil, err
		}
	}
	ps := make([]*partition, 0, len(assigned))
	for id, generation := range assigned {
		p, ok := s.held[id]
		if !ok {
			continue // it is being opened: nothing of it is read before Start has returned
		}
		if p.generation != generation {
			p.reassigned(generation, local)
			s.listen.Assigned(id)
		}
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *partition) int { return cmp.Compare(a.id, b.id) })
	return ps, nil
}

// drop lets a partition go.
func (s *Supervisor) drop(p *partition) error {
	delete(s.held, p.id)
	delete(s.committed, p.id)
	defer p.deadlines.Discard()
	if p.generation != 0 {
		s.listen.Lost(p.id)
	}
	if p.unsaved == 0 {
		return nil
	}
	if err := p.deadlines.Save(); err != nil {
		return fmt.Errorf("supervisor: save deadlines of partition %d, which went: %w", p.id, err)
	}
	return nil
}

// abandon lets go of a partition whose projection failed. What it holds is
// unknown, so it isn't saved.
func (s *Supervisor) abandon(p *partition) {
	delete(s.held, p.id)
	p.deadlines.Discard()
	s.listen.Lost(p.id)
}

func (s *Supervisor) apply(rs []events.Record) error {
	for i := range rs {
		r := &rs[i]
		p, ok := s.held[r.Partition]
		if !ok {
			continue
		}
		if err := p.deadlines.Apply(r); err != nil {
			s.abandon(p)
			return fmt.Errorf("supervisor: apply %s: %w", events.Origin(r), err)
		}
		p.unsaved++
	}
	return nil
}

// warn tells, now and then, of a local clock that is far off.
func (s *Supervisor) warn(local time.Time) {
	skew := time.Until(s.cfg.Clock.Now())
	if skew.Abs() > WarnSkew && (s.warnedAt.IsZero() || local.Sub(s.warnedAt) >= WarnInterval) {
		s.warnedAt = local
		s.listen.Skew(skew)
	}
}

// reach finds the partitions that have been read far enough to ask, and those
// that are behind. It fails where the projection of one is ahead of the log.
func (s *Supervisor) reach(log Log, ps []*partition, local time.Time) error {
	topic := s.cfg.Namespace.Events()
	for _, p := range ps {
		position, ok2 := log.Position(topic, p.id)
		if ok2 {
			if err := p.deadlines.CheckReadTo(position); err != nil {
				s.abandon(p)
				return fmt.Errorf("supervisor: partition %d: %w", p.id, err)
			}
		}
		tail, ok := log.Tail(topic, p.id)
		p.behind = ok && ok2 && position < tail
		if p.restored {
			continue
		}
		high, ok := log.HighWatermark(topic, p.id)
		if p.restored = ok && ok2 && position >= high; p.restored {
			s.listen.Restored(p.id, local.Sub(p.since))
		}
	}
	return nil
}

// collect takes in what has become of sends and commits.
func (s *Supervisor) collect() {
	for {
		select {
		case done := <-s.sends:
			s.settle(done)
		case err := <-s.commits:
			s.committing = false
			if err != nil {
				clear(s.committed)
				s.listen.CommitFailed(err)
			}
		default:
			return
		}
	}
}

// settle ends a batch: what was written isn't due again for a while, what
// wasn't stays due.
func (s *Supervisor) settle(done sent) {
	p := done.to
	p.sending = false
	if done.err != nil {
		p.failed(time.Now())
		s.listen.SendFailed(p.id, done.err)
		return
	}
	p.failures = 0
	at := done.at.Add(done.took)
	here := s.held[p.id] == p
	for i := range done.asks {
		a := &done.asks[i]
		if here {
			p.deadlines.Snooze(a.due, at.Add(a.pause))
		}
		if a.recovery == nil {
			continue
		}
		s.listen.Asked(a.recovery.Action)
		if a.due.Asked == 0 {
			s.listen.Late(at.Sub(a.due.Armed.Timer.Due))
		}
	}
}

// sweep asks about one page of what is due in each partition that may ask. The
// next page of a burst comes when the first is written, and with it the turn of
// whatever has become due elsewhere.
func (s *Supervisor) sweep(ctx context.Context, log Log, ps []*partition, now, local time.Time) {
	for _, p := range ps {
		due := p.due(now, local)
		if len(due) == 0 {
			continue
		}
		p.sending = true
		s.send(ctx, log, sent{to: p, asks: decide(due, now), at: now})
	}
}

// send writes a batch beside the loop, so that a partition that can't be
// written to holds up neither the log nor the other partitions.
func (s *Supervisor) send(ctx context.Context, log Log, batch sent) {
	rs := make([]events.Record, 0, len(batch.asks))
	for i := range batch.asks {
		a := &batch.asks[i]
		if a.recovery == nil {
			t := &a.due.Armed
			s.listen.Poison(batch.to.id, fmt.Errorf("task %q: timer %d, step %q: its policy (timer %q, on_error %q) calls for nothing that this build knows; run the newest",
				a.due.Task, t.Timer.Seq, t.Slot.Step, t.Policy.Timer, t.Policy.OnError))
			continue
		}
		// The same partition number as the events: the inboxes are
		// co-partitioned with them.
		rs = append(rs, a.recovery.Record(s.cfg.Namespace, s.cfg.Source, batch.to.id))
	}
	s.background.Go(func() {
		if len(rs) > 0 {
			started := time.Now()
			batch.err = s.cfg.Outbox.Send(ctx, rs...)
			batch.took = time.Since(started)
		}
		select {
		case s.sends <- batch:
			log.Wake()
		case <-ctx.Done():
		}
	})
}

func (s *Supervisor) save(ps []*partition, local time.Time) error {
	for _, p := range ps {
		if !p.saveDue(local) {
			continue
		}
		if err := p.deadlines.Save(); err != nil {
			s.abandon(p)
			return fmt.Errorf("supervisor: save deadlines of partition %d: %w", p.id, err)
		}
		p.unsaved, p.savedAt = 0, local
	}
	return nil
}

// commit stores the group's offsets beside the loop, where they have moved.
func (s *Supervisor) commit(ctx context.Context, log Log, ps []*partition, local time.Time) {
	if s.committing || local.Sub(s.committedAt) < CommitInterval {
		return
	}
	s.committedAt = local
	moved := map[int32]int64{}
	for _, p := range ps {
		position, ok := log.Position(s.cfg.Namespace.Events(), p.id)
		if before, known := s.committed[p.id]; ok && (!known || before != position) {
			moved[p.id], s.committed[p.id] = position, position
		}
	}
	if len(moved) == 0 {
		return
	}
	s.committing = true
	s.background.Go(func() { s.commits <- log.Commit(ctx, moved) })
}

func (s *Supervisor) count(ps []*partition, local time.Time) {
	if local.Sub(s.countedAt) < s.cfg.SweepInterval {
		return
	}
	s.countedAt = local
	for _, p := range ps {
		s.listen.Armed(p.id, p.deadlines.Armed())
	}
}

// close saves and lets go of everything, and returns all that failed.
func (s *Supervisor) close() error {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.end()
	s.starts.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Begin()
	defer s.turns.End()
	var faults []error
	for _, p := range s.held {
		faults = append(faults, s.drop(p))
	}
	return errors.Join(faults...)
}

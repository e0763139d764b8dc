package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Start says where to begin reading a partition that was assigned: after what
// its projection holds. The record before it is to come as well. ok is true whenever err is nil, for an empty projection
// too: the group's offsets are for show, and a reader that began there without
// the state would never know of the timers below. It opens the projection, which takes the
// longer the more timers are armed, and where that is empty or late takes the snapshot of the
// partition's scheduler. It may be called from any goroutine, also beside Run, which
// goes on with other partitions meanwhile.
func (s *Supervisor) Start(ctx context.Context, topic string, p int32) (offset int64, ok bool, err error) {
	if topic != s.cfg.Namespace.Events() {
		return 0, false, fmt.Errorf("supervisor: start in %s: only %s is followed; check the namespace", topic, s.cfg.Namespace.Events())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	done, err := s.lockOpening(ctx, p)
	if err != nil {
		return 0, false, err
	}
	defer done()
	part, err := s.openPartition(ctx, p)
	if err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, false, errRunReturned
	}
	part.deadlines.Rereads()
	return part.deadlines.Next(), true, nil
}

// errRunReturned is what a log hears that goes on after its supervisor ended.
var errRunReturned = errors.New("supervisor: start after Run has returned; close the log as well")

// begin waits until nobody else opens the partition. done lets the next one.
func (s *Supervisor) lockOpening(ctx context.Context, p int32) (done func(), err error) {
	for {
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return nil, errRunReturned
		}
		before, busy := s.openings[p]
		if !busy {
			mine := make(chan struct{})
			s.openings[p] = mine
			s.starts.Add(1)
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.openings, p)
				s.mu.Unlock()
				close(mine)
				s.starts.Done()
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// hold returns the partition, opened if it wasn't. Nobody else opens it.
func (s *Supervisor) openPartition(ctx context.Context, p int32) (*partition, error) {
	s.mu.Lock()
	part, ok := s.partitions[p]
	s.mu.Unlock()
	if ok {
		// One that was lost and came back before the loop looked is still held:
		// what it has applied is a prefix of the log and goes on from there.
		return part, nil
	}
	d, err := s.cfg.Open(p)
	if err != nil {
		return nil, fmt.Errorf("supervisor: open deadlines of partition %d: %w", p, err)
	}
	if err := s.restore(ctx, p, d); err != nil {
		d.Discard()
		return nil, fmt.Errorf("supervisor: restore deadlines of partition %d: %w", p, err)
	}
	part = &partition{id: p, deadlines: d, savedAt: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions[p] = part // close waits for Start, and drops it
	return part, nil
}

// snapshotReadMax bounds the first look for a snapshot: while no broker leads its partition, timers
// go on by the log. It bounds a look at the log, too.
const snapshotReadMax = 10 * time.Second

// restore takes the newest snapshot of a partition, if the projection is empty or so late that this is nearer to
// the end of the log. What is wrong with a snapshot is told, and the log read instead: it has everything.
func (s *Supervisor) restore(ctx context.Context, p int32, d Deadlines) error {
	if s.cfg.History == nil {
		return nil
	}
	r, err := s.findSnapshot(ctx, p, d.Next())
	if err == nil && r == nil {
		return nil
	}
	if err == nil {
		err = d.TakeSnapshot(r)
	}
	var final interface{ Permanent() bool }
	switch {
	case err == nil:
		s.listener.Snapshot(p, d.Armed())
		return nil
	case errors.Is(err, events.ErrSnapshot), errors.As(err, &final) && final.Permanent():
		s.listener.SnapshotRefused(p, err)
		return nil
	}
	return err
}

// snapshot reads the newest snapshot of a partition, so far as it holds open tasks; nil: there is none that is
// nearer to the end of the log than next.
func (s *Supervisor) findSnapshot(ctx context.Context, p int32, next int64) (*events.SnapshotReader, error) {
	for n := int64(events.SnapshotLook); ; n *= events.SnapshotLookFactor {
		r := &events.SnapshotReader{}
		all, err := s.readLast(ctx, p, n, r)
		if err != nil {
			return nil, err
		}
		m, err := r.Snapshot()
		switch {
		case errors.Is(err, events.ErrNoSnapshot) && all:
			return nil, nil
		case errors.Is(err, events.ErrNoSnapshot):
			continue
		case err != nil:
			return nil, err
		case !m.ShorterThan(next, int64(m.Tasks)):
			return nil, nil
		}
		if _, err = r.Counted(events.ChunkOpen, m.Open); err != nil && !all {
			continue // TakeSnapshot says what is missing in all of it
		}
		return r, s.boundedLook(ctx, func(ctx context.Context) error { return s.checkSnapshotInLog(ctx, p, m) })
	}
}

func (s *Supervisor) readLast(ctx context.Context, p int32, n int64, r *events.SnapshotReader) (all bool, err error) {
	read := func(ctx context.Context) error {
		all, err = s.cfg.History.ReadLast(ctx, s.cfg.Namespace.Snapshots(), p, n, func(rs []events.Record) error {
			for i := range rs {
				r.TakeOpen(&rs[i])
			}
			return nil
		})
		return err
	}
	if n > events.SnapshotLook {
		err = read(ctx)
	} else {
		err = s.boundedLook(ctx, read)
	}
	return all, err
}

// within bounds a look. Where the brokers say nothing so long the snapshot can't be used.
func (s *Supervisor) boundedLook(ctx context.Context, look func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, snapshotReadMax)
	defer stop()
	err := look(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: the brokers didn't say within %s what there is: %w", events.ErrSnapshot, snapshotReadMax, err)
	}
	return err
}

// checkSnapshotInLog holds a snapshot against the log: the last event that it reflects is there, and no other in its
// place, and the log goes as far.
func (s *Supervisor) checkSnapshotInLog(ctx context.Context, p int32, m *events.Snapshot) error {
	last, _, err := s.firstEvent(ctx, p, m.Next-1)
	if err != nil {
		return err
	}
	same := last != nil && last.offset == m.Next-1 && (last.at.IsZero() || last.at.Equal(m.State.At))
	if !same {
		return fmt.Errorf("%w: the event before offset %d, of %s, is another in this log or isn't there", events.ErrSnapshot, m.Next, m.State.At.Format(events.TimeLayout))
	}
	if m.Until <= m.Next {
		return nil
	}
	last, end, err := s.firstEvent(ctx, p, m.Until-1)
	if err == nil && (last == nil || last.offset != m.Until-1) {
		err = fmt.Errorf("%w: it is of events up to offset %d, and the log, which ends at %d, has none right before", events.ErrSnapshot, m.Until, end)
	}
	return err
}

// place is where an event stands in the log.
type eventPosition struct {
	offset int64
	at     time.Time // zero: it can't be read
}

// errFound ends a read that has seen enough.
var errFound = errors.New("seen")

// first finds the first event at an offset or above; nil: there is none below end.
func (s *Supervisor) firstEvent(ctx context.Context, p int32, from int64) (one *eventPosition, end int64, err error) {
	end, err = s.cfg.History.Read(ctx, s.cfg.Namespace.Events(), p, from, func(rs []events.Record) error {
		one = &eventPosition{offset: rs[0].Offset}
		if e, err := events.DecodeEnvelope(&rs[0]); err == nil {
			one.at = e.At
		}
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return one, end, err
}

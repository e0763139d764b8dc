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
	done, err := s.begin(ctx, p)
	if err != nil {
		return 0, false, err
	}
	defer done()
	part, err := s.hold(ctx, p)
	if err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, false, errEnded
	}
	part.deadlines.ExpectLastEvent()
	return part.deadlines.Next(), true, nil
}

// errEnded is what a log hears that goes on after its supervisor ended.
var errEnded = errors.New("supervisor: start after Run has returned; close the log as well")

// begin waits until nobody else opens the partition. done lets the next one.
func (s *Supervisor) begin(ctx context.Context, p int32) (done func(), err error) {
	for {
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return nil, errEnded
		}
		before, busy := s.opening[p]
		if !busy {
			mine := make(chan struct{})
			s.opening[p] = mine
			s.starts.Add(1)
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.opening, p)
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
func (s *Supervisor) hold(ctx context.Context, p int32) (*partition, error) {
	s.mu.Lock()
	part, ok := s.held[p]
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
	s.held[p] = part // close waits for Start, and drops it
	return part, nil
}

// lookWithin bounds the first look for a snapshot: while no broker leads its partition, timers
// go on by the log. It bounds a look at the log, too.
const lookWithin = 10 * time.Second

// restore takes the newest snapshot of a partition, if the projection is empty or so late that this is nearer to
// the end of the log. What is wrong with a snapshot is told, and the log read instead: it has everything.
func (s *Supervisor) restore(ctx context.Context, p int32, d Deadlines) error {
	if s.cfg.History == nil {
		return nil
	}
	r, err := s.snapshot(ctx, p, d.Next())
	if err == nil && r == nil {
		return nil
	}
	if err == nil {
		err = d.LoadSnapshot(r)
	}
	var final interface{ Permanent() bool }
	switch {
	case err == nil:
		s.listen.Snapshot(p, d.Armed())
		return nil
	case errors.Is(err, events.ErrSnapshot), errors.As(err, &final) && final.Permanent():
		s.listen.SnapshotRefused(p, err)
		return nil
	}
	return err
}

// snapshot reads the newest snapshot of a partition, so far as it holds open tasks; nil: there is none that is
// nearer to the end of the log than next.
func (s *Supervisor) snapshot(ctx context.Context, p int32, next int64) (*events.SnapshotReader, error) {
	for n := int64(events.SnapshotReadBack); ; n *= events.SnapshotReadBackFactor {
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
		if _, err = r.ChunkValues(events.ChunkOpen, m.Open); err != nil && !all {
			continue // LoadSnapshot says what is missing in all of it
		}
		return r, s.within(ctx, func(ctx context.Context) error { return s.ofThisLog(ctx, p, m) })
	}
}

func (s *Supervisor) readLast(ctx context.Context, p int32, n int64, r *events.SnapshotReader) (all bool, err error) {
	read := func(ctx context.Context) error {
		all, err = s.cfg.History.ReadLast(ctx, s.cfg.Namespace.Snapshots(), p, n, func(rs []events.Record) error {
			for i := range rs {
				r.AddOpen(&rs[i])
			}
			return nil
		})
		return err
	}
	if n > events.SnapshotReadBack {
		err = read(ctx)
	} else {
		err = s.within(ctx, read)
	}
	return all, err
}

// within bounds a look. Where the brokers say nothing so long the snapshot can't be used.
func (s *Supervisor) within(ctx context.Context, look func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, lookWithin)
	defer stop()
	err := look(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: the brokers didn't say within %s what there is: %w", events.ErrSnapshot, lookWithin, err)
	}
	return err
}

// ofThisLog holds a snapshot against the log: the last event that it reflects is there, and no other in its
// place, and the log goes as far.
func (s *Supervisor) ofThisLog(ctx context.Context, p int32, m *events.Snapshot) error {
	last, _, err := s.first(ctx, p, m.Next-1)
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
	last, end, err := s.first(ctx, p, m.Until-1)
	if err == nil && (last == nil || last.offset != m.Until-1) {
		err = fmt.Errorf("%w: it is of events up to offset %d, and the log, which ends at %d, has none right before", events.ErrSnapshot, m.Until, end)
	}
	return err
}

// place is where an event stands in the log.
type place struct {
	offset int64
	at     time.Time // zero: it can't be read
}

// errSeen ends a read that has seen enough.
var errSeen = errors.New("seen")

// first finds the first event at an offset or above; nil: there is none below end.
func (s *Supervisor) first(ctx context.Context, p int32, from int64) (one *place, end int64, err error) {
	end, err = s.cfg.History.Read(ctx, s.cfg.Namespace.Events(), p, from, func(rs []events.Record) error {
		one = &place{offset: rs[0].Offset}
		if e, err := events.DecodeEnvelope(&rs[0]); err == nil {
			one.at = e.At
		}
		return errSeen
	})
	if errors.Is(err, errSeen) {
		err = nil
	}
	return one, end, err
}

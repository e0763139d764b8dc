package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Start opens an assigned partition and returns the offset to read from: the end of its projection. The reader must
// also return the record before it. ok is true whenever err is nil, even for an empty projection: a reader that began
// at the group's offset would miss the timers below it. The time to open grows with the number of armed timers. If
// the projection is empty or late, Start takes the snapshot of the partition's scheduler. Any goroutine may call it,
// concurrently with Run, which continues with other partitions.
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
	part.deadlines.ExpectLastEvent()
	return part.deadlines.Next(), true, nil
}

// errRunReturned is the error of a Start after Run has returned.
var errRunReturned = errors.New("supervisor: start after Run has returned; close the log, too")

// lockOpening waits until no other call opens the partition. done ends that.
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

// openPartition returns the partition, and opens it if necessary. The caller has lockOpening.
func (s *Supervisor) openPartition(ctx context.Context, p int32) (*partition, error) {
	s.mu.Lock()
	part, ok := s.partitions[p]
	s.mu.Unlock()
	if ok {
		// The partition was revoked and assigned again between two iterations. Its state is a prefix of the log and
		// continues from there.
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
	s.partitions[p] = part // closeAll waits for Start, and closes it
	return part, nil
}

// snapshotReadMax is the timeout of the first read of a snapshot, and of a check of the log. While the partition has
// no leader, timers are restored from the log.
const snapshotReadMax = 10 * time.Second

// restore takes the newest snapshot of a partition if the projection is empty, or so late that the snapshot is nearer
// to the end of the log. If the snapshot has a fault, it is reported and the log is read instead.
func (s *Supervisor) restore(ctx context.Context, p int32, d Deadlines) error {
	if s.cfg.History == nil {
		return nil
	}
	r, err := s.findSnapshot(ctx, p, d.Next())
	if err == nil && r == nil {
		return nil
	}
	if err == nil {
		err = d.LoadSnapshot(r)
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

// findSnapshot reads the open tasks of the newest snapshot; nil: none is nearer to the end of the log than next.
func (s *Supervisor) findSnapshot(ctx context.Context, p int32, next int64) (*events.SnapshotReader, error) {
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
			continue // LoadSnapshot reports what is missing if nothing more can be read
		}
		return r, s.boundedLook(ctx, func(ctx context.Context) error { return s.checkSnapshotInLog(ctx, p, m) })
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
		err = s.boundedLook(ctx, read)
	}
	return all, err
}

// boundedLook bounds a read. After the timeout the snapshot can't be used.
func (s *Supervisor) boundedLook(ctx context.Context, look func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, snapshotReadMax)
	defer stop()
	err := look(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: the brokers didn't answer within %s: %w", events.ErrSnapshot, snapshotReadMax, err)
	}
	return err
}

// checkSnapshotInLog checks a snapshot against the log: the log has the last events that the snapshot reflects, with the
// same times.
func (s *Supervisor) checkSnapshotInLog(ctx context.Context, p int32, m *events.Snapshot) error {
	last, _, err := s.firstEvent(ctx, p, m.Next-1)
	if err != nil {
		return err
	}
	same := last != nil && last.offset == m.Next-1 && (last.at.IsZero() || last.at.Equal(m.State.At))
	if !same {
		return fmt.Errorf("%w: the event before offset %d, of %s, differs in this log or is missing", events.ErrSnapshot, m.Next, m.State.At.Format(events.TimeLayout))
	}
	if m.Until <= m.Next {
		return nil
	}
	last, end, err := s.firstEvent(ctx, p, m.Until-1)
	switch {
	case err != nil:
		return err
	case last == nil || last.offset != m.Until-1:
		return fmt.Errorf("%w: it reflects events up to offset %d, but the log, which ends at %d, has no event right before that", events.ErrSnapshot, m.Until, end)
	case !m.UntilAt.IsZero() && !last.at.IsZero() && !last.at.Equal(m.UntilAt):
		return fmt.Errorf("%w: the event before offset %d, of %s, differs in this log", events.ErrSnapshot, m.Until, m.UntilAt.Format(events.TimeLayout))
	}
	return nil
}

// eventPosition is an event's offset and time.
type eventPosition struct {
	offset int64
	at     time.Time // zero: the event is unreadable
}

// errFound ends a read early.
var errFound = errors.New("seen")

// firstEvent finds the first event at or above an offset; nil: there is none below end.
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

package schedulerun

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/schedule"
)

// FindSnapshot returns the end of the last snapshot in the topic of schedules; nil: there is none. It reads back from the end of
// the topic, by time. A snapshot that begins after its own end is of another log: the topic is a copy with lower offsets.
func FindSnapshot(ctx context.Context, r *logreader.Restorer, topic string) (last *schedule.Snapshot, err error) {
	now := time.Now()
	start, _, err := r.OffsetsAt(ctx, topic, 0, now)
	if err != nil {
		return nil, err
	}
	for _, window := range schedule.SnapshotWindows {
		in := logreader.Range{ReuseBuffers: true}
		if window > 0 {
			in.Since = now.Add(-window)
		}
		_, err := r.ReadAll(ctx, topic, in, func(rs []events.Record) error {
			for i := range rs {
				if end := schedule.SnapshotEnd(&rs[i]); end != nil && end.From >= start && end.From <= rs[i].Offset {
					last = end
				}
			}
			return nil
		}, nil)
		if last != nil || err != nil {
			return last, err
		}
	}
	return nil, nil
}

// start returns where to begin to read the topic of schedules.
func (s *Service) start(ctx context.Context) (offset int64, found bool, err error) {
	r, err := logreader.OpenRestorer(s.cfg.Kafka, nil)
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	end, err := FindSnapshot(ctx, r, s.cfg.Kafka.Namespace.Schedules())
	if err != nil || end == nil {
		return 0, false, err
	}
	s.topic.Lock()
	defer s.topic.Unlock()
	s.state.Await(*end)
	return end.From, true, nil
}

// writeSnapshot writes a snapshot if one is due.
func (o *owner) writeSnapshot(ctx context.Context) error {
	rs, err := o.snapshot()
	if err == nil && len(rs) > 0 {
		err = o.topic.Write(ctx, rs...)
	}
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

func (o *owner) snapshot() ([]events.Record, error) {
	o.topic.Lock()
	defer o.topic.Unlock()
	if err := o.current(); err != nil || !o.state.SnapshotDue(o.now()) {
		return nil, err
	}
	return o.records.Snapshot(o.state, uuid.NewString(), o.topic.Position())
}

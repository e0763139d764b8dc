package onkafka

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// readTopic reads a topic from a position on. It skips partitions without a leader.
func (l *Reader) readTopic(ctx context.Context, topic string, from console.TopicPosition, fn func(*events.Record)) (reached console.TopicPosition, err error) {
	reached = console.TopicPosition{Since: from.Since, TopicID: from.TopicID, Offsets: maps.Clone(from.Offsets)}
	if from.Offsets != nil {
		ends, err := l.Admin.KnownEndOffsets(ctx, topic)
		if err != nil {
			return from, err
		}
		if len(from.Leaderless) == 0 && maps.Equal(ends, from.Offsets) {
			return reached, nil
		}
		for p, next := range from.Offsets {
			if end, known := ends[p]; known && end < next {
				return from, fmt.Errorf("%w: %s ends at offset %d of partition %d, and was read up to %d", console.ErrOtherTopic, topic, end, p, next)
			}
		}
	}
	// Before the read: a position in the topic of an id must not be beyond what was read of it.
	if reached.TopicID, err = l.Admin.TopicID(ctx, topic); err != nil {
		return from, err
	}
	if from.Offsets != nil && from.TopicID != reached.TopicID {
		return from, fmt.Errorf("%w: %s has the id %s, and had %s", console.ErrOtherTopic, topic, reached.TopicID, from.TopicID)
	}
	in := logreader.Range{Since: from.Since, Offsets: from.Offsets, Unavailable: func(p int32) { reached.Leaderless = append(reached.Leaderless, p) },
		Trimmed: func(int32, int64) {}} // what was deleted in the meantime is of no interest
	next, err := l.Restorer.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	if reached.Offsets == nil {
		reached.Offsets = map[int32]int64{}
	}
	maps.Copy(reached.Offsets, next)
	slices.Sort(reached.Leaderless)
	return reached, err
}

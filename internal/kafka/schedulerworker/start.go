package schedulerworker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// Start is where a topic is read from if the group has no position in it.
type Start struct {
	Latest bool
	At     time.Time // the first record with this timestamp or a later one; zero: none
}

// PlaceStart gives partition p, which must be paused, the position that start names, unless the group has one. The
// position is committed, so it doesn't move if this process ends before it has read a record. placed reports whether it
// had none.
func (w *Worker) PlaceStart(ctx context.Context, p int32, start Start) (placed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.flushMax())
	defer cancel()
	offsets, err := w.missingPositions(ctx, p)
	if err == nil && len(offsets) > 0 {
		if err = w.resolveStart(ctx, offsets, start); err == nil {
			err = w.commitPlain(ctx, offsets)
		}
	}
	if err != nil {
		return false, fmt.Errorf("worker %q: set the start position of partition %d: %w", w.cfg.Owner, p, kafka.FinalError(err))
	}
	if len(offsets) == 0 {
		return false, nil
	}
	w.inCommit.Lock() // the end of a transaction sets offsets, too
	defer w.inCommit.Unlock()
	w.session.Client().SetOffsets(offsets)
	return true, nil
}

// missingPositions returns p, and the partitions that were added to it, as far as the group has no position there.
func (w *Worker) missingPositions(ctx context.Context, p int32) (map[string]map[int32]kgo.EpochOffset, error) {
	missing, err := w.withoutCommit(ctx, p)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	// A transaction of the previous owner that is still open may have the first position.
	return w.withoutCommit(kadm.RequireStable(ctx), p)
}

func (w *Worker) withoutCommit(ctx context.Context, p int32) (map[string]map[int32]kgo.EpochOffset, error) {
	committed, err := kadm.NewClient(w.client()).FetchOffsetsForTopics(ctx, w.cfg.Group, w.cfg.Topics...)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return nil, err
	}
	missing := map[string]map[int32]kgo.EpochOffset{}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.At >= 0 || w.home(o.Partition) != p {
			return
		}
		if missing[o.Topic] == nil {
			missing[o.Topic] = map[int32]kgo.EpochOffset{}
		}
		missing[o.Topic][o.Partition] = kgo.EpochOffset{Epoch: -1}
	})
	return missing, nil
}

// resolveStart sets the offsets that a start has. A partition that was added to its topic begins at its start: all of its
// records are newer than the intake.
func (w *Worker) resolveStart(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset, start Start) error {
	admin := kadm.NewClient(w.client())
	for topic, ps := range offsets {
		listed, err := admin.ListStartOffsets(ctx, topic)
		switch {
		case err != nil:
		case start.Latest:
			err = replaceListed(listed, func() (kadm.ListedOffsets, error) { return admin.ListEndOffsets(ctx, topic) }, w.cfg.Partitions)
		case !start.At.IsZero():
			err = replaceListed(listed, func() (kadm.ListedOffsets, error) {
				return admin.ListOffsetsAfterMilli(ctx, start.At.UnixMilli(), topic)
			}, w.cfg.Partitions)
		}
		if err != nil {
			return err
		}
		for p := range ps {
			o, ok := listed.Lookup(topic, p)
			if !ok {
				return fmt.Errorf("no broker returned the start offset of %s/%d", topic, p)
			}
			if o.Err != nil {
				return fmt.Errorf("%s/%d: %w", topic, p, o.Err)
			}
			ps[p] = kgo.EpochOffset{Epoch: -1, Offset: o.Offset}
		}
	}
	return nil
}

// replaceListed replaces the offsets of the planned partitions.
func replaceListed(listed kadm.ListedOffsets, list func() (kadm.ListedOffsets, error), partitions int32) error {
	others, err := list()
	if err != nil {
		return err
	}
	others.Each(func(o kadm.ListedOffset) {
		if o.Partition < partitions {
			listed[o.Topic][o.Partition] = o
		}
	})
	return nil
}

// acceptReset returns a commit, as if a worker had made it if an operator may.
func (w *Worker) acceptReset(c groupmember.PositionCommit, topic string) groupmember.PositionCommit {
	if id := w.positions.ids[topic]; w.cfg.AcceptsResets && c.Offset >= 0 && id != "" && !groupmember.IsPositionMark(c.Metadata) {
		c.Metadata = groupmember.FormatPositionMark(id, -1)
	}
	return c
}

package instance

import (
	"context"
	"errors"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/projections"
)

// StartIndex runs the index until ctx ends. observe, if not nil, receives all records that the index reads, from
// the start of an empty store on. It may retain them.
func (n *Instance) StartIndex(ctx context.Context, observe func([]events.Record)) (*index.Index, error) {
	store, err := n.openStore(ctx, projections.ViewTimelines)
	if err != nil {
		return nil, err
	}
	x := index.New(store, func(p int32, offsets int64) {
		n.metrics.indexBehind.WithLabelValues(strconv.Itoa(int(p))).Set(float64(offsets))
	})
	n.metrics.health.addMember("index", "index", x.Restored)
	n.metrics.health.watchLoop("index", x.Loop())
	n.roles.Go(func() error {
		err := n.runRestarting(ctx, "index", func(ctx context.Context) error { return n.runIndex(ctx, x, observe) }, x.Wipe)
		return errors.Join(err, closeStore(store))
	})
	return x, nil
}

// runIndex follows the events of all partitions. It joins no group.
func (n *Instance) runIndex(ctx context.Context, x *index.Index, observe func([]events.Record)) error {
	topic, health := n.Kafka.Namespace.Events(), n.metrics.health
	follower, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: n.Kafka, Topics: []string{topic}, Partitions: n.Partitions, Start: x.StartOffset, IncludePrevious: true,
		FetchMaxWait: n.config.FetchMaxWait, ReuseBuffers: observe == nil, Listener: &logreader.FollowerListener{
			Assigned: func(added, lost []int32) { health.updateAssignment("index", added, lost) },
			Corrupt:  n.reportUnreadablePartition,
			ReadFailed: func(err error) {
				n.log.Warn("brokers don't respond; reading continues when they do", "role", "index", "error", err)
			},
		}})
	if err != nil {
		return err
	}
	defer health.markLeft("index")
	return x.Run(ctx, follower, topic, observe)
}

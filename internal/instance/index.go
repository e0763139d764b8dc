package instance

import (
	"context"
	"errors"
	"strconv"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
)

// StartIndex keeps the index until ctx ends. observe, which may be nil, is
// shown every record that the index reads, from the start of an empty store, and may keep it.
func (n *Instance) StartIndex(ctx context.Context, observe func([]events.Record)) (*index.Index, error) {
	store, err := n.store(ctx, projections.ViewTimelines)
	if err != nil {
		return nil, err
	}
	x := index.New(store, func(p int32, offsets int64) {
		n.metrics.indexBehind.WithLabelValues(strconv.Itoa(int(p))).Set(float64(offsets))
	})
	n.metrics.health.member("index", "index", x.Restored)
	n.metrics.health.loop("index", x.Loop())
	n.roles.Go(func() error {
		err := n.again(ctx, "index", func(ctx context.Context) error { return n.index(ctx, x, observe) }, x.Wipe)
		return errors.Join(err, closeStore(store))
	})
	return x, nil
}

// index has the index read events, of all partitions: it is a member of no group.
func (n *Instance) index(ctx context.Context, x *index.Index, observe func([]events.Record)) error {
	topic, health := n.Kafka.Namespace.Events(), n.metrics.health
	follower, err := kafka.OpenFollower(ctx, kafka.FollowerConfig{Config: n.Kafka, Topics: []string{topic}, Partitions: n.Partitions, Start: x.Start, IncludePrevious: true,
		FetchMaxWait: n.c.FetchMaxWait, ReuseBuffers: observe == nil, Listener: &kafka.FollowerListener{
			Assigned: func(added, lost []int32) { health.assigned("index", added, lost) },
			Damaged:  n.partitionStandsStill,
			ReadFailed: func(err error) {
				n.log.Warn("the brokers don't answer; reading goes on when they do", "role", "index", "error", err)
			},
		}})
	if err != nil {
		return err
	}
	defer health.left("index")
	return x.Run(ctx, follower, topic, observe)
}

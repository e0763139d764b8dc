package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// hangingFor is how long a transaction must have been idle before it can be reported: the end of a transaction reaches
// its partitions with a delay.
const hangingFor = 15 * time.Second

// Hanging returns the transactions that are open in a partition although their coordinator has ended them or doesn't
// know them. An operator has to abort them. It checks the namespace's topics and the partition with the offsets of the
// schedulers' group, which open transactions block likewise. With an error it returns what it found in the partitions
// that it could check.
func (a *Admin) Hanging(ctx context.Context) ([]*logreader.HangingError, error) {
	topics, err := a.transactional(ctx)
	if err != nil {
		return nil, err
	}
	described, err := a.adm.DescribeProducers(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("describe the producers of the namespace's topics: %w", err)
	}
	var open []kadm.DescribedProducer
	var unseen error
	for _, t := range described {
		for _, p := range t.Partitions {
			if p.Err != nil && unseen == nil {
				unseen = fmt.Errorf("describe the producers of %s/%d: %w", p.Topic, p.Partition, p.Err)
			}
		}
	}
	now := time.Now()
	described.EachProducer(func(d kadm.DescribedProducer) {
		if d.CurrentTxnStartOffset >= 0 && now.Sub(time.UnixMilli(d.LastTimestamp)) > hangingFor {
			open = append(open, d)
		}
	})
	if len(open) == 0 {
		return nil, unseen
	}
	known, err := a.transactionsOf(ctx, open)
	if err != nil {
		return nil, err
	}
	var hanging []*logreader.HangingError
	for _, d := range open {
		if !underWay(d, known) {
			hanging = append(hanging, &logreader.HangingError{Topic: d.Topic, Partition: d.Partition, Producer: d.ProducerID, Epoch: d.ProducerEpoch, Start: d.CurrentTxnStartOffset, Brokers: a.cfg.Brokers})
		}
	}
	slices.SortFunc(hanging, func(a, b *logreader.HangingError) int {
		return slices.Compare([]string{a.Topic, fmt.Sprintf("%09d", a.Partition)}, []string{b.Topic, fmt.Sprintf("%09d", b.Partition)})
	})
	return hanging, unseen
}

// transactional returns the partitions that transactions of the namespace write to.
func (a *Admin) transactional(ctx context.Context) (kadm.TopicsSet, error) {
	meta, err := kafka.Metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	topics := kadm.TopicsSet{}
	for name, t := range meta.Topics {
		for p, state := range t.Partitions {
			if t.Err == nil && state.Leader >= 0 && a.cfg.Namespace.Owns(name) {
				topics.Add(name, p)
			}
		}
	}
	// The broker lists internal topics only if they are requested by name.
	internal, err := kafka.Metadata(ctx, a.adm, logreader.OffsetsTopic)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", logreader.OffsetsTopic, err)
	}
	if t := internal.Topics[logreader.OffsetsTopic]; t.Err == nil && len(t.Partitions) > 0 {
		topics.Add(logreader.OffsetsTopic, offsetsPartition(a.cfg.Namespace.SchedulerGroup(), int32(len(t.Partitions))))
	}
	return topics, nil
}

// offsetsPartition returns the partition of a group's offsets. Kafka uses the absolute value of the name's Java hash
// (GroupCoordinatorService.partitionFor), unlike for record keys, where it clears the sign bit.
func offsetsPartition(group string, partitions int32) int32 {
	hash := int32(0)
	for _, c := range []byte(group) { // names are ASCII
		hash = 31*hash + int32(c)
	}
	if hash == math.MinInt32 { // it has no absolute value: Kafka uses 0
		return 0
	}
	return max(hash, -hash) % partitions
}

// transactionsOf returns the coordinators' state of some producers' transactions, by producer id.
func (a *Admin) transactionsOf(ctx context.Context, open []kadm.DescribedProducer) (map[int64]kadm.DescribedTransaction, error) {
	ids := map[int64]bool{}
	for _, d := range open {
		ids[d.ProducerID] = true
	}
	listed, err := a.adm.ListTransactions(ctx, slices.Sorted(maps.Keys(ids)), nil)
	if err != nil {
		return nil, fmt.Errorf("list the transactions of producers: %w", err)
	}
	known := map[int64]kadm.DescribedTransaction{}
	names := listed.TransactionalIDs()
	if len(names) == 0 {
		return known, nil
	}
	described, err := a.adm.DescribeTransactions(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe transactions %q: %w", names, err)
	}
	for _, t := range described {
		switch {
		case errors.Is(t.Err, kerr.TransactionalIDNotFound):
		case t.Err != nil:
			return nil, fmt.Errorf("describe the transaction of %q: %w", t.TxnID, t.Err)
		default:
			known[t.ProducerID] = t
		}
	}
	return known, nil
}

// underWay reports whether an open transaction in a partition is one that its coordinator will end there.
func underWay(d kadm.DescribedProducer, known map[int64]kadm.DescribedTransaction) bool {
	t, is := known[d.ProducerID]
	if !is {
		return false
	}
	switch t.State {
	case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
		return t.Topics.Lookup(d.Topic, d.Partition)
	}
	return false
}

// UnstablePartitions returns the partitions of the inboxes whose offsets an open transaction of the schedulers' group
// blocks, ascending. No worker starts to read them before it has ended. The embedded broker returns all partitions
// while any transaction of the group is open.
func (a *Admin) UnstablePartitions(ctx context.Context, partitions int32) ([]int32, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = a.cfg.Namespace.SchedulerGroup()
	for _, name := range a.cfg.Namespace.InboxTopics() {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic = name
		for p := range partitions {
			topic.Partitions = append(topic.Partitions, p)
		}
		group.Topics = append(group.Topics, topic)
	}
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s: %w", group.Group, err)
	}
	held := map[int32]bool{}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); NoSuchGroup(err) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("offsets of group %s: %w", group.Group, err)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == kerr.UnstableOffsetCommit.Code {
					held[p.Partition] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(held)), nil
}

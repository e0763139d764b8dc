package kafkaadmin

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// PositionFinding is a position of the scheduler group that schedulers don't use unchanged.
type PositionFinding struct {
	groupmember.Position
	Fault groupmember.PositionFault
}

// InboxPositions returns the positions of the scheduler group that schedulers don't use unchanged, in the order of
// inboxes and partitions. It leaves out partitions without a known log end.
func (a *Admin) InboxPositions(ctx context.Context) ([]PositionFinding, error) {
	ids, err := a.InboxTopicIDs(ctx)
	if err != nil {
		return nil, err
	}
	commits, err := a.CommittedOffsets(ctx, a.cfg.Namespace.SchedulerGroup())
	if NoSuchGroup(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("positions of the schedulers: %w", err)
	}
	topics := a.cfg.Namespace.InboxTopics()
	ends, _ := a.adm.ListEndOffsets(ctx, topics...) // unknown ones are left out
	starts, _ := a.adm.ListStartOffsets(ctx, topics...)
	cuts := a.cuts(ctx, commits)
	var found []PositionFinding
	for i, topic := range topics {
		for _, c := range (kadm.OffsetResponses{topic: commits[topic]}).Sorted() {
			at := kafka.TopicPartition{Topic: topic, Partition: c.Partition}
			p := groupmember.Position{Topic: topic, Partition: c.Partition, Offset: c.At, Start: kafka.OffsetOrUnknown(starts, at), End: kafka.OffsetOrUnknown(ends, at), Metadata: c.Metadata}
			_, _, fault := groupmember.JudgePosition(groupmember.PositionCommit{Offset: c.At, Metadata: c.Metadata}, ids[i], p.Start, p.End)
			if end, cut := cuts[at]; cut && fault == "" && p.IsCut() {
				p.End, fault = end, groupmember.PositionCut
			}
			if fault != "" && p.End >= 0 {
				found = append(found, PositionFinding{p, fault})
			}
		}
	}
	return found, nil
}

// cuts returns where logs were truncated below commits, according to their leader epochs. A log that has since grown
// past the commit has other records there.
func (a *Admin) cuts(ctx context.Context, commits kadm.OffsetResponses) map[kafka.TopicPartition]int64 {
	var ask kadm.OffsetForLeaderEpochRequest
	commits.Each(func(c kadm.OffsetResponse) {
		if c.LeaderEpoch >= 0 && c.At > 0 {
			ask.Add(c.Topic, c.Partition, c.LeaderEpoch)
		}
	})
	cuts := map[kafka.TopicPartition]int64{}
	if len(ask) == 0 {
		return cuts
	}
	answers, _ := a.adm.OffsetForLeaderEpoch(ctx, ask) // partitions without an answer are left out
	for topic, ps := range answers {
		for p, answer := range ps {
			if c, ok := commits.Lookup(topic, p); ok && answer.Err == nil && answer.EndOffset >= 0 && answer.EndOffset < c.At {
				cuts[kafka.TopicPartition{Topic: topic, Partition: p}] = answer.EndOffset
			}
		}
	}
	return cuts
}

// withoutCuts returns offsets without the partitions of an inbox whose logs were truncated below the scheduler group's
// commits.
func (a *Admin) withoutCuts(ctx context.Context, topic string, offsets map[int32]int64) (map[int32]int64, error) {
	commits, err := a.CommittedOffsets(ctx, a.cfg.Namespace.SchedulerGroup())
	if NoSuchGroup(err) {
		return offsets, nil
	}
	if err != nil {
		return nil, err
	}
	ends, err := a.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	starts, err := a.KnownStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	cuts := a.cuts(ctx, kadm.OffsetResponses{topic: commits[topic]})
	whole := make(map[int32]int64, len(offsets))
	for p, offset := range offsets {
		_, cut := cuts[kafka.TopicPartition{Topic: topic, Partition: p}]
		c, ok := commits.Lookup(topic, p)
		if at := (groupmember.Position{Topic: topic, Partition: p, Offset: c.At, Start: starts[p], End: ends[p], Metadata: ""}); ok && (c.At > ends[p] || cut && at.IsCut()) {
			continue
		}
		whole[p] = offset
	}
	return whole, nil
}

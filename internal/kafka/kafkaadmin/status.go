package kafkaadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/kafka"
)

// Brokers returns the number of brokers that the cluster has at present.
func (a *Admin) Brokers(ctx context.Context) (int, error) {
	brokers, err := a.adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the brokers: %w", err)
	}
	return len(brokers), nil
}

// Commits returns a group's committed offsets by topic and partition; nil for a group that never existed. It needs
// DESCRIBE on the group.
func (a *Admin) Commits(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	fetched, err := a.CommittedOffsets(ctx, group)
	if NoSuchGroup(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("commits of group %s: %w", group, err)
	}
	commits := map[string]map[int32]int64{}
	for topic, ps := range fetched {
		commits[topic] = map[int32]int64{}
		for p, c := range ps {
			commits[topic][p] = c.At
		}
	}
	return commits, nil
}

// InboxBounds returns the start and the last stable offset of the inboxes' logs, by topic and partition. It leaves out
// partitions for which the cluster doesn't return both. It fails if none is left.
func (a *Admin) InboxBounds(ctx context.Context) (starts, ends map[string]map[int32]int64, err error) {
	topics := a.cfg.Namespace.InboxTopics()
	// The end first: a trim in between must not put the start above it.
	listedEnds, failed := a.adm.ListCommittedOffsets(ctx, topics...)
	listedStarts, err := a.adm.ListStartOffsets(ctx, topics...)
	starts, ends = map[string]map[int32]int64{}, map[string]map[int32]int64{}
	known := false
	for _, topic := range topics {
		starts[topic], ends[topic] = map[int32]int64{}, map[int32]int64{}
		for p, end := range listedEnds[topic] {
			if start, is := listedStarts.Lookup(topic, p); is && start.Err == nil && end.Err == nil {
				starts[topic][p], ends[topic][p] = start.Offset, end.Offset
				known = true
			}
		}
	}
	if !known {
		return nil, nil, fmt.Errorf("list the start and end offsets of the inboxes: %w", cmp.Or(errors.Join(failed, err), errors.New("the cluster returned none")))
	}
	return starts, ends, nil
}

// ReplicaStatus has the faults of the replicas of the namespace's partitions.
type ReplicaStatus struct {
	// MissingBrokers are the brokers that have replicas and aren't in the cluster at present, ascending.
	MissingBrokers []int32
	// UnderReplicated are the partitions that have a leader and a replica that isn't in sync, by topic, ascending.
	UnderReplicated map[string][]int32
	// UnderMinISR are those of them with fewer replicas in sync than writes need, which are refused.
	UnderMinISR map[string][]int32
}

// ReplicaStatus checks the replicas of the namespace's partitions.
func (a *Admin) ReplicaStatus(ctx context.Context) (ReplicaStatus, error) {
	meta, err := kafka.Metadata(ctx, a.adm)
	if err != nil {
		return ReplicaStatus{}, fmt.Errorf("list topics: %w", err)
	}
	copies := replicaStatusOf(meta, a.cfg.Namespace.Owns)
	if len(copies.UnderReplicated) == 0 {
		return copies, nil
	}
	described, err := a.adm.DescribeTopicConfigs(ctx, slices.Sorted(maps.Keys(copies.UnderReplicated))...)
	if err != nil {
		return ReplicaStatus{}, fmt.Errorf("describe topic settings: %w", err)
	}
	for _, d := range described {
		if d.Err != nil {
			return ReplicaStatus{}, fmt.Errorf("describe settings of topic %s: %w %s", d.Name, d.Err, d.ErrMessage)
		}
		for _, c := range d.Configs {
			if c.Key != "min.insync.replicas" {
				continue
			}
			if least, err := strconv.Atoi(c.MaybeValue()); err == nil {
				copies.addUnderMinISR(meta, d.Name, least)
			}
		}
	}
	return copies, nil
}

// replicaStatusOf returns what metadata shows about the replicas of some topics.
func replicaStatusOf(meta kadm.Metadata, ours func(topic string) bool) ReplicaStatus {
	c := ReplicaStatus{UnderReplicated: map[string][]int32{}, UnderMinISR: map[string][]int32{}}
	here, gone := meta.Brokers.NodeIDs(), map[int32]bool{}
	for name, t := range meta.Topics {
		if !ours(name) || t.Err != nil {
			continue
		}
		for p, state := range t.Partitions {
			for _, broker := range state.Replicas {
				if !slices.Contains(here, broker) {
					gone[broker] = true
				}
			}
			if state.Leader >= 0 && len(state.ISR) < len(state.Replicas) {
				c.UnderReplicated[name] = append(c.UnderReplicated[name], p)
			}
		}
	}
	for _, ps := range c.UnderReplicated {
		slices.Sort(ps)
	}
	c.MissingBrokers = slices.Sorted(maps.Keys(gone))
	return c
}

// addUnderMinISR records the partitions of a topic with fewer than least replicas in sync. Writes to them are refused.
func (c *ReplicaStatus) addUnderMinISR(meta kadm.Metadata, topic string, least int) {
	for _, p := range c.UnderReplicated[topic] {
		if len(meta.Topics[topic].Partitions[p].ISR) < least {
			c.UnderMinISR[topic] = append(c.UnderMinISR[topic], p)
		}
	}
}

// LeaderlessPartitions returns the leaderless partitions of the namespace's topics, by topic, ascending. They can be
// neither read nor written.
func (a *Admin) LeaderlessPartitions(ctx context.Context) (map[string][]int32, error) {
	meta, err := kafka.Metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	leaderless := map[string][]int32{}
	for name, t := range meta.Topics {
		if !a.cfg.Namespace.Owns(name) || t.Err != nil {
			continue
		}
		if none := leaderlessPartitions(t); len(none) > 0 {
			leaderless[name] = none
		}
	}
	return leaderless, nil
}

// leaderlessPartitions returns the leaderless partitions of a topic, ascending.
func leaderlessPartitions(t kadm.TopicDetail) (none []int32) {
	for p, state := range t.Partitions {
		if state.Leader < 0 {
			none = append(none, p)
		}
	}
	slices.Sort(none)
	return none
}

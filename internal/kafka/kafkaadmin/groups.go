package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// Kafka has three kinds of groups, each with its own requests: classic ones, which Waybill's roles and agents join;
// those whose partitions brokers assign (KIP-848); and share groups (KIP-932). Agents in other languages may use any.

// Member is one process of a consumer group.
type Member struct {
	ID, InstanceID, ClientID string
	// Owner is a worker's name as an owner of partitions; empty: unknown.
	Owner string
	// Partitions are those that it owns, by topic, ascending.
	Partitions map[string][]int32
}

// GroupState is the coordinator's state of a group.
type GroupState struct {
	// State is Kafka's name: Stable, Empty, PreparingRebalance, Dead ...
	State   string
	Members []Member
}

// NoSuchGroup reports whether an error means that the broker doesn't know the group, or knows it as one of another
// kind, or doesn't support the request.
func NoSuchGroup(err error) bool {
	return errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnsupportedVersion)
}

// DescribeGroup returns the members of a group of any kind and their partitions. A group that never existed is Dead and
// empty.
func (a *Admin) DescribeGroup(ctx context.Context, group string) (GroupState, error) {
	empty := GroupState{State: "Dead"}
	for _, describe := range []func(context.Context, string) (GroupState, error){a.classicGroup, a.consumerGroup, a.shareGroup} {
		var state GroupState
		err := a.retryCoordinator(ctx, group, func() (err error) { state, err = describe(ctx, group); return err })
		switch {
		case NoSuchGroup(err):
		case err != nil:
			return GroupState{}, fmt.Errorf("describe group %s: %w", group, err)
		case len(state.Members) > 0:
			return state, nil
		case state.State != "" && empty.State == "Dead":
			empty = state
		}
	}
	return empty, nil
}

func (a *Admin) classicGroup(ctx context.Context, group string) (state GroupState, err error) {
	groups, err := a.adm.DescribeGroups(ctx, group)
	g, err := groupOf(groups, err, group, func(g kadm.DescribedGroup) error { return g.Err })
	state.State = g.State
	for _, m := range g.Members {
		member := newMember(m.MemberID, m.InstanceID, m.ClientID, make(map[string][]int32))
		if joined, ok := m.Join.AsConsumer(); ok && g.Protocol == groupmember.ProtocolName {
			member.Owner = string(joined.UserData)
		}
		if owned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range owned.Topics {
				member.Partitions[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
			}
		}
		state.Members = append(state.Members, member)
	}
	return state, err
}

func (a *Admin) consumerGroup(ctx context.Context, group string) (state GroupState, err error) {
	groups, err := a.adm.DescribeConsumerGroups(ctx, group)
	g, err := groupOf(groups, err, group, consumerGroupError)
	state.State = g.State
	for _, m := range g.Members {
		state.Members = append(state.Members, newMember(m.MemberID, m.InstanceID, m.ClientID, assignedPartitions(m.Assignment)))
	}
	return state, err
}

func consumerGroupError(g kadm.DescribedConsumerGroup) error { return g.Err }

func (a *Admin) shareGroup(ctx context.Context, group string) (state GroupState, err error) {
	groups, err := a.adm.DescribeShareGroups(ctx, group)
	g, err := groupOf(groups, err, group, func(g kadm.DescribedShareGroup) error { return g.Err })
	state.State = g.GroupState
	for _, m := range g.Members {
		state.Members = append(state.Members, newMember(m.MemberID, nil, m.ClientID, assignedPartitions(m.Assignment)))
	}
	return state, err
}

// groupOf returns a group from an answer, or why it has none: the error of the request, or the group's own.
func groupOf[Groups ~map[string]G, G any](groups Groups, err error, group string, ownError func(G) error) (g G, _ error) {
	if err == nil {
		err = ownError(groups[group])
	}
	if err != nil {
		return g, err
	}
	return groups[group], nil
}

func newMember(id string, instance *string, client string, partitions map[string][]int32) Member {
	m := Member{ID: id, ClientID: client, Partitions: partitions}
	if instance != nil {
		m.InstanceID = *instance
	}
	return m
}

func assignedPartitions(assignment kadm.TopicsSet) map[string][]int32 {
	partitions := make(map[string][]int32, len(assignment))
	for _, t := range assignment.Sorted() {
		partitions[t.Topic] = t.Partitions
	}
	return partitions
}

// forgetCoordinatorTimeout bounds the request of forgetCoordinator.
const forgetCoordinatorTimeout = 2 * time.Second

// retryCoordinator calls ask again while the group has no coordinator, at most topicVisibleTimeout: in a new cluster
// the brokers first have to create the offsets topic. It also retries, once, if the coordinator that the client knows
// can't be reached.
func (a *Admin) retryCoordinator(ctx context.Context, group string, ask func() error) error {
	forgotten := false
	for began := time.Now(); ; {
		err := ask()
		if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" && !forgotten {
			a.forgetCoordinator(ctx, group)
			forgotten = true
			continue
		}
		away := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
		if !away || time.Since(began) > topicVisibleTimeout {
			return err
		}
		if backoff.Sleep(ctx, topicVisibleEvery) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// forgetCoordinator makes the client look up a group's coordinator again. For requests that it splits among
// coordinators, the client keeps using an unreachable one. Any other request to the group's coordinator makes it forget
// that one. A heartbeat of a non-member has no other effect.
func (a *Admin) forgetCoordinator(ctx context.Context, group string) {
	within, cancel := context.WithTimeout(ctx, forgetCoordinatorTimeout)
	defer cancel()
	nobody := kmsg.NewPtrHeartbeatRequest()
	nobody.Group = group
	_, _ = nobody.RequestWith(within, a.cl) // the answer doesn't matter
}

// GroupLag returns, by topic and partition, how many offsets a group of any kind is behind the log's end. It counts
// from the group's commits, for a share group from what it has finished, and without a commit from the log's start.
// Partitions without a known log end, such as leaderless ones, are left out. For a group that never existed it returns
// the named topics only. Named topics that don't exist are left out.
func (a *Admin) GroupLag(ctx context.Context, group string, topics ...string) (map[string]map[int32]int64, error) {
	known := map[string]map[int32]int64{}
	for _, of := range []func(context.Context, string) (map[string]map[int32]int64, error){a.classicLag, a.consumerLag, a.shareLag} {
		var lag map[string]map[int32]int64
		err := a.retryCoordinator(ctx, group, func() (err error) { lag, err = of(ctx, group); return err })
		if err != nil && !NoSuchGroup(err) {
			return nil, fmt.Errorf("lag of group %s: %w", group, err)
		}
		if err == nil && len(lag) > 0 {
			known = lag
			break
		}
	}
	for _, topic := range topics {
		if _, is := known[topic]; is {
			continue
		}
		if _, there, err := a.TopicPartitions(ctx, topic); err != nil {
			return nil, fmt.Errorf("lag of group %s: %w", group, err)
		} else if !there {
			continue // deleted, together with what was committed
		}
		rest, err := a.lagBehindEnds(ctx, []string{topic}, func(string, int32) int64 { return -1 })
		if err != nil {
			return nil, fmt.Errorf("lag of group %s: %w", group, err)
		}
		maps.Copy(known, rest)
	}
	return known, nil
}

func (a *Admin) classicLag(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	lags, err := a.adm.Lag(ctx, group)
	g, err := groupOf(lags, err, group, func(g kadm.DescribedGroupLag) error { return g.Error() })
	if err != nil {
		return nil, err
	}
	lag := make(map[string]map[int32]int64)
	for topic, ps := range g.Lag {
		lag[topic] = make(map[int32]int64, len(ps))
		for p, l := range ps {
			switch {
			case l.Err == nil:
				lag[topic][p] = l.Lag
			case kafka.IsFinal(l.Err):
				return nil, fmt.Errorf("%s/%d: %w", topic, p, l.Err)
			}
		}
	}
	return lag, nil
}

// consumerLag is GroupLag for a group that brokers assign. The client's own calculation supports only classic groups.
func (a *Admin) consumerLag(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	groups, err := a.adm.DescribeConsumerGroups(ctx, group)
	described, err := groupOf(groups, err, group, consumerGroupError)
	if err != nil {
		return nil, err
	}
	commits, err := a.CommittedOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	topics := append(described.SubscribedTopics(), commits.Partitions().Topics()...)
	slices.Sort(topics)
	return a.lagBehindEnds(ctx, slices.Compact(topics), func(topic string, p int32) int64 {
		if c, ok := commits.Lookup(topic, p); ok {
			return c.At
		}
		return -1
	})
}

// CommittedOffsets returns a group's commits with their metadata.
func (a *Admin) CommittedOffsets(ctx context.Context, group string) (commits kadm.OffsetResponses, err error) {
	err = a.retryCoordinator(ctx, group, func() error {
		commits, err = a.adm.FetchOffsets(ctx, group)
		if err == nil {
			err = commits.Error()
		}
		return err
	})
	return commits, err
}

func (a *Admin) shareLag(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	groups, err := a.adm.DescribeShareGroupOffsets(ctx, group)
	g, err := groupOf(groups, err, group, func(g kadm.DescribedShareGroupOffsets) error { return g.Err })
	if err != nil {
		return nil, err
	}
	offsets := g.Offsets
	lag, err := a.lagBehindEnds(ctx, slices.Collect(maps.Keys(offsets)), func(topic string, p int32) int64 {
		if o, ok := offsets.Lookup(topic, p); ok && o.Err == nil {
			return o.StartOffset
		}
		return -1
	})
	for topic, ps := range offsets {
		for p, o := range ps {
			if o.Err == nil && o.Lag >= 0 && lag[topic] != nil {
				lag[topic][p] = o.Lag // it also counts records that were finished out of order
			}
		}
	}
	return lag, err
}

// lagBehindEnds returns how many offsets of each partition are at or above the group's position. A negative position
// means the log's start.
func (a *Admin) lagBehindEnds(ctx context.Context, topics []string, at func(topic string, p int32) int64) (map[string]map[int32]int64, error) {
	lag := make(map[string]map[int32]int64, len(topics))
	for _, topic := range topics {
		ends, err := a.KnownEndOffsets(ctx, topic) // the end first: a trim in between must not put the start above it
		if err != nil {
			return nil, err
		}
		starts, err := a.KnownStartOffsets(ctx, topic)
		if err != nil {
			return nil, err
		}
		lag[topic] = make(map[int32]int64, len(ends))
		for p, end := range ends {
			lag[topic][p] = max(0, end-max(at(topic, p), starts[p]))
		}
	}
	return lag, nil
}

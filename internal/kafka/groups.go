package kafka

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
)

// Kafka has three kinds of groups, and tells of each by requests of their own: classic ones,
// which Waybill's roles and agents are in, those whose partitions brokers assign (KIP-848),
// and share groups (KIP-932). Agents in other languages may be in any.

// Member is one process of a consumer group.
type Member struct {
	ID, InstanceID, ClientID, Host string
	// Owner is who it is as an owner of partitions, of a worker; empty: it doesn't say.
	Owner string
	// Partitions that it owns, by topic, ascending.
	Partitions map[string][]int32
}

// GroupState is what the coordinator knows of a group.
type GroupState struct {
	// State is Kafka's word: Stable, Empty, PreparingRebalance, Dead ...
	State   string
	Members []Member
}

// noSuchGroup is what a broker says of a group that it doesn't know, or knows as one of another
// kind, and the client of a request that is newer than the broker.
func noSuchGroup(err error) bool {
	return errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnsupportedVersion)
}

// DescribeGroup lists the members of a group of any kind and what they own. A group that was
// never seen is Dead and empty.
func (a *Admin) DescribeGroup(ctx context.Context, group string) (GroupState, error) {
	empty := GroupState{State: "Dead"}
	for _, describe := range []func(context.Context, string) (GroupState, error){a.classicGroup, a.consumerGroup, a.shareGroup} {
		var state GroupState
		err := a.retryCoordinator(ctx, group, func() (err error) { state, err = describe(ctx, group); return err })
		switch {
		case noSuchGroup(err):
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
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return state, err
	}
	state.State = groups[group].State
	for _, m := range groups[group].Members {
		member := Member{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Partitions: make(map[string][]int32)}
		if m.InstanceID != nil {
			member.InstanceID = *m.InstanceID
		}
		if joined, ok := m.Join.AsConsumer(); ok && groups[group].Protocol == protocolName {
			member.Owner = string(joined.UserData)
		}
		if owned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range owned.Topics {
				member.Partitions[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
			}
		}
		state.Members = append(state.Members, member)
	}
	return state, nil
}

func (a *Admin) consumerGroup(ctx context.Context, group string) (state GroupState, err error) {
	groups, err := a.adm.DescribeConsumerGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return state, err
	}
	state.State = groups[group].State
	for _, m := range groups[group].Members {
		member := Member{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Partitions: assignedPartitions(m.Assignment)}
		if m.InstanceID != nil {
			member.InstanceID = *m.InstanceID
		}
		state.Members = append(state.Members, member)
	}
	return state, nil
}

func (a *Admin) shareGroup(ctx context.Context, group string) (state GroupState, err error) {
	groups, err := a.adm.DescribeShareGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return state, err
	}
	state.State = groups[group].GroupState
	for _, m := range groups[group].Members {
		state.Members = append(state.Members, Member{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Partitions: assignedPartitions(m.Assignment)})
	}
	return state, nil
}

func assignedPartitions(assignment kadm.TopicsSet) map[string][]int32 {
	partitions := make(map[string][]int32, len(assignment))
	for _, t := range assignment.Sorted() {
		partitions[t.Topic] = t.Partitions
	}
	return partitions
}

// forgetCoordinatorTimeout bounds what is done to have the client forget a coordinator.
const forgetCoordinatorTimeout = 2 * time.Second

// coordinated asks again while a group has no coordinator: a cluster that has never had a group
// makes the topic of offsets first. So it does, once, where the coordinator that the client knows can't be reached.
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
		select {
		case <-time.After(topicVisibleEvery):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// forgetCoordinator has the client look up anew where a group's coordinator is. Of requests that are split among
// coordinators it goes on with one that can't be reached, for as long as that is away; any other request to the
// group's makes it forget. That of a member who isn't one changes nothing.
func (a *Admin) forgetCoordinator(ctx context.Context, group string) {
	within, cancel := context.WithTimeout(ctx, forgetCoordinatorTimeout)
	defer cancel()
	nobody := kmsg.NewPtrHeartbeatRequest()
	nobody.Group = group
	_, _ = nobody.RequestWith(within, a.cl) // whatever it is answered
}

// GroupLag is, by topic and partition, how many offsets a group of any kind is behind the end,
// by its commits; a share group, by what it has finished. A partition without a commit counts
// from its start, and one of which the cluster doesn't say where it ends, such as one without a
// leader, is left out. A group that was never seen has no topics but those that are named, of
// which those that aren't there are left out.
func (a *Admin) GroupLag(ctx context.Context, group string, topics ...string) (map[string]map[int32]int64, error) {
	known := map[string]map[int32]int64{}
	for _, of := range []func(context.Context, string) (map[string]map[int32]int64, error){a.classicLag, a.consumerLag, a.shareLag} {
		var lag map[string]map[int32]int64
		err := a.retryCoordinator(ctx, group, func() (err error) { lag, err = of(ctx, group); return err })
		if err != nil && !noSuchGroup(err) {
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
			continue // deleted, and with it what was committed
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
	if err == nil {
		l := lags[group]
		err = l.Error()
	}
	if err != nil {
		return nil, err
	}
	lag := make(map[string]map[int32]int64)
	for topic, ps := range lags[group].Lag {
		lag[topic] = make(map[int32]int64, len(ps))
		for p, l := range ps {
			switch {
			case l.Err == nil:
				lag[topic][p] = l.Lag
			case isFinal(l.Err):
				return nil, fmt.Errorf("%s/%d: %w", topic, p, l.Err)
			}
		}
	}
	return lag, nil
}

// consumerLag is of a group that brokers assign. The client's own reckoning asks for classic
// ones only.
func (a *Admin) consumerLag(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	groups, err := a.adm.DescribeConsumerGroups(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return nil, err
	}
	commits, err := a.committedOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	described := groups[group]
	topics := append(described.SubscribedTopics(), commits.Partitions().Topics()...)
	slices.Sort(topics)
	return a.lagBehindEnds(ctx, slices.Compact(topics), func(topic string, p int32) int64 {
		if c, ok := commits.Lookup(topic, p); ok {
			return c.At
		}
		return -1
	})
}

// committed is what a group has committed, with its metadata.
func (a *Admin) committedOffsets(ctx context.Context, group string) (commits kadm.OffsetResponses, err error) {
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
	if err == nil {
		err = groups[group].Err
	}
	if err != nil {
		return nil, err
	}
	offsets := groups[group].Offsets
	topics := make([]string, 0, len(offsets))
	for topic := range offsets {
		topics = append(topics, topic)
	}
	lag, err := a.lagBehindEnds(ctx, topics, func(topic string, p int32) int64 {
		if o, ok := offsets.Lookup(topic, p); ok && o.Err == nil {
			return o.StartOffset
		}
		return -1
	})
	for topic, ps := range offsets {
		for p, o := range ps {
			if o.Err == nil && o.Lag >= 0 && lag[topic] != nil {
				lag[topic][p] = o.Lag // it knows what of it is finished out of order
			}
		}
	}
	return lag, err
}

// behind is how far topics go on after where a group stands in them; negative: nowhere yet.
func (a *Admin) lagBehindEnds(ctx context.Context, topics []string, at func(topic string, p int32) int64) (map[string]map[int32]int64, error) {
	lag := make(map[string]map[int32]int64, len(topics))
	for _, topic := range topics {
		ends, err := a.KnownEndOffsets(ctx, topic) // the end first: a trim in between must not put the start above it
		if err != nil {
			return nil, err
		}
		starts, err := a.knownStartOffsets(ctx, topic)
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

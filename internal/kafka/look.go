package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Brokers is how many brokers the cluster has at the moment.
func (a *Admin) Brokers(ctx context.Context) (int, error) {
	brokers, err := a.adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the brokers: %w", err)
	}
	return len(brokers), nil
}

// Commits is, by topic and partition, what a group has committed. A group that was never seen
// has nothing. It needs the right to describe the group.
func (a *Admin) Commits(ctx context.Context, group string) (map[string]map[int32]int64, error) {
	fetched, err := a.committed(ctx, group)
	if noSuchGroup(err) {
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

// Leaderless are the partitions of the namespace's topics that no broker leads at the moment, by
// topic, ascending: they can be neither read nor written to.
func (a *Admin) Leaderless(ctx context.Context) (map[string][]int32, error) {
	meta, err := metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	leaderless := map[string][]int32{}
	for name, t := range meta.Topics {
		if !a.cfg.Namespace.Owns(name) || t.Err != nil {
			continue
		}
		if none := leaderlessOf(t); len(none) > 0 {
			leaderless[name] = none
		}
	}
	return leaderless, nil
}

// leaderlessOf are the partitions of a topic that no broker leads, ascending.
func leaderlessOf(t kadm.TopicDetail) (none []int32) {
	for p, state := range t.Partitions {
		if state.Leader < 0 {
			none = append(none, p)
		}
	}
	slices.Sort(none)
	return none
}

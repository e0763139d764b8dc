package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Brokers is how many brokers the cluster has at the moment.
func (a *Admin) Brokers(ctx context.Context) (int, error) {
	brokers, err := a.adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the brokers: %w", err)
	}
	return len(brokers), nil
}

// Leaderless lists the partitions of the namespace's topics that no broker leads, as topic/partition, in
// order: nothing can be read from them, or written to them.
func (a *Admin) Leaderless(ctx context.Context) ([]string, error) {
	meta, err := metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var list []string
	for _, t := range meta.Topics.Sorted() {
		if !a.cfg.Namespace.Owns(t.Topic) {
			continue
		}
		for _, p := range t.Partitions.Sorted() {
			if errors.Is(p.Err, kerr.LeaderNotAvailable) || p.Leader < 0 {
				list = append(list, fmt.Sprintf("%s/%d", t.Topic, p.Partition))
			}
		}
	}
	return list, nil
}

// Commits is, by topic and partition, what a group has committed. A group that was never seen
// has nothing.
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

package kafka

import (
	"context"
	"fmt"
	"time"
)

// Brokers is how many brokers the cluster has at the moment.
func (a *Admin) Brokers(ctx context.Context) (int, error) {
	brokers, err := a.adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the brokers: %w", err)
	}
	return len(brokers), nil
}

// OffsetsSince is how many offsets were written to a topic since an instant: records, and the
// markers of transactions between them.
func (a *Admin) OffsetsSince(ctx context.Context, topic string, at time.Time) (n int64, err error) {
	ends, err := a.EndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	listed, err := a.adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic)
	since, err := offsetsOf(topic, "later", listed, err)
	for p, end := range ends {
		if first, ok := since[p]; ok {
			n += max(0, end-first)
		}
	}
	return n, err
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

package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// requestTopics is the metadata of the agents' request topics.
type requestTopics struct {
	fetch func(ctx context.Context) (map[string]int32, map[string][]int32, error)

	mu              sync.Mutex
	known           map[string]int32   // replaced, never changed
	leaderless      map[string][]int32 // replaced, never changed
	readAt          time.Time          // start of the last read
	unwritableUntil map[string]time.Time
	// unwritableReasons is by agent; replaced, never changed.
	unwritableReasons map[string]string
	usedCounts        map[string]partitionCount
}

// newPartitionDelay is how long no request is sent to a partition that was added to an agent's topic. The agent's
// members detect the partition at their next metadata refresh (Waybill's agents: 5 s) and assign it in a rebalance. A
// request that waits for that loses time of its attempt.
const newPartitionDelay = 30 * time.Second

// partitionCount is how many partitions of a topic are used.
type partitionCount struct {
	used, seen int32
	since      time.Time // when seen first exceeded used
}

// update returns the count after metadata showed seen partitions at now.
func (c partitionCount) update(seen int32, now time.Time) partitionCount {
	switch {
	case c.used == 0, seen <= c.used: // new to this process, or recreated with fewer
		return partitionCount{used: seen, seen: seen}
	case seen != c.seen:
		return partitionCount{c.used, seen, now}
	case now.Sub(c.since) >= newPartitionDelay:
		return partitionCount{used: seen, seen: seen}
	}
	return c
}

// hideNewPartitions removes partitions that were added within newPartitionDelay. The caller must hold the lock.
func (t *requestTopics) hideNewPartitions(known map[string]int32, leaderless map[string][]int32, now time.Time) {
	counts := make(map[string]partitionCount, len(known))
	for agent, seen := range known {
		c := t.usedCounts[agent].update(seen, now)
		counts[agent], known[agent] = c, c.used
		if c.used == seen {
			continue
		}
		leaderless[agent] = slices.DeleteFunc(slices.Clone(leaderless[agent]), func(p int32) bool { return p >= c.used })
		if len(leaderless[agent]) == 0 {
			delete(leaderless, agent)
		}
	}
	t.usedCounts = counts
}

func (t *requestTopics) partitions() (known map[string]int32, leaderless map[string][]int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known, t.leaderless
}

func (t *requestTopics) readMetadata(ctx context.Context) error {
	began := time.Now()
	known, leaderless, err := t.fetch(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hideNewPartitions(known, leaderless, began)
	for agent, until := range t.unwritableUntil {
		if began.Before(until) {
			delete(known, agent)
		} else {
			delete(t.unwritableUntil, agent)
			t.unwritableReasons = maps.Clone(t.unwritableReasons)
			delete(t.unwritableReasons, agent)
		}
	}
	t.known, t.leaderless, t.readAt = known, leaderless, began
	return nil
}

// refreshMetadata reads the metadata, unless it was read after since. It reports whether the partition counts differ
// from had. A failed read counts as no change: the attempt fails and is retried.
func (t *requestTopics) refreshMetadata(ctx context.Context, since time.Time, had map[string]int32) bool {
	t.mu.Lock()
	fresh := t.readAt.After(since)
	t.mu.Unlock()
	if !fresh && t.readMetadata(ctx) != nil {
		return false
	}
	known, _ := t.partitions()
	return !maps.Equal(had, known)
}

// unwritable returns the reasons why agents' topics can't be written to, by agent.
func (t *requestTopics) unwritable() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unwritableReasons
}

// markUnwritable treats an agent as missing for unwritableFor, even if the metadata shows its topic.
func (t *requestTopics) markUnwritable(agent, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := maps.Clone(t.known)
	delete(known, agent)
	if t.unwritableUntil == nil {
		t.unwritableUntil = map[string]time.Time{}
	}
	refusing := maps.Clone(t.unwritableReasons)
	if refusing == nil {
		refusing = map[string]string{}
	}
	refusing[agent] = why
	t.known, t.unwritableUntil[agent], t.unwritableReasons = known, time.Now().Add(unwritableFor), refusing
}

package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// requestTopics is what metadata has shown of the agents' topics.
type requestTopics struct {
	fetch func(ctx context.Context) (map[string]int32, map[string][]int32, error)

	mu              sync.Mutex
	known           map[string]int32   // never changed: replaced
	leaderless      map[string][]int32 // likewise
	readAt          time.Time          // when the last reading began
	unwritableUntil map[string]time.Time
	// refusing is why agents are barred; never changed: replaced.
	unwritableReasons map[string]string
	usedCounts        map[string]partitionCount
}

// newPartitionDelay is how long nothing is sent to partitions that were added to an agent's topic: the agent's members
// learn of them with their next metadata and share them out in a rebalance, and a request that waits for that
// recordTimeout of its attempt's time. Waybill's agents read metadata every 5 s.
const newPartitionDelay = 30 * time.Second

// partitionCount is how many partitions of a topic are used.
type partitionCount struct {
	used, seen int32
	since      time.Time // when seen was first more than used
}

// next is the count at now, when metadata shows seen.
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

// usable leaves out partitions that were added to topics a moment ago. It is called with the lock held.
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

// refresh reads the metadata again, unless that was done since an instant, and
// reports whether anything is new to one who has seen had. A failure is none: the attempt fails and is
// retried.
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

// unwritable are the agents whose topics can't be written to, with the reason.
func (t *requestTopics) unwritable() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unwritableReasons
}

// bar takes an agent out for a while, whatever metadata shows: its topic can't
// be written to, for a reason.
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

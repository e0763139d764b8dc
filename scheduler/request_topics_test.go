package scheduler

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestNewPartitionsOfAnAgentAreUsedLater adds partitions to an agent's topic. Its members detect them later, so no
// request is sent to them before newPartitionDelay.
func TestNewPartitionsOfAnAgentAreUsedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown, leaderless := map[string]int32{"a": 2, "b": 3}, map[string][]int32{}
		topics := &requestTopics{fetch: func(context.Context) (map[string]int32, map[string][]int32, error) {
			return maps.Clone(shown), maps.Clone(leaderless), nil
		}}
		used := func(agent string, want int32, led ...int32) {
			t.Helper()
			if err := topics.readMetadata(t.Context()); err != nil {
				t.Fatal(err)
			}
			if known, leaderless := topics.partitions(); known[agent] != want || !slices.Equal(leaderless[agent], led) {
				t.Errorf("%d partitions of %s are used, want %d; without a leader %v", known[agent], agent, want, leaderless[agent])
			}
		}
		used("a", 2)
		shown["a"], leaderless["a"] = 4, []int32{1, 3}
		used("a", 2, 1)
		time.Sleep(newPartitionDelay - time.Second)
		used("a", 2, 1)
		shown["a"] = 5 // added again, so the delay starts again
		used("a", 2, 1)
		time.Sleep(newPartitionDelay - time.Second)
		used("a", 2, 1)
		used("b", 3)
		time.Sleep(time.Second)
		used("a", 5, 1, 3)
		shown["a"], shown["c"] = 1, 7 // a is recreated with fewer partitions, and c is a new agent
		delete(leaderless, "a")
		used("a", 1)
		used("c", 7)
		delete(shown, "a")
		used("a", 0)
		shown["a"] = 6
		used("a", 6)
	})
}

package console

import (
	"maps"
	"slices"

	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
)

// behindAfter is how long a partition may be behind before an answer names it. It is the time that a request with
// min_offset waits.
const behindAfter = minOffsetWithin

// startedPartitions returns the partitions that are being read, in order.
func startedPartitions(progress map[int32]index.Progress) []int32 {
	return slices.Sorted(maps.Keys(progress))
}

// incompletePartitions returns what an answer lacks. progress is how far partitions were read before the answer
// was computed. leaderless are partitions of which it may lack records because they have no leader.
func (c *call) incompletePartitions(progress map[int32]index.Progress, leaderless []int32) ([]consoleapi.Incomplete, error) {
	lacks := []consoleapi.Incomplete{}
	var ends map[int32]int64
	for p := range c.cfg.Partitions {
		at, is := progress[p]
		switch {
		case slices.Contains(leaderless, p):
			lacks = append(lacks, c.withoutLeader(progress, p))
		case is:
			if why := c.whyIncomplete(at); why != "" {
				lacks = append(lacks, consoleapi.Incomplete{Partition: p, Why: why, Restored: at.Restored()})
			}
		default:
			if ends == nil {
				var err error
				if ends, err = c.ends(); err != nil {
					return nil, err
				}
			}
			lacks = append(lacks, notStarted(ends, p))
		}
	}
	return lacks, nil
}

// whyIncomplete returns what keeps a partition that is being read from being complete; empty: nothing.
func (c *Console) whyIncomplete(at index.Progress) string {
	switch {
	case at.Restoring:
		return consoleapi.Restoring
	case at.Behind && c.clockNow().Sub(at.BehindSince) > behindAfter:
		return consoleapi.Behind
	case at.Silent:
		return consoleapi.NoLeader
	}
	return ""
}

// withoutLeader reports a partition without a leader.
func (c *call) withoutLeader(progress map[int32]index.Progress, p int32) consoleapi.Incomplete {
	i := consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader}
	if at, is := progress[p]; is {
		i.Restored = at.Restored()
	}
	return i
}

// notStarted reports a partition that isn't being read yet. ends has the partitions with a leader.
func notStarted(ends map[int32]int64, p int32) consoleapi.Incomplete {
	if !contains(ends, p) {
		return consoleapi.Incomplete{Partition: p, Why: consoleapi.NoLeader}
	}
	return consoleapi.Incomplete{Partition: p, Why: consoleapi.Restoring}
}

// notReadError is the error of a request about a task of a partition that isn't being read yet.
func (c *call) notReadError(p int32) error {
	ends, err := c.ends()
	if err != nil {
		return err
	}
	return c.incompleteError(notStarted(ends, p))
}

// incompleteError is the error of a request that can't be answered without a partition.
func (c *Console) incompleteError(i consoleapi.Incomplete) *consoleapi.Problem {
	var e *consoleapi.Problem
	switch i.Why {
	case consoleapi.NoLeader:
		e = incomplete("%s; start the brokers that have partition %d of %s (kafka-topics.sh --describe --unavailable-partitions names them), "+
			"`waybill doctor` shows what else is wrong", i, i.Partition, c.cfg.Namespace.Events())
	default:
		e = incomplete("%s; ask again", i)
	}
	e.Incomplete = []consoleapi.Incomplete{i}
	return e
}

package console

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/internal/index"
)

// Why an answer lacks something of a partition.
const (
	NoLeader  = "no_leader" // it has no leader: nothing can be read until it has one
	Restoring = "restoring" // this console is still reading it from the log
	Behind    = "behind"    // it wasn't read up to the requested offset in time
)

// Incomplete says that an answer lacks something of a partition. Lists and errors about a task report it in this
// way only.
type Incomplete struct {
	Partition int32   `json:"partition" jsonschema:"The partition."`
	Why       string  `json:"why" enum:"no_leader,restoring,behind" jsonschema:"no_leader: no broker leads the partition, so nothing can be read from it. restoring: this console is still reading the partition. behind: the console didn't reach the requested offset in time."`
	Restored  float64 `json:"restored" jsonschema:"How much of the partition the console has read, from 0 to 1."`
}

func (i Incomplete) String() string {
	switch i.Why {
	case NoLeader:
		return fmt.Sprintf("no broker leads partition %d", i.Partition)
	case Restoring:
		return fmt.Sprintf("the console is restoring its index: it has read %d %% of partition %d", int(100*i.Restored), i.Partition)
	}
	return fmt.Sprintf("the console has not read partition %d far enough", i.Partition)
}

// startedPartitions returns the partitions that are being read, in order.
func startedPartitions(progress map[int32]index.Progress) []int32 {
	return slices.Sorted(maps.Keys(progress))
}

// incompletePartitions returns what an answer lacks. progress is how far partitions were read before the answer
// was computed. leaderless are partitions of which it may lack records because they have no leader.
func (c *call) incompletePartitions(progress map[int32]index.Progress, leaderless []int32) ([]Incomplete, error) {
	lacks := []Incomplete{}
	var ends map[int32]int64
	for p := range c.cfg.Partitions {
		at, is := progress[p]
		switch {
		case slices.Contains(leaderless, p):
			lacks = append(lacks, c.withoutLeader(progress, p))
		case is && at.Restoring:
			lacks = append(lacks, Incomplete{p, Restoring, at.Restored()})
		case !is:
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

// withoutLeader reports a partition without a leader.
func (c *call) withoutLeader(progress map[int32]index.Progress, p int32) Incomplete {
	i := Incomplete{Partition: p, Why: NoLeader}
	if at, is := progress[p]; is {
		i.Restored = at.Restored()
	}
	return i
}

// notStarted reports a partition that isn't being read yet. ends has the partitions with a leader.
func notStarted(ends map[int32]int64, p int32) Incomplete {
	if !contains(ends, p) {
		return Incomplete{p, NoLeader, 0}
	}
	return Incomplete{p, Restoring, 0}
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
func (c *Console) incompleteError(i Incomplete) *Problem {
	var e *Problem
	switch i.Why {
	case NoLeader:
		e = incomplete("%s; start the brokers that have partition %d of %s (kafka-topics.sh --describe --unavailable-partitions names them), "+
			"`waybill doctor` shows what else is wrong", i, i.Partition, c.cfg.Namespace.Events())
	default:
		e = incomplete("%s; ask again", i)
	}
	e.Incomplete = []Incomplete{i}
	return e
}

package console

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/internal/index"
)

// Why an answer lacks something of a partition.
const (
	NoLeader  = "no_leader" // no broker leads it: nothing can be read until one does
	Restoring = "restoring" // this console reads it from the log: it is whole when that is done
	Behind    = "behind"    // it wasn't read in time to the offset that was asked for
)

// Incomplete says that an answer lacks something of a partition. It is the only way in which a list, or an error
// about one task, says so.
type Incomplete struct {
	Partition int32   `json:"partition"`
	Why       string  `json:"why"`
	Restored  float64 `json:"restored"` // how much of it was read, from 0 to 1
}

func (i Incomplete) String() string {
	switch i.Why {
	case NoLeader:
		return fmt.Sprintf("no broker leads partition %d at the moment", i.Partition)
	case Restoring:
		return fmt.Sprintf("the console has read %d %% of partition %d", int(100*i.Restored), i.Partition)
	}
	return fmt.Sprintf("the console is behind in partition %d", i.Partition)
}

// begun are the partitions that are read, in order.
func begun(progress map[int32]index.Progress) []int32 { return slices.Sorted(maps.Keys(progress)) }

// incomplete is what an answer lacks, by how far partitions were read before it was made. leaderless are partitions
// that the answer may lack something of, because no broker leads them.
func (c *call) incomplete(progress map[int32]index.Progress, leaderless []int32) ([]Incomplete, error) {
	lacks := []Incomplete{}
	var ends map[int32]int64
	for p := range c.cfg.Partitions {
		at, is := progress[p]
		switch {
		case slices.Contains(leaderless, p):
			lacks = append(lacks, c.noLeader(progress, p))
		case is && at.Restoring:
			lacks = append(lacks, Incomplete{p, Restoring, at.Restored()})
		case !is:
			if ends == nil {
				var err error
				if ends, err = c.ends(); err != nil {
					return nil, err
				}
			}
			lacks = append(lacks, notBegun(ends, p))
		}
	}
	return lacks, nil
}

// noLeader says that no broker leads a partition.
func (c *call) noLeader(progress map[int32]index.Progress, p int32) Incomplete {
	i := Incomplete{Partition: p, Why: NoLeader}
	if at, is := progress[p]; is {
		i.Restored = at.Restored()
	}
	return i
}

// notBegun is what is lacking of a partition that isn't read yet, by where the partitions end that have a leader.
func notBegun(ends map[int32]int64, p int32) Incomplete {
	if !known(ends, p) {
		return Incomplete{p, NoLeader, 0}
	}
	return Incomplete{p, Restoring, 0}
}

// incompleteTask is the error of a question about a task of a partition that isn't read yet.
func (c *call) incompleteTask(p int32) error {
	ends, err := c.ends()
	if err != nil {
		return err
	}
	return c.lacking(notBegun(ends, p))
}

// lacking is the error of an answer that would be nothing without a partition.
func (c *Console) lacking(i Incomplete) *Problem {
	var e *Problem
	switch i.Why {
	case NoLeader:
		e = incomplete("%s; start the brokers that have partition %d of %s (kafka-topics.sh --describe --unavailable-partitions names them), "+
			"`waybill doctor` says what else is wrong", i, i.Partition, c.cfg.Namespace.Events())
	default:
		e = incomplete("%s; ask again", i)
	}
	e.Incomplete = []Incomplete{i}
	return e
}

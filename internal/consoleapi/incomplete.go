package consoleapi

import "fmt"

// Why an answer lacks something of a partition.
const (
	NoLeader  = "no_leader" // it has no leader, or its leader doesn't answer: nothing can be read until one does
	Restoring = "restoring" // the console is still reading it from the log
	Behind    = "behind"    // it wasn't read up to the requested offset in time, or isn't read to its end for some seconds
)

// Incomplete says that an answer lacks something of a partition. Lists and errors about a task report it in this
// way only.
type Incomplete struct {
	Partition int32   `json:"partition" jsonschema:"The partition."`
	Why       string  `json:"why" enum:"no_leader,restoring,behind" jsonschema:"no_leader: no broker leads the partition, or its leader doesn't answer, so nothing can be read from it. restoring: this console is still reading the partition. behind: the console didn't reach the requested offset in time, or what the partition has held for more than 5 s."`
	Restored  float64 `json:"restored" jsonschema:"How much of the partition the console has read, from 0 to 1."`
}

func (i Incomplete) String() string {
	switch i.Why {
	case NoLeader:
		return fmt.Sprintf("no broker leads partition %d, or its leader doesn't answer", i.Partition)
	case Restoring:
		return fmt.Sprintf("the console is restoring its index: it has read %d %% of partition %d", int(100*i.Restored), i.Partition)
	}
	return fmt.Sprintf("the console has not read partition %d far enough", i.Partition)
}

package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Log is a lane's side of Kafka: one member of the scheduler group with one
// transactional producer. One goroutine uses it; Wake, Stalled and Close may be
// called from any.
type Log interface {
	// Assigned is partition -> a number that changes whenever the partition
	// came after not having been owned.
	Assigned() map[int32]uint64
	// Resume lets the inboxes of a partition flow.
	Resume(p int32)
	PauseTopic(topic string)
	ResumeTopic(topic string)
	// Poll returns inputs of partitions that were resumed; nothing after a
	// bounded wait. An error is final.
	Poll(ctx context.Context) ([]events.Record, error)
	// Commit is one transaction: out, and the positions of what was polled.
	// false and nil, or a refused record: rolled back for certain. Any other
	// error: nobody knows.
	Commit(ctx context.Context, out []events.Record) (committed bool, err error)
	Abort(ctx context.Context) error
	Wake()
	// Stalled is for how long records have waited without a commit.
	Stalled(now time.Time) time.Duration
	Close()
}

// refusedRecord is the error of a Commit that was rolled back because of one
// record of its output.
type refusedRecord interface {
	error
	RecordIndex() int
	Permanent() bool
}

// History reads a partition of events to the high watermark as of the call.
type History interface {
	Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error)
}

// Tasks is the projection of one partition's tasks: open ones in memory, all on
// disk. One goroutine uses it.
type Tasks interface {
	// Task returns a task, nil if there is none. It is the projection's own:
	// clone before changing it.
	Task(id string) (*events.Task, error)
	// WhyStopped: an event of the task can't be folded here, so its state is
	// not known, and nothing may be decided about it.
	WhyStopped(id string) (why string, stopped bool)
	State() events.PartitionState
	Next() int64
	Apply(r *events.Record) error
	Accept(tasks []*events.Task, st events.PartitionState, next int64)
	EachOpen(fn func(*events.Task) bool)
	// Changed and ChangedBytes are what Save has to write.
	Changed() int
	ChangedBytes() int
	Save() error
	// FlushedState is what would be there after a crash of the machine.
	FlushedState() (events.PartitionState, int64)
	Close()
	Discard()
}

// Catalog is the workflow definitions, and the way to be sure of them.
type Catalog interface {
	Definitions
	// ReadToEndNow returns when everything that was written before the call
	// has been taken in.
	ReadToEndNow(ctx context.Context) error
}

// Clock is broker time.
type Clock interface {
	Now() time.Time
	// Offset is how far the local clock is from the broker's.
	Offset() time.Duration
}

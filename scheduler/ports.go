package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// Log is a worker's side of Kafka: one member of the scheduler group with one
// transactional producer. One goroutine uses it; TopicID, Reflected, Wake, Stalled and
// Close may be called from any.
type Log interface {
	// Assigned is partition -> a number that changes whenever the partition
	// came after not having been owned.
	Assigned() map[int32]uint64
	// TopicID is the id of an inbox's topic: it stays the same as long as the log lives, and offsets are
	// positions in that topic. Empty: not known.
	TopicID(topic string) string
	// Reflected says, before a partition is resumed, below which offsets its inboxes are reflected, by topic.
	// An inbox whose log ends below that isn't read: it was cut off.
	Reflected(ctx context.Context, p int32, below map[string]int64)
	// Pause pauses an inbox of a partition for a reason, until an instant, or until Resume if that
	// is zero; inboxgate.AllPartitions: the whole topic, with partitions that come later. Resume
	// ends a reason, of all inboxes if none is named. An inbox flows while no reason pauses it. A
	// partition that comes is paused for its restore. What was of the assignment before is over.
	Pause(p int32, topic string, why inboxgate.Reason, until time.Time)
	Resume(p int32, why inboxgate.Reason, topics ...string)
	// Poll returns inputs of inboxes that flow; nothing after a bounded wait. An error is final.
	Poll(ctx context.Context) ([]events.Record, error)
	// Rewind has the inboxes of a partition, which are paused, be read from their starts, by whoever owns it next, too. Any
	// goroutine may call it.
	Rewind(ctx context.Context, p int32) error
	// PollAtMost bounds the records of the next polls; 0: the log's own bound, which
	// is never passed.
	PollAtMost(n int)
	// Commit is one transaction: out, and the positions of what was polled.
	// false and nil, or a refused record: rolled back for certain. Any other
	// error: nobody knows. out is the caller's again when it returns; what its
	// records point to is so once they are committed, and else stays as it is.
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

// History reads a partition of events, or of snapshots, to the high watermark as
// of the call.
type History interface {
	Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error)
	// ReadLast reads the last n offsets, or all if there are fewer.
	ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error)
}

// Tasks is the projection of one partition's tasks: those that something happens to
// in memory, all on disk. One goroutine uses it.
type Tasks interface {
	// Task returns a task, nil if there is none. It is the projection's own:
	// clone before changing it.
	Task(id string) (*events.Task, error)
	// BeginLookups and EndLookups are around several calls of Task, to make them
	// cheaper.
	BeginLookups()
	EndLookups()
	// WhyStopped: an event of the task can't be folded here, so its state is
	// not known, and nothing may be decided about it.
	WhyStopped(id string) (why string, stopped bool)
	State() events.PartitionState
	Next() int64
	// ExpectLastEvent is where the log is to be read from so that Apply sees whether it is the one
	// that the state is of: the last event that is in it, or Next where there is none.
	ExpectLastEvent() (from int64)
	// CheckReadTo says that the log was read up to an offset. The error is Ahead where the last event that the state
	// is of lies below it, and didn't come again.
	CheckReadTo(offset int64) error
	Apply(r *events.Record) error
	Accept(tasks []*events.Task, st events.PartitionState, next int64)
	// EachOpen reads what isn't in memory.
	EachOpen(fn func(*events.Task)) error
	// Changed and ChangedBytes are what Save has to write.
	Changed() int
	ChangedBytes() int
	Save() error
	// FlushedState is what would be there after a crash of the machine.
	FlushedState() (events.PartitionState, int64)
	Close()
	Discard()
	Snapshots
}

// Snapshots is the part of Tasks that writes the partition's snapshot, and takes
// one for what the store lacks.
type Snapshots interface {
	// Snapshot is what to write beside so many bytes of events; SnapshotWritten
	// says that it was committed.
	Snapshot(source string, eventBytes int) ([]events.Record, error)
	SnapshotWritten()
	// SnapshotBase tells which snapshot the topic holds, nil: none, and whether it
	// may be written on. Events are to be applied from the offset that it returns.
	// SnapshotReached says that they were, to the log's end, and why the snapshot
	// isn't of this log, if so.
	SnapshotBase(m *events.Snapshot, good bool) (from int64)
	SnapshotReached(next int64) (why string)
	// LoadSnapshot replaces what the store has. load brings the finished tasks,
	// beside the owner, and FinishLoad ends that. events.ErrSnapshot is wrapped where
	// the snapshot can't be used, and nothing was changed.
	LoadSnapshot(r *events.SnapshotReader) (load func(context.Context) error, err error)
	FinishLoad() error
	// Knows reports whether Task can tell: not of a task that isn't open while
	// finished ones are being loaded.
	Knows(id string) bool
	// Wipe empties the partition, to be read from the start of the log.
	Wipe() error
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

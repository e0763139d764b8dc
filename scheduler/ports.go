package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// Log is a worker's side of Kafka: one member of the scheduler group with one transactional producer. One goroutine
// uses it; TopicID, Reflected, Wake, Stalled and Close may be called from any goroutine.
type Log interface {
	// Assigned maps each partition to a number. The number changes when the partition is assigned again after it was
	// revoked.
	Assigned() map[int32]uint64
	// TopicID identifies the topic of an inbox. Offsets are positions in that topic, and a recreated topic has
	// another id. Empty: unknown.
	TopicID(topic string) string
	// Reflected sets, before a partition is resumed, the offsets below which its inboxes are reflected, by topic. An
	// inbox whose log ends below that was truncated, and isn't read.
	Reflected(ctx context.Context, p int32, below map[string]int64)
	// Pause pauses an inbox of a partition for a reason, until an instant, or until Resume if until is zero. With
	// inboxgate.AllPartitions it pauses the whole topic, including partitions that are assigned later. Resume ends a
	// reason, for all inboxes if none is named. An inbox flows while no reason pauses it. A newly assigned partition
	// is paused for its restore only.
	Pause(p int32, topic string, why inboxgate.Reason, until time.Time)
	Resume(p int32, why inboxgate.Reason, topics ...string)
	// Poll returns inputs of inboxes that flow, or nothing after a bounded wait. An error is final.
	Poll(ctx context.Context) ([]events.Record, error)
	// Rewind makes the inboxes of a partition be read from their starts, by later owners, too. They must be paused.
	// Any goroutine may call it.
	Rewind(ctx context.Context, p int32) error
	// PollAtMost limits the records of the next polls; 0: the log's own limit, which always applies.
	PollAtMost(n int)
	// Commit commits one transaction: out, and the positions of what was polled. (false, nil) or a refused record: it
	// was rolled back. Any other error: the outcome is unknown. The caller owns out again on return. The memory that
	// the records refer to is free once they are committed; otherwise it must not be changed.
	Commit(ctx context.Context, out []events.Record) (committed bool, err error)
	Abort(ctx context.Context) error
	Wake()
	// Stalled is how long records have waited without a commit.
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

// Tasks is the projection of one partition's tasks: active tasks in memory, all tasks on disk. One goroutine uses it.
type Tasks interface {
	// Task returns a task; nil: there is none. The projection owns it: clone before changing it.
	Task(id string) (*events.Task, error)
	// BeginLookups and EndLookups enclose several calls of Task, which makes them cheaper.
	BeginLookups()
	EndLookups()
	// WhyStopped: an event of the task can't be folded by this build. The task's state is unknown, and nothing may be
	// decided about it.
	WhyStopped(id string) (why string, stopped bool)
	State() events.PartitionState
	Next() int64
	// ExpectLastEvent is the offset to read from so that Apply detects another log: the last event of the state, or Next if
	// there is none.
	ExpectLastEvent() (from int64)
	// ReadTo says that the log was read up to an offset. The error is Ahead if the last event of the state is below
	// it and wasn't read again.
	CheckReadTo(offset int64) error
	Apply(r *events.Record) error
	Accept(tasks []*events.Task, st events.PartitionState, next int64)
	// EachOpen reads from disk.
	EachOpen(fn func(*events.Task)) error
	// Changed and ChangedBytes measure what Save has to write.
	Changed() int
	ChangedBytes() int
	Save() error
	// FlushedState is the state that would survive a crash of the machine.
	FlushedState() (events.PartitionState, int64)
	Close()
	Discard()
	Snapshots
}

// Snapshots writes the partition's snapshot, and restores from one.
type Snapshots interface {
	// Snapshot returns the records to write along with eventBytes of events. SnapshotWritten says that they are
	// committed.
	Snapshot(source string, eventBytes int) ([]events.Record, error)
	SnapshotWritten()
	// SnapshotBase sets the snapshot that the topic has (nil: none) and whether it may be continued. It returns the
	// offset to apply events from. SnapshotReached says that events were applied to the end of the log; why says that
	// the snapshot isn't of this log.
	SnapshotBase(m *events.Snapshot, good bool) (from int64)
	SnapshotReached(next int64) (why string)
	// LoadSnapshot replaces the store's content. load loads the finished tasks, concurrently with the owner, and
	// Loaded ends that. An error that wraps events.ErrSnapshot means that the snapshot can't be used and nothing was
	// changed.
	LoadSnapshot(r *events.SnapshotReader) (load func(context.Context) error, err error)
	FinishLoad() error
	// Knows reports whether Task has an answer. While finished tasks are loaded, it knows only open tasks.
	Knows(id string) bool
	// Wipe empties the partition, so that it is read from the start of the log.
	Wipe() error
}

// Catalog is the workflow definitions, and a way to read them to their end.
type Catalog interface {
	Definitions
	// ReadToEndNow returns when all records that were written before the call have been applied.
	ReadToEndNow(ctx context.Context) error
}

// Clock is broker time.
type Clock interface {
	Now() time.Time
	// Offset is the difference of the local clock and the broker's.
	Offset() time.Duration
}

package scheduler

import (
	"context"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// Client is a worker's Kafka client: one member of the scheduler group with one transactional producer. One goroutine
// uses it. TopicID, Reflected, Rewind, Wake, Stalled and Close may be called from any goroutine.
type Client interface {
	// Assigned maps each assigned partition to its generation. The generation changes when the partition is assigned
	// again after it was revoked.
	Assigned() map[int32]uint64
	// TopicID returns the id of an inbox's topic; empty: unknown. Offsets are positions in that topic. A recreated
	// topic has another id.
	TopicID(topic string) string
	// Reflected sets the offsets below which the inboxes of a partition are reflected, by topic. It is called before
	// the partition is resumed. An inbox whose log ends below its offset was truncated, and isn't read.
	Reflected(ctx context.Context, p int32, below map[string]int64)
	// Pause pauses an inbox of a partition for a reason, until an instant, or until Resume if until is zero. With
	// inboxgate.AllPartitions it pauses the whole topic, including partitions that are assigned later. Resume removes a
	// reason, from all inboxes if none is named. An inbox is read while no reason pauses it. A newly assigned partition
	// is paused for its restore only.
	Pause(p int32, topic string, why inboxgate.Reason, until time.Time)
	Resume(p int32, why inboxgate.Reason, topics ...string)
	// Poll returns inputs of inboxes that aren't paused, or nothing after a bounded wait. After an error the client
	// can't be used.
	Poll(ctx context.Context) ([]events.Record, error)
	// Rewind resets the inboxes of a partition to their starts, for later owners, too. They must be paused.
	Rewind(ctx context.Context, p int32) error
	// PollAtMost limits the number of records of the next polls; 0: only the client's own limit, which always applies.
	PollAtMost(n int)
	// Commit commits one transaction: out, and the positions of the polled records. (false, nil) or a refusedRecord
	// error says that it was rolled back. After any other error the outcome is unknown. When Commit returns, the caller
	// may reuse out. The memory that the records refer to may be reused only after a successful commit.
	Commit(ctx context.Context, out []events.Record) (committed bool, err error)
	Abort(ctx context.Context) error
	Wake()
	// Stalled returns how long records have waited without a commit.
	Stalled(now time.Time) time.Duration
	Close()
}

// refusedRecord is the error of a Commit that was rolled back because of one record of its output.
type refusedRecord interface {
	error
	RecordIndex() int
	Permanent() bool
}

// History reads a partition of events, or of snapshots, to the high watermark at the time of the call.
type History interface {
	Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (next int64, err error)
	// ReadLast reads the last n offsets. all reports whether that was the whole partition.
	ReadLast(ctx context.Context, topic string, p int32, n int64, fn func([]events.Record) error) (all bool, err error)
	// ReadRange reads the committed records of the offsets [from, to), and perhaps later ones. It fences no transaction:
	// one that stays open is an error.
	ReadRange(ctx context.Context, topic string, p int32, from, to int64, fn func([]events.Record) error) error
	// OffsetsAt returns the first offset of a partition, and its first offset with a timestamp at or after an instant.
	OffsetsAt(ctx context.Context, topic string, p int32, at time.Time) (start, after int64, err error)
}

// Tasks is the projection of one partition's tasks. Active tasks are in memory, all tasks are on disk. One goroutine
// uses it. A failing disk ends the process, so only reading another log is an error.
type Tasks interface {
	// Task returns a task; nil: it doesn't exist. The projection owns it, so the caller must clone it before changing
	// it.
	Task(id string) *events.Task
	// BeginLookups and EndLookups enclose several calls of Task, to make them cheaper.
	BeginLookups()
	EndLookups()
	// WhyStopped reports that an event of the task can't be folded by this build, and why. The state of such a task is
	// unknown, and nothing may be decided about it.
	WhyStopped(id string) (why string, stopped bool)
	State() events.PartitionState
	Next() int64
	// ExpectLastEvent returns the offset to read from so that Apply can detect another log. This is the last event of
	// the state, or Next if there is none.
	ExpectLastEvent() (from int64)
	// CheckReadTo must be called after the log was read up to an offset. The error is an aheadError if the last event
	// of the state is below that offset and wasn't read again.
	CheckReadTo(offset int64) error
	Apply(r *events.Record) error
	Accept(tasks []*events.Task, st events.PartitionState, next int64)
	// MayForget reports whether ids may be forgotten now: not while a snapshot is being written, or finished tasks are
	// being loaded. NextForgetAt returns the earliest ForgetAt after an instant of the ended tasks; zero: none has one.
	MayForget() bool
	NextForgetAt(after time.Time) time.Time
	// Kept returns the number of ended tasks as of the last Save, TakeForgets the number of ids that Saves have deleted
	// since the last call.
	Kept() int64
	TakeForgets() int64
	// EachOpen calls fn for each open task. It reads from disk.
	EachOpen(fn func(*events.Task))
	// Changed and ChangedBytes measure how much Save has to write.
	Changed() int
	ChangedBytes() int
	Save()
	// FlushedState returns the state, and its Next, that would survive a crash of the machine.
	FlushedState() (events.PartitionState, int64)
	// Discard frees the memory without saving.
	Discard()
	Snapshots
}

// Snapshots writes the partition's snapshot, and restores from one.
type Snapshots interface {
	// Snapshot returns the records to write in the same transaction as eventBytes of events. SnapshotWritten must be
	// called once they are committed.
	Snapshot(source string, eventBytes int) ([]events.Record, error)
	SnapshotWritten()
	// SnapshotBase sets the snapshot that the topic has (nil: none) and whether the next one may continue it. It
	// returns the offset to apply events from. SnapshotReached must be called once events were applied to the end of
	// the log. why is the reason why the snapshot must not be used. foreign says that it is of another log; otherwise
	// the store may be faulty, too.
	SnapshotBase(m *events.Snapshot, good bool) (from int64)
	SnapshotReached(next int64) (why string, foreign bool)
	// LoadSnapshot replaces the store's content. load loads the finished tasks, concurrently with the owner; FinishLoad
	// must be called after it. If the error wraps events.ErrSnapshot, the snapshot can't be used and nothing was
	// changed.
	LoadSnapshot(r *events.SnapshotReader) (load func(context.Context) error, err error)
	FinishLoad()
	// Knows reports whether Task can answer for an id. While finished tasks are loaded, it can do so only for open
	// tasks.
	Knows(id string) bool
	// Wipe empties the partition, so that it is read from the start of the log.
	Wipe()
}

// Catalog holds the workflow definitions, and can read them to their end.
type Catalog interface {
	Definitions
	// ReadToEndNow returns once all records that were written before the call have been applied.
	ReadToEndNow(ctx context.Context) error
}

// Clock is broker time.
type Clock interface {
	Now() time.Time
	// Offset returns the difference between the local clock and the broker's.
	Offset() time.Duration
}

package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
)

// Index is the index of this process, of all partitions. It is safe for concurrent use.
type Index interface {
	// Fresh brings what a query sees of partitions up to what was read.
	Flush(ctx context.Context, ps ...int32) error
	// Reach returns when everything of a partition below an offset was read: Find
	// has it, and what Fresh brings up to date.
	AwaitOffset(ctx context.Context, p int32, offset int64) error
	// Find is what is known of a task, as of what was read; not begun: nothing of the partition was read by this process.
	Find(p int32, task string) (f projections.Found, begun bool, err error)
	// Progress is how far each partition was read, without those of which no broker has said where they end.
	Progress() map[int32]index.Progress
	// Subscribe has a channel told, perhaps once for several, when something was
	// read.
	Subscribe() (news <-chan struct{}, cancel func())

	List(ctx context.Context, ps []int32, f projections.Filter, after projections.Cursor, limit int) (projections.Page, error)
	Counts(p int32) (projections.Counts, int64, error)
	Alerts(ps []int32, q projections.AlertQuery) (projections.AlertList, error)
}

// ErrAway is wrapped by errors of a Log where brokers don't give what was asked for, at the moment: mostly
// because none leads a partition.
var ErrAway = errors.New("it can't be read now")

// ErrUnwritten is wrapped by errors of a Log where no broker has acknowledged what was to be written: it may be in the log, or
// not.
var ErrUnwritten = errors.New("no broker has acknowledged it")

// Damage is a part of a partition of events that can't be read, because it isn't as it was written.
type Damage struct {
	From, Next int64 // offsets: of the first record, and after the last
	Err        error // says so
}

// Log is the log of the namespace. It is safe for concurrent use.
type Log interface {
	// ReadAt returns the committed events at some offsets, in order, and what is damaged of them: that is left
	// out. It waits some seconds for brokers that give nothing (ErrAway).
	ReadAt(ctx context.Context, p int32, offsets []int64) (found []events.Record, damage []Damage, err error)
	// Ends is where each partition of events ends, of those of which the brokers say it.
	Ends(ctx context.Context) (map[int32]int64, error)
	// Settled is below what of each partition of events every transaction has ended, of those of which the
	// brokers say it: what is committed from now on is at or past it.
	Settled(ctx context.Context) (map[int32]int64, error)
	// Follow reads the events of some partitions from offsets on, or FromEnd.
	Follow(from map[int32]int64) (Stream, error)
	// Alerts and Deadletters give fn the records of their topics since an instant. leaderless are
	// partitions that no broker leads at the moment.
	Alerts(ctx context.Context, since time.Time, fn func(*events.Record)) (leaderless []int32, err error)
	Deadletters(ctx context.Context, since time.Time, fn func(*events.Record)) (leaderless []int32, err error)
	// Waiting is a task's submission that no scheduler has taken yet; nil: none is known.
	Waiting(ctx context.Context, id string) (*Waiting, error)
	// Submit writes a submission, and returns when it is acknowledged. It waits some seconds for that (ErrUnwritten).
	Submit(ctx context.Context, r events.Record) error
	// Control writes a control, as Submit does, and returns the scheduler's answer.
	Control(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, error)
}

// FromEnd, in place of an offset, is where a partition ends when it is first found: of one that no broker leads, to which
// nothing is written until then.
const FromEnd = -1

// Waiting is a submission that no scheduler has taken yet.
type Waiting struct {
	Topic     string
	Partition int32
	Offset    int64
	Before    int64 // submissions before it in its partition
}

// Says tells a person of it.
func (w *Waiting) Says(id string) string {
	return fmt.Sprintf("task %q isn't taken by a scheduler yet: its submission waits at %s/%d/%d, behind %d others of its partition; `waybill doctor` says what holds them up",
		printable(id), w.Topic, w.Partition, w.Offset, w.Before)
}

// Stream is events as they come. One goroutine polls it.
type Stream interface {
	// Poll returns what came, nothing after a while.
	Poll(ctx context.Context) ([]events.Record, error)
	Close()
}

// Cluster is what Kafka knows of who is there. It is safe for concurrent use.
type Cluster interface {
	// Agents lists those that have a request topic, by name.
	Agents(ctx context.Context) ([]AgentView, error)
	// Agent is what is known of one.
	Agent(ctx context.Context, name string) (replay.AgentState, error)
	// Scheduling is how each partition is scheduled.
	Scheduling(ctx context.Context) (map[int32]Scheduling, error)
	// Workflows lists the definitions that were applied, by name and version.
	Workflows() []Workflow
	// ReadWorkflows returns when all that was applied before the call is in Workflows.
	ReadWorkflows(ctx context.Context) error
}

// Scheduling is how a partition is scheduled.
type Scheduling struct {
	Lag int64 // inputs that no scheduler has consumed
	// Scheduler is the one that Kafka has given the partition to; empty: none.
	Scheduler string
	// Restored is how much of the partition that one has read of what it must before it
	// acts, from 0 to 1. It says so while that takes long; else it is 1.
	Restored float64
}

// Workflow is a definition that was applied.
type Workflow struct {
	Name    string
	Version int
	Steps   []string
	Agents  []string
	Body    []byte // as it was applied
}

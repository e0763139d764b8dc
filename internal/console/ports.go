package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/text"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

// Index is the index of this process, over all partitions. It is safe for concurrent use.
type Index interface {
	// Flush saves what was applied, so that List, Counts and Alerts reflect it.
	Flush(ctx context.Context, ps ...int32) error
	// AwaitOffset returns once everything of a partition below an offset was applied, so that Find reflects it.
	AwaitOffset(ctx context.Context, p int32, offset int64) error
	// Find returns a task as of what was applied. begun is false if this process hasn't started to read the
	// partition.
	Find(p int32, task string) (f projections.Found, begun bool)
	// Progress returns how far each partition was read. Partitions whose end no broker has reported are missing.
	Progress() map[int32]index.Progress
	// Subscribe returns a channel that receives a value after records were applied. Several applications may be
	// merged.
	Subscribe() (news <-chan struct{}, cancel func())
	// Watch collects which tasks change.
	Watch() *index.Watch

	List(ctx context.Context, ps []int32, f projections.Filter, after projections.Cursor, limit int) (projections.Page, error)
	// Rows passes the rows of a partition's tasks to fn (projections.Store.Rows).
	Rows(ctx context.Context, p int32, fn func(head *events.SummaryHead, row func() *events.Summary) error) (next int64, err error)
	Counts(p int32) (projections.Counts, int64, error)
	Alerts(ps []int32, q projections.AlertQuery) (projections.AlertList, error)
	Stats(ps []int32, q projections.StatsQuery) (projections.StatsList, error)
	Steps(ps []int32, workflow string, version int) (projections.StepList, error)
	Ending(ctx context.Context, ps []int32, from, until time.Time, limit int) (projections.Ending, error)
	ErrorGroups(ps []int32, q projections.ErrorGroupQuery) (projections.ErrorGroupList, error)
}

// ErrUnavailable is wrapped by errors of a Log if brokers don't deliver records at the moment, mostly because a
// partition has no leader.
var ErrUnavailable = errors.New("brokers deliver no records at the moment")

// ErrNotAcknowledged is wrapped by errors of a Log if no broker acknowledged a record. It may be in the log, or
// not.
var ErrNotAcknowledged = errors.New("no broker acknowledged the record")

// ErrUnknownAgent is the error of a Cluster of which nothing is known, such as that of an exported file.
var ErrUnknownAgent = errors.New("the agent is unknown")

// ErrOtherTopic is wrapped by errors of a Log if the topic was recreated since a position was reached.
var ErrOtherTopic = errors.New("the topic was recreated")

// TopicPosition is a position in a topic of alerts or dead letters.
type TopicPosition struct {
	Since   time.Time       // where the partitions begin that Offsets lacks
	TopicID string          // of the topic that has Offsets; empty: unknown
	Offsets map[int32]int64 // the next offset, by partition; nil: nothing was read yet
	// Leaderless are partitions without a leader. Their records are missing so far.
	Leaderless []int32
}

// Corruption is a part of a partition of events that can't be read, because it isn't as it was written.
type Corruption struct {
	From, Next int64 // offsets: of the first record, and after the last
	Err        error // says so
}

// Log reads and writes the topics of the namespace. It is safe for concurrent use.
type Log interface {
	// ReadAt returns the committed events at some offsets, in order, and what is corrupt of them: that is left
	// out. It waits some seconds for brokers that return nothing (ErrUnavailable).
	ReadAt(ctx context.Context, p int32, offsets []int64) (found []events.Record, corruption []Corruption, err error)
	// Ends returns the end of each partition of events, except those whose end no broker reports.
	Ends(ctx context.Context) (map[int32]int64, error)
	// Settled returns, for each partition of events, the offset below which every transaction has ended. Later
	// commits are at or above it. Partitions whose offset no broker reports are missing.
	Settled(ctx context.Context) (map[int32]int64, error)
	// Follow reads the events of some partitions from offsets.
	Follow(from map[int32]int64) (Stream, error)
	// Alerts and Deadletters pass the records of their topics from a position on to fn, those of a partition in order.
	// reached continues after them. If nothing was written since from, it costs a request to each broker. An error
	// wraps ErrOtherTopic if from is no position of the topic.
	Alerts(ctx context.Context, from TopicPosition, fn func(*events.Record)) (reached TopicPosition, err error)
	Deadletters(ctx context.Context, from TopicPosition, fn func(*events.Record)) (reached TopicPosition, err error)
	// Waiting returns a task's submission that no scheduler has consumed yet; nil: none is known.
	Waiting(ctx context.Context, id string) (*Waiting, error)
	// Submit writes a submission and returns once it is acknowledged, or after some seconds (ErrNotAcknowledged).
	Submit(ctx context.Context, r events.Record) error
	// Write writes records of inboxes again, as Submit does.
	Write(ctx context.Context, rs ...events.Record) error
	// Control writes a control, as Submit does, and returns the scheduler's answer.
	Control(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, error)
}

// Batches orders batches and knows what became of them. It is safe for concurrent use. Its errors are those of package
// batch, or those of Kafka.
type Batches interface {
	// List returns all batches, the newest first.
	List() ([]*batch.View, error)
	// Find returns a batch; nil: there is none.
	Find(id string) (*batch.View, error)
	// Results returns at most limit results with a status (empty: any), of tasks from a number on. next is the number
	// that continues; -1: none.
	Results(id string, from int, status batch.Status, limit int) (list []batch.Result, next int, err error)
	// Create orders a batch. created is false if there was the same one with its id already.
	Create(ctx context.Context, o batch.Order, targets []batch.Target) (v *batch.View, created bool, err error)
	// Stop asks to stop a batch; nil: there is none.
	Stop(ctx context.Context, id string, by batch.StopRequest) (*batch.View, error)
	// Changed returns a channel that is closed at the next change of a batch.
	Changed() <-chan struct{}
}

// Waiting is a submission that no scheduler has consumed yet.
type Waiting struct {
	Topic     string
	Partition int32
	Offset    int64
	Before    int64 // number of unconsumed submissions before it in its partition
}

// Describe returns a message for users.
func (w *Waiting) Describe(id string) string {
	return fmt.Sprintf("task %q has not been consumed by a scheduler yet: its submission waits at %s/%d/%d, behind %s of its partition; `waybill doctor` shows why",
		consoleapi.Printable(id), w.Topic, w.Partition, w.Offset, text.Count(w.Before, "other"))
}

// Stream delivers new events. One goroutine polls it.
type Stream interface {
	// Poll returns new events, or none after a while.
	Poll(ctx context.Context) ([]events.Record, error)
	Close()
}

// Cluster is what Kafka knows about schedulers and agents. It is safe for concurrent use.
type Cluster interface {
	// Agents lists the agents that have a request topic, by name.
	Agents(ctx context.Context) ([]consoleapi.Agent, error)
	// Agent returns the state of one agent, or ErrUnknownAgent.
	Agent(ctx context.Context, name string) (replay.AgentState, error)
	// Scheduling returns the scheduler and lag of each partition.
	Scheduling(ctx context.Context) (map[int32]Scheduling, error)
	// Workflows lists the definitions that were applied, by name and version.
	Workflows() []Workflow
	// Definition returns a version of a workflow, perhaps a deleted one; nil: it isn't known.
	Definition(name string, version int) (d *workflow.Definition, deleted bool)
	// ReadWorkflows returns once Workflows has everything that was applied before the call.
	ReadWorkflows(ctx context.Context) error
	// ApplyDefinition writes a definition unless it exists, with who does it, and creates the request topics that its agents lack.
	// existed reports whether the same definition was there before. If the version has another body, the error wraps
	// ErrVersionExists.
	ApplyDefinition(ctx context.Context, d *workflow.Definition, by events.By) (existed bool, err error)
}

// Scheduling is the scheduler and lag of a partition.
type Scheduling struct {
	Lag int64 // inputs that no scheduler has consumed
	// Scheduler is the member to which Kafka has assigned the partition; empty: none.
	Scheduler string
	// Restored is how much of the partition it has read of what it must read before it acts, from 0 to 1. It is
	// below 1 only while a restore takes long.
	Restored float64
}

// Workflow is a definition that was applied.
type Workflow struct {
	Name    string
	Version int
	Steps   []string
	Agents  []string

	Deprecated *events.DeprecationView // nil: it isn't
}

// WorkflowOf returns a definition as it is listed.
func WorkflowOf(d *workflow.Definition) Workflow {
	w := Workflow{Name: d.Name, Version: d.Version, Agents: d.Agents(), Steps: make([]string, len(d.Steps))}
	for i := range d.Steps {
		w.Steps[i] = d.Steps[i].ID
	}
	return w
}

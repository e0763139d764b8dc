package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Listener observes a scheduler. It may be nil, and so may its fields. The workers' goroutines call the functions,
// which must not block.
type Listener struct {
	// Assigned is called when a partition is assigned, Restored when it is ready, Lost when it was reassigned.
	Assigned func(partition int32)
	Restored func(partition int32, from Source, took time.Duration)
	Lost     func(partition int32)
	// FinishedLoaded is called when the ids of finished tasks are loaded. Submissions are paused until then.
	FinishedLoaded func(partition int32, took time.Duration)
	// SnapshotRefused is called if the snapshot of a partition can't be used. The log is read instead.
	SnapshotRefused func(partition int32, why error)
	// StoreAhead is called if the store of a partition contains events that aren't committed in the log. The partition
	// is restored from the log.
	StoreAhead func(partition int32, why error)
	// SnapshotFailed is called if the snapshot of a partition can't be written.
	SnapshotFailed func(partition int32, why error)
	// Committed is called after each transaction.
	Committed func(Committed)
	// Ended reports the number of ended tasks whose ids a partition knows, and how many ids it has deleted since the last
	// call, because they were forgotten.
	Ended func(partition int32, known, deleted int64)
	// CommitTook reports the duration of a commit and its number of records.
	CommitTook func(records int, took time.Duration)
	// DecisionFailed is called when a decision panicked, with the stack. The task is stopped until the partition is
	// assigned again: its inputs become dead letters.
	DecisionFailed func(partition int32, task, why string, stack []byte)
	// Aborted is called when a transaction was rolled back. Its inputs are read again.
	Aborted func()
	// RecordRefused is called when the cluster refuses a record.
	RecordRefused func(topic string, err error)
	// PartitionPaused is called when the inboxes of a partition are paused, because the cluster refused the output of
	// their records at least twice in a row. The worker's other partitions continue.
	PartitionPaused func(partition int32, wait time.Duration)
	// RequestTopicsFailed is called if the agents' topics can't be listed. The last list stays in use.
	RequestTopicsFailed func(err error)
	// DefinitionsReadFailed is called if the definitions can't be read to their end. Submissions of unknown workflows
	// are paused, and so are the submissions behind them.
	DefinitionsReadFailed func(err error)
	// Admission is called when a worker pauses or resumes submissions. counted is the load that is compared with
	// Config.MaxRunnable. busiest are the agents with the most steps. A worker that ends calls it with open.
	Admission func(owner string, open bool, counted int, busiest []string)
	// Agents reports a worker's flow to its agents about once a second; nil when the worker ends.
	Agents func(owner string, agents []AgentFlow)
	// WorkerFailed is called when a worker has closed its client and opens a new one.
	WorkerFailed func(owner string, err error)
	// Skew reports the difference between the local clock and the broker's.
	Skew func(offset time.Duration)
	// Recreated is called if the topic of an inbox was recreated since its records below the reflected offset were
	// read. The new topic is read from its start.
	Recreated func(partition int32, topic string, reflected int64, was, is string)
	// TrimFailed is called if an inbox could not be trimmed. This is retried.
	TrimFailed func(topic string, err error)
	// Undelivered is called when a notification can't be delivered and becomes a dead letter, or when its dead letter
	// or alert can't be written yet.
	Undelivered func(topic string, err error)
	// Delivered is called when a notification was written to its reply_to.
	Delivered func()
}

// Source is where the tasks of a partition were restored from. The end of the log is always read in addition.
type Source string

// The sources of a restore.
const (
	FromDisk     Source = "disk"
	FromSnapshot Source = "snapshot"
	FromLog      Source = "log" // the whole log
)

// AgentFlow is a worker's flow to one agent.
type AgentFlow struct {
	Agent       string
	Outstanding int  // requests with a running attempt
	Limit       int  // limit of Outstanding; the first attempts of undos may exceed it
	Queued      int  // steps that wait for a slot
	Silent      bool // it receives probes only
}

// Committed describes one committed transaction.
type Committed struct {
	Inputs     int // records consumed
	Records    int // records written
	EventBytes int // bytes of the events' values
	// SnapshotBytes is the size of the snapshots' values. Snapshots is the number of snapshots that were completed.
	SnapshotBytes, Snapshots int

	Reflected   int // inputs that were skipped, since the state reflects them
	Forwarded   int
	Recoveries  int // recoveries accepted
	Ended       map[events.TaskState]int
	Ignored     map[Ignored]int
	Deadletters map[events.Reason]int
}

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
	// CommitTook reports the duration of a commit and its number of records.
	CommitTook func(records int, took time.Duration)
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

func (l *Listener) assigned(p int32) {
	if l != nil && l.Assigned != nil {
		l.Assigned(p)
	}
}

func (l *Listener) restored(p int32, from Source, took time.Duration) {
	if l != nil && l.Restored != nil {
		l.Restored(p, from, took)
	}
}

func (l *Listener) finishedLoaded(p int32, took time.Duration) {
	if l != nil && l.FinishedLoaded != nil {
		l.FinishedLoaded(p, took)
	}
}

func (l *Listener) snapshotRefused(p int32, why error) {
	if l != nil && l.SnapshotRefused != nil {
		l.SnapshotRefused(p, why)
	}
}

func (l *Listener) storeAhead(p int32, why error) {
	if l != nil && l.StoreAhead != nil {
		l.StoreAhead(p, why)
	}
}

func (l *Listener) snapshotFailed(p int32, why error) {
	if l != nil && l.SnapshotFailed != nil {
		l.SnapshotFailed(p, why)
	}
}

func (l *Listener) lost(p int32) {
	if l != nil && l.Lost != nil {
		l.Lost(p)
	}
}

func (l *Listener) committed(tx *transaction) {
	if l == nil || l.Committed == nil {
		return
	}
	c := &tx.counts
	l.Committed(Committed{Inputs: c.inputs, Records: len(tx.out), EventBytes: c.eventBytes,
		SnapshotBytes: c.snapshotBytes, Snapshots: c.snapshots, Reflected: c.reflected, Forwarded: c.forwarded,
		Recoveries: c.recoveries, Ended: c.ended, Ignored: c.ignored, Deadletters: c.deadletters})
}

func (l *Listener) commitTook(records int, took time.Duration) {
	if l != nil && l.CommitTook != nil {
		l.CommitTook(records, took)
	}
}

func (l *Listener) aborted() {
	if l != nil && l.Aborted != nil {
		l.Aborted()
	}
}

func (l *Listener) recordRefused(topic string, err error) {
	if l != nil && l.RecordRefused != nil {
		l.RecordRefused(topic, err)
	}
}

func (l *Listener) partitionPaused(p int32, wait time.Duration) {
	if l != nil && l.PartitionPaused != nil {
		l.PartitionPaused(p, wait)
	}
}

func (l *Listener) requestTopicsFailed(err error) {
	if l != nil && l.RequestTopicsFailed != nil {
		l.RequestTopicsFailed(err)
	}
}

func (l *Listener) definitionsReadFailed(err error) {
	if l != nil && l.DefinitionsReadFailed != nil {
		l.DefinitionsReadFailed(err)
	}
}

func (l *Listener) admission(owner string, open bool, counted int, busiest []string) {
	if l != nil && l.Admission != nil {
		l.Admission(owner, open, counted, busiest)
	}
}

func (l *Listener) agents(owner string, agents func() []AgentFlow) {
	if l != nil && l.Agents != nil {
		l.Agents(owner, agents())
	}
}

func (l *Listener) workerFailed(owner string, err error) {
	if l != nil && l.WorkerFailed != nil {
		l.WorkerFailed(owner, err)
	}
}

func (l *Listener) skew(offset time.Duration) {
	if l != nil && l.Skew != nil {
		l.Skew(offset)
	}
}

func (l *Listener) recreated(p int32, topic string, reflected int64, was, is string) {
	if l != nil && l.Recreated != nil {
		l.Recreated(p, topic, reflected, was, is)
	}
}

func (l *Listener) trimFailed(topic string, err error) {
	if l != nil && l.TrimFailed != nil {
		l.TrimFailed(topic, err)
	}
}

func (l *Listener) undelivered(topic string, err error) {
	if l != nil && l.Undelivered != nil {
		l.Undelivered(topic, err)
	}
}

func (l *Listener) delivered() {
	if l != nil && l.Delivered != nil {
		l.Delivered()
	}
}

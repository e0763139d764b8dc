package scheduler

import (
	"time"

	"github.com/waybill-run/waybill/events"
)

// Listener observes a scheduler; a nil one, and nil fields, are fine. Its funcs
// are called from the workers' goroutines and must not block.
type Listener struct {
	// Assigned, Restored and Lost tell a partition's way through a worker.
	Assigned func(partition int32)
	Restored func(partition int32, from Source, took time.Duration)
	Lost     func(partition int32)
	// Loaded: the ids of finished tasks have come too, for which tasks waited.
	FinishedLoaded func(partition int32, took time.Duration)
	// SnapshotRefused: a partition's snapshot can't be used, and why; the log is
	// read instead.
	SnapshotRefused func(partition int32, why error)
	// StoreAhead: the store of a partition has what the log hasn't committed, as why says. It is dropped, and the
	// partition restored from the log.
	StoreAhead func(partition int32, why error)
	// SnapshotFailed: no snapshot is written of a partition, and why.
	SnapshotFailed func(partition int32, why error)
	// Committed is called after each transaction.
	Committed func(Committed)
	// Took is how long a transaction of so many records took to commit.
	CommitTook func(records int, took time.Duration)
	// Aborted: a transaction was rolled back; its inputs come again.
	Aborted func()
	// Refused: the cluster would not take a record.
	RecordRefused func(topic string, err error)
	// PartitionPaused: a partition's inboxes wait, since the cluster refused twice or more in a row what follows
	// from their records. The worker's other partitions go on.
	PartitionPaused func(partition int32, wait time.Duration)
	// RequestTopicsFailed: the agents' topics can't be listed. Those that were known are used.
	RequestTopicsFailed func(err error)
	// DefinitionsReadFailed: the definitions can't be read to their end. Submissions of workflows that
	// aren't known wait, with those behind them.
	DefinitionsReadFailed func(err error)
	// Admission of a worker opens or closes, with so much counted against Config.MaxRunnable. busiest are the
	// agents with most at work and waiting. A worker that ends opens it.
	Admission func(owner string, open bool, counted int, busiest []string)
	// Agents is what a worker knows of its agents, by owner, about once a second;
	// none when it ends.
	Agents func(owner string, agents []AgentFlow)
	// WorkerFailed: a worker closes its client and begins anew.
	WorkerFailed func(owner string, err error)
	// StoreFailed: a partition that went could not be saved; it will be read
	// from the log again.
	StoreFailed func(err error)
	// Skew: the local clock is this far from the broker's.
	Skew func(offset time.Duration)
	// Recreated: an inbox is another topic than the one whose records below an offset are reflected. It is read
	// from its start.
	Recreated func(partition int32, topic string, reflected int64, was, is string)
	// TrimFailed: an inbox could not be trimmed; it is tried again.
	TrimFailed func(topic string, err error)
	// Undelivered: a notification was dead-lettered.
	Undelivered func(topic string, err error)
	// Delivered: a notification reached its reply_to.
	Delivered func()
}

// Source is where a partition's tasks came from, beside the end of the log.
type Source string

// The sources of a restore.
const (
	FromDisk     Source = "disk"
	FromSnapshot Source = "snapshot"
	FromLog      Source = "log" // all of it
)

// AgentFlow is how the partitions of a worker use an agent.
type AgentFlow struct {
	Agent       string
	Outstanding int  // requests whose attempt runs
	Limit       int  // of those, at most, beside the first attempts of undos
	Queued      int  // steps that wait for a slot
	Silent      bool // only probes go out
}

// Committed is what one transaction did.
type Committed struct {
	Inputs     int // records consumed
	Records    int // records written
	EventBytes int // of the values of events among them
	// SnapshotBytes of the values of snapshots among them, and Snapshots that they
	// ended.
	SnapshotBytes, Snapshots int

	Reflected   int // inputs skipped: the state had them already
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

func (l *Listener) storeFailed(err error) {
	if l != nil && l.StoreFailed != nil {
		l.StoreFailed(err)
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

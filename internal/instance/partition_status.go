package instance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

const (
	// restoreLogEvery is how often the log reports the progress of a restore.
	restoreLogEvery = 10 * time.Second
	// restoreReportWithin bounds a commit of reports, and is the pause after one that failed.
	restoreReportWithin = 5 * time.Second
)

// partitionStatus is what a scheduler process knows about its partitions, besides their tasks: the progress of
// long restores, and why an inbox isn't read. It reports restores in the log, in metrics and in a consumer group
// (kafkaadmin.RestoreProgress), where other processes can read them. The stall check (stallWatch) uses the rest.
type partitionStatus struct {
	n            *Instance
	writeReports func(context.Context, map[int32]kafkaadmin.RestoreProgress) error
	// committedEvents reports which of some events of a partition the log contains.
	committedEvents func(ctx context.Context, p int32, offsets []int64) (has map[int64]bool, stable int64, err error)
	reportDue       chan struct{} // holds a value while dueReports isn't empty

	mu           sync.Mutex
	workers      map[string]member                    // by owner
	loggedAt     map[int32]time.Time                  // by partition; only of restores that take long
	lastReports  map[int32]kafkaadmin.RestoreProgress // the latest report of restores that have not ended
	dueReports   map[int32]kafkaadmin.RestoreProgress // reports to be written
	pastSnapshot map[int32]bool                       // partitions that act, or restore from events; snapshot records may still arrive for them
	// pausedUntil is when the pause of a partition's inboxes ends; see paused.
	pausedUntil         map[int32]time.Time
	loading             map[int32]bool        // the partition's finished tasks are not loaded yet
	moves               map[int32]restoreMove // latest progress of each restore
	pending             map[int32]bool        // assigned partitions that don't act yet
	movedAt             time.Time             // latest progress or end of any restore of this process
	pausedWorkers       map[string]bool       // owners whose worker accepts no submissions
	corruptInboxes      map[inbox]error       // unreadable, until a record is read or the partition is assigned again
	cutInboxes          map[inbox]error       // log ends below the position; not read until the partition is assigned again
	definitionsFailedAt time.Time             // latest failure to read the definitions
}

// restoreMove is the offset that a restore has reached, and when it last changed.
type restoreMove struct {
	next int64
	at   time.Time
}

// member is a worker as a group member.
type member interface {
	Member(partition int32) (id string, owns bool)
}

func newPartitionStatus(n *Instance) *partitionStatus {
	return &partitionStatus{n: n, writeReports: n.Admin.PublishRestoreProgress, reportDue: make(chan struct{}, 1), workers: map[string]member{},
		loggedAt: map[int32]time.Time{}, lastReports: map[int32]kafkaadmin.RestoreProgress{}, dueReports: map[int32]kafkaadmin.RestoreProgress{}, pastSnapshot: map[int32]bool{},
		pausedUntil: map[int32]time.Time{}, loading: map[int32]bool{}, moves: map[int32]restoreMove{}, pending: map[int32]bool{}, corruptInboxes: map[inbox]error{}, cutInboxes: map[inbox]error{}, pausedWorkers: map[string]bool{}}
}

// workerOpened records an owner's new worker.
func (s *partitionStatus) workerOpened(owner string, l member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[owner] = l
}

// workerFailed records that an owner's worker ended. It owns nothing until another is opened.
func (s *partitionStatus) workerFailed(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, owner)
}

// restoreProgressed is the Progress of a logreader.RestoreListener.
func (s *partitionStatus) restoreProgressed(topic string, p int32, next, end int64, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if move, is := s.moves[p]; !is || move.next != next {
		s.movedAt = time.Now()
		s.moves[p] = restoreMove{next, s.movedAt}
	}
	if now := time.Now(); now.Sub(s.loggedAt[p]) >= restoreLogEvery {
		s.loggedAt[p] = now
		log := s.n.log.With("topic", topic, "partition", p, "next", next, "end", end)
		if trouble != nil {
			log.Warn("restore of a partition makes no progress", "error", trouble)
		} else {
			log.Info("a partition is being restored")
		}
	}
	if topic != s.n.Kafka.Namespace.Events() {
		// Offsets of a snapshot say nothing about events. No event was read yet.
		if s.pastSnapshot[p] {
			return
		}
		next, end = 0, 1
	} else {
		s.n.metrics.restoring.WithLabelValues(strconv.Itoa(int(p))).Set(float64(end - next))
		s.pastSnapshot[p] = true
	}
	for _, l := range s.workers {
		if id, owns := l.Member(p); owns {
			s.lastReports[p] = kafkaadmin.RestoreProgress{Member: id, Next: next, End: end}
			s.queueReport(p, s.lastReports[p])
		}
	}
}

// restoreStarted records that a partition was assigned and is to be restored.
func (s *partitionStatus) restoreStarted(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[p] = true
}

// restoreEnded records that a partition is restored and acts.
func (s *partitionStatus) restoreEnded(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, p)
	delete(s.corruptInboxes, inbox{s.n.Kafka.Namespace.Events(), p})
	s.movedAt = time.Now()
	if s.forgetRestore(p) {
		s.n.log.Info("partition is restored", "partition", p)
	}
	s.pastSnapshot[p] = true
	if r, was := s.lastReports[p]; was {
		delete(s.lastReports, p)
		r.Next = r.End
		s.queueReport(p, r)
	}
}

// partitionLost records that a partition was revoked. Its latest report names a member that doesn't own it any
// more. If the partition returns to the same member, restoreEnded corrects the report.
func (s *partitionStatus) partitionLost(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetRestore(p)
	delete(s.pastSnapshot, p)
	delete(s.dueReports, p) // its next owner reports it
	delete(s.pausedUntil, p)
	delete(s.loading, p)
	delete(s.pending, p)
}

// clearFaults forgets read faults of partitions that were assigned to a worker. Faults that persist are reported
// again.
func (s *partitionStatus) clearFaults(ps []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range []map[inbox]error{s.corruptInboxes, s.cutInboxes} {
		maps.DeleteFunc(of, func(at inbox, _ error) bool { return slices.Contains(ps, at.partition%s.n.Partitions) })
	}
}

// inboxProgressed records that the group's offset of an inbox has advanced: the inbox is readable, and so are the
// events of its partition.
func (s *partitionStatus) inboxProgressed(at inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.corruptInboxes, at)
	delete(s.corruptInboxes, inbox{s.n.Kafka.Namespace.Events(), at.partition % s.n.Partitions})
}

// recordCut records an inbox whose log ends below the position up to which it was read.
func (s *partitionStatus) recordCut(at groupmember.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutInboxes[inbox{at.Topic, at.Partition}] = fmt.Errorf("%s/%d ends at %d, below the position up to which it was read: it was truncated or restored from a copy", at.Topic, at.Partition, at.End)
}

// recordCorrupt records that a broker returned records of a partition that can't be read.
func (s *partitionStatus) recordCorrupt(topic string, p int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corruptInboxes[inbox{topic, p}] = err
}

// readFault returns why nothing can be read from an inbox or from the events of its partition, or nil.
func (s *partitionStatus) readFault(topic string, p int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.cutInboxes[inbox{topic, p}], s.corruptInboxes[inbox{topic, p}], s.corruptInboxes[inbox{s.n.Kafka.Namespace.Events(), p % s.n.Partitions}])
}

// pauseFor records that the inboxes of a partition are paused for about wait.
func (s *partitionStatus) pauseFor(p int32, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pausedUntil[p] = time.Now().Add(wait + s.n.stallCheckEvery())
}

// setLoading records whether finished tasks of a partition are still to be loaded.
func (s *partitionStatus) setLoading(p int32, loading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movedAt = time.Now()
	if delete(s.loading, p); loading {
		s.loading[p] = true
	}
}

// definitionsReadFailed records that submissions of unknown workflows have to wait.
func (s *partitionStatus) definitionsReadFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definitionsFailedAt = time.Now()
}

// setAdmission records whether a worker accepts submissions.
func (s *partitionStatus) setAdmission(owner string, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.pausedWorkers, owner); !open {
		s.pausedWorkers[owner] = true
	}
}

// paused reports whether an inbox is paused on purpose. Reasons: a pause after refused records, a restore that
// makes progress or waits for others, unread definitions, or that its worker accepts no submissions.
func (s *partitionStatus) paused(topic string, p int32) bool {
	p %= s.n.Partitions
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := time.Now(), s.n.stallCheckEvery()
	if owner, owns := s.ownerLocked(p); owns && s.pausedWorkers[owner] && topic == s.n.Kafka.Namespace.Inbox(events.Tasks) {
		return true
	}
	move, restores := s.moves[p]
	return s.loading[p] || now.Sub(s.definitionsFailedAt) < stallLogChecks*every || now.Before(s.pausedUntil[p]) ||
		restores && now.Sub(move.at) < every || s.pending[p] && now.Sub(s.movedAt) < stallLogChecks*every
}

// owner returns the worker of this process that owns a partition.
func (s *partitionStatus) owner(p int32) (owner string, owns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownerLocked(p)
}

func (s *partitionStatus) ownerLocked(p int32) (owner string, owns bool) {
	for owner, l := range s.workers {
		if _, owns := l.Member(p); owns {
			return owner, true
		}
	}
	return "", false
}

// closeWorker closes the client of a worker, which ends its loop with an error.
func (s *partitionStatus) closeWorker(owner string) {
	s.mu.Lock()
	l, is := s.workers[owner].(interface{ Close() })
	s.mu.Unlock()
	if is {
		l.Close()
	}
}

// forgetRestore drops what is known of a partition's restore, and reports whether it took long.
func (s *partitionStatus) forgetRestore(p int32) (long bool) {
	delete(s.moves, p)
	if _, long = s.loggedAt[p]; long {
		delete(s.loggedAt, p)
		s.n.metrics.restoring.DeleteLabelValues(strconv.Itoa(int(p)))
	}
	return long
}

// queueReport queues a report to be written by runReports.
func (s *partitionStatus) queueReport(p int32, r kafkaadmin.RestoreProgress) {
	s.dueReports[p] = r
	select {
	case s.reportDue <- struct{}{}:
	default: // a value is pending
	}
}

// runReports writes queued reports until ctx ends.
func (s *partitionStatus) runReports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reportDue:
		}
		if err := s.commitReports(ctx); err != nil && ctx.Err() == nil {
			s.n.log.Info("progress of restores not written; it is retried", "error", err)
			_ = backoff.Sleep(ctx, restoreReportWithin)
		}
	}
}

// commitReports writes the queued reports. If that fails it queues them again, except those that are outdated.
func (s *partitionStatus) commitReports(ctx context.Context) error {
	s.mu.Lock()
	saying := s.dueReports
	s.dueReports = map[int32]kafkaadmin.RestoreProgress{}
	s.mu.Unlock()
	if len(saying) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoreReportWithin)
	defer cancel()
	err := s.writeReports(ctx, saying)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, r := range saying {
		if _, newer := s.dueReports[p]; !newer && s.memberOwns(p, r.Member) {
			s.queueReport(p, r)
		}
	}
	return err
}

// memberOwns reports whether a member of this process owns a partition.
func (s *partitionStatus) memberOwns(p int32, id string) bool {
	for _, l := range s.workers {
		if now, owns := l.Member(p); owns && now == id {
			return true
		}
	}
	return false
}

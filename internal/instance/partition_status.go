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
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// restoringLoggedEvery is how often the log says how far a restore is.
	restoreLogEvery = 10 * time.Second
	// restoringShownWithin bounds a commit of that, and is the pause after one that failed.
	restoreReportWithin = 5 * time.Second
)

// restoring tells how far the restores of a process's partitions are, of those that take long:
// in its log, its metrics, and to whoever looks at the group of restores (kafka.Restore).
type partitionStatus struct {
	n            *Instance
	writeReports func(context.Context, map[int32]kafka.Restore) error
	reportDue    chan struct{} // holds one while something is due

	mu           sync.Mutex
	workers      map[string]member       // by owner
	loggedAt     map[int32]time.Time     // by partition; of those whose restore has taken long so far
	lastReports  map[int32]kafka.Restore // what was said last of those whose end was not
	dueReports   map[int32]kafka.Restore // what is to be said
	pastSnapshot map[int32]bool          // partitions that act, or read events: more of their snapshots may come beside
	// waits are the inboxes that are paused on purpose, until when; see paused. full: workers that take no submissions.
	pausedUntil         map[int32]time.Time
	loading             map[int32]bool // finished tasks of the partition are still to come
	moves               map[int32]restoreMove
	pending             map[int32]bool // partitions that came and don't act yet: restored now, or once it's their turn
	movedAt             time.Time      // when a restore of this process went on, or ended, last
	pausedWorkers       map[string]bool
	corruptInboxes      map[inbox]error // what can't be read, until something of it is, or its partition is assigned again
	cutInboxes          map[inbox]error // what isn't read, until its partition is assigned again
	definitionsFailedAt time.Time       // when definitions couldn't be read last
}

// restoreMove is how far a restore was, and when that changed last.
type restoreMove struct {
	next int64
	at   time.Time
}

// member is a worker, as its group knows it.
type member interface {
	Member(partition int32) (id string, owns bool)
}

func newPartitionStatus(n *Instance) *partitionStatus {
	return &partitionStatus{n: n, writeReports: n.Admin.ShowRestores, reportDue: make(chan struct{}, 1), workers: map[string]member{},
		loggedAt: map[int32]time.Time{}, lastReports: map[int32]kafka.Restore{}, dueReports: map[int32]kafka.Restore{}, pastSnapshot: map[int32]bool{},
		pausedUntil: map[int32]time.Time{}, loading: map[int32]bool{}, moves: map[int32]restoreMove{}, pending: map[int32]bool{}, corruptInboxes: map[inbox]error{}, cutInboxes: map[inbox]error{}, pausedWorkers: map[string]bool{}}
}

// opened takes note of the worker that an owner has now.
func (s *partitionStatus) workerOpened(owner string, l member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[owner] = l
}

// failed: an owner's worker ended. It owns nothing until another is opened.
func (s *partitionStatus) workerFailed(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, owner)
}

// underWay is a kafka.RestoreListener's.
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
			log.Warn("a partition is being restored, and stands still", "error", trouble)
		} else {
			log.Info("a partition is being restored")
		}
	}
	if topic != s.n.Kafka.Namespace.Events() {
		// Of a snapshot, whose offsets say nothing of the events. While it is read, or waited for, nothing of those was.
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
			s.lastReports[p] = kafka.Restore{Member: id, Next: next, End: end}
			s.queueReport(p, s.lastReports[p])
		}
	}
}

// came: the partition is to be restored.
func (s *partitionStatus) restoreStarted(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[p] = true
}

// restored: the partition acts.
func (s *partitionStatus) restoreEnded(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, p)
	delete(s.corruptInboxes, inbox{s.n.Kafka.Namespace.Events(), p})
	s.movedAt = time.Now()
	if s.forgetRestore(p) {
		s.n.log.Info("the partition is restored", "partition", p)
	}
	s.pastSnapshot[p] = true
	if r, was := s.lastReports[p]; was {
		delete(s.lastReports, p)
		r.Next = r.End
		s.queueReport(p, r)
	}
}

// lost: the partition went. What was said last of it names a member that doesn't have it any
// more; should it come back to the same, restored sets that right.
func (s *partitionStatus) partitionLost(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetRestore(p)
	delete(s.pastSnapshot, p)
	delete(s.dueReports, p) // it is its next owner's to say
	delete(s.pausedUntil, p)
	delete(s.loading, p)
	delete(s.pending, p)
}

// readable: partitions are assigned to a worker. What is wrong with their inboxes is told of again.
func (s *partitionStatus) clearFaults(ps []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range []map[inbox]error{s.corruptInboxes, s.cutInboxes} {
		maps.DeleteFunc(of, func(at inbox, _ error) bool { return slices.Contains(ps, at.partition%s.n.Partitions) })
	}
}

// committed: the group's offset of an inbox has moved, so it was read, and the events beside it.
func (s *partitionStatus) inboxProgressed(at inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.corruptInboxes, at)
	delete(s.corruptInboxes, inbox{s.n.Kafka.Namespace.Events(), at.partition % s.n.Partitions})
}

// cutOff records an inbox whose log ends below what was read of it.
func (s *partitionStatus) recordCut(at kafka.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutInboxes[inbox{at.Topic, at.Partition}] = fmt.Errorf("%s/%d ends at %d, below what was read of it: it was cut off, or brought back from a copy", at.Topic, at.Partition, at.End)
}

// damaged records what the broker has of a partition and can't be read.
func (s *partitionStatus) recordCorrupt(topic string, p int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corruptInboxes[inbox{topic, p}] = err
}

// unreadable is why nothing can be read of an inbox, or of the events beside it; nil: it can.
func (s *partitionStatus) readFault(topic string, p int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.cutInboxes[inbox{topic, p}], s.corruptInboxes[inbox{topic, p}], s.corruptInboxes[inbox{s.n.Kafka.Namespace.Events(), p % s.n.Partitions}])
}

// waitsFor records that a partition's inboxes wait, on purpose, for about so long.
func (s *partitionStatus) pauseFor(p int32, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pausedUntil[p] = time.Now().Add(wait + s.n.stallCheckEvery())
}

// loads records that finished tasks of a partition are to come, or have come.
func (s *partitionStatus) setLoading(p int32, loading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movedAt = time.Now()
	if delete(s.loading, p); loading {
		s.loading[p] = true
	}
}

// definitionsUnread records that submissions of unknown workflows wait.
func (s *partitionStatus) definitionsReadFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definitionsFailedAt = time.Now()
}

// admission records whether a worker takes submissions.
func (s *partitionStatus) setAdmission(owner string, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.pausedWorkers, owner); !open {
		s.pausedWorkers[owner] = true
	}
}

// paused reports whether nothing is read of an inbox on purpose: it waits for its turn, or its partition is
// being restored and that goes on, or waits until others are.
func (s *partitionStatus) paused(topic string, p int32) bool {
	p %= s.n.Partitions
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := time.Now(), s.n.stallCheckEvery()
	if topic == s.n.Kafka.Namespace.Inbox(events.Tasks) && len(s.pausedWorkers) > 0 {
		return true
	}
	move, restores := s.moves[p]
	return s.loading[p] || now.Sub(s.definitionsFailedAt) < stallLogChecks*every || now.Before(s.pausedUntil[p]) ||
		restores && now.Sub(move.at) < every || s.pending[p] && now.Sub(s.movedAt) < stallLogChecks*every
}

// owner is the worker of this process that owns a partition.
func (s *partitionStatus) owner(p int32) (owner string, owns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, l := range s.workers {
		if _, owns := l.Member(p); owns {
			return owner, true
		}
	}
	return "", false
}

// close closes the client of a worker, which ends its loop with an error.
func (s *partitionStatus) closeWorker(owner string) {
	s.mu.Lock()
	l, is := s.workers[owner].(interface{ Close() })
	s.mu.Unlock()
	if is {
		l.Close()
	}
}

// over ends what is kept of a partition's restore, and reports whether that took long.
func (s *partitionStatus) forgetRestore(p int32) (long bool) {
	delete(s.moves, p)
	if _, long = s.loggedAt[p]; long {
		delete(s.loggedAt, p)
		s.n.metrics.restoring.DeleteLabelValues(strconv.Itoa(int(p)))
	}
	return long
}

func (s *partitionStatus) queueReport(p int32, r kafka.Restore) {
	s.dueReports[p] = r
	select {
	case s.reportDue <- struct{}{}:
	default: // it holds one
	}
}

// run says what is due until ctx ends.
func (s *partitionStatus) runReports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reportDue:
		}
		if err := s.commitReports(ctx); err != nil && ctx.Err() == nil {
			s.n.log.Info("how far restores are can't be shown; it is tried again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(restoreReportWithin):
			}
		}
	}
}

func (s *partitionStatus) commitReports(ctx context.Context) error {
	s.mu.Lock()
	saying := s.dueReports
	s.dueReports = map[int32]kafka.Restore{}
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

// owns reports whether a member of this process has a partition.
func (s *partitionStatus) memberOwns(p int32, id string) bool {
	for _, l := range s.workers {
		if now, owns := l.Member(p); owns && now == id {
			return true
		}
	}
	return false
}

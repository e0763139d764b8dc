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
	restoringLoggedEvery = 10 * time.Second
	// restoringShownWithin bounds a commit of that, and is the pause after one that failed.
	restoringShownWithin = 5 * time.Second
)

// restoring tells how far the restores of a process's partitions are, of those that take long:
// in its log, its metrics, and to whoever looks at the group of restores (kafka.Restore).
type restoring struct {
	n     *Instance
	write func(context.Context, map[int32]kafka.RestoreProgress) error
	// committedEvents says which events of a partition the log has.
	committedEvents func(ctx context.Context, p int32, offsets []int64) (has map[int64]bool, stable int64, err error)
	soon            chan struct{} // holds one while something is due

	mu      sync.Mutex
	workers map[string]member               // by owner
	logged  map[int32]time.Time             // by partition; of those whose restore has taken long so far
	shown   map[int32]kafka.RestoreProgress // what was said last of those whose end was not
	due     map[int32]kafka.RestoreProgress // what is to be said
	past    map[int32]bool                  // partitions that act, or read events: more of their snapshots may come beside
	// waits are the inboxes that are paused on purpose, until when; see paused. full: workers that take no submissions.
	waits   map[int32]time.Time
	loading map[int32]bool // finished tasks of the partition are still to come
	moving  map[int32]restoreMove
	pending map[int32]bool // partitions that came and don't act yet: restored now, or once it's their turn
	went    time.Time      // when a restore of this process went on, or ended, last
	full    map[string]bool
	broken  map[inbox]error // what can't be read, until something of it is, or its partition is assigned again
	cut     map[inbox]error // what isn't read, until its partition is assigned again
	unread  time.Time       // when definitions couldn't be read last
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

func newRestoring(n *Instance) *restoring {
	return &restoring{n: n, write: n.Admin.PublishRestoreProgress, soon: make(chan struct{}, 1), workers: map[string]member{},
		logged: map[int32]time.Time{}, shown: map[int32]kafka.RestoreProgress{}, due: map[int32]kafka.RestoreProgress{}, past: map[int32]bool{},
		waits: map[int32]time.Time{}, loading: map[int32]bool{}, moving: map[int32]restoreMove{}, pending: map[int32]bool{}, broken: map[inbox]error{}, cut: map[inbox]error{}, full: map[string]bool{}}
}

// opened takes note of the worker that an owner has now.
func (s *restoring) opened(owner string, l member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[owner] = l
}

// failed: an owner's worker ended. It owns nothing until another is opened.
func (s *restoring) failed(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, owner)
}

// underWay is a kafka.RestoreListener's.
func (s *restoring) underWay(topic string, p int32, next, end int64, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if move, is := s.moving[p]; !is || move.next != next {
		s.went = time.Now()
		s.moving[p] = restoreMove{next, s.went}
	}
	if now := time.Now(); now.Sub(s.logged[p]) >= restoringLoggedEvery {
		s.logged[p] = now
		log := s.n.log.With("topic", topic, "partition", p, "next", next, "end", end)
		if trouble != nil {
			log.Warn("a partition is being restored, and stands still", "error", trouble)
		} else {
			log.Info("a partition is being restored")
		}
	}
	if topic != s.n.Kafka.Namespace.Events() {
		// Of a snapshot, whose offsets say nothing of the events. While it is read, or waited for, nothing of those was.
		if s.past[p] {
			return
		}
		next, end = 0, 1
	} else {
		s.n.metrics.restoring.WithLabelValues(strconv.Itoa(int(p))).Set(float64(end - next))
		s.past[p] = true
	}
	for _, l := range s.workers {
		if id, owns := l.Member(p); owns {
			s.shown[p] = kafka.RestoreProgress{Member: id, Next: next, End: end}
			s.say(p, s.shown[p])
		}
	}
}

// came: the partition is to be restored.
func (s *restoring) came(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[p] = true
}

// restored: the partition acts.
func (s *restoring) restored(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, p)
	delete(s.broken, inbox{s.n.Kafka.Namespace.Events(), p})
	s.went = time.Now()
	if s.over(p) {
		s.n.log.Info("the partition is restored", "partition", p)
	}
	s.past[p] = true
	if r, was := s.shown[p]; was {
		delete(s.shown, p)
		r.Next = r.End
		s.say(p, r)
	}
}

// lost: the partition went. What was said last of it names a member that doesn't have it any
// more; should it come back to the same, restored sets that right.
func (s *restoring) lost(p int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over(p)
	delete(s.past, p)
	delete(s.due, p) // it is its next owner's to say
	delete(s.waits, p)
	delete(s.loading, p)
	delete(s.pending, p)
}

// readable: partitions are assigned to a worker. What is wrong with their inboxes is told of again.
func (s *restoring) readable(ps []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range []map[inbox]error{s.broken, s.cut} {
		maps.DeleteFunc(of, func(at inbox, _ error) bool { return slices.Contains(ps, at.partition%s.n.Partitions) })
	}
}

// committed: the group's offset of an inbox has moved, so it was read, and the events beside it.
func (s *restoring) committed(at inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.broken, at)
	delete(s.broken, inbox{s.n.Kafka.Namespace.Events(), at.partition % s.n.Partitions})
}

// cutOff records an inbox whose log ends below what was read of it.
func (s *restoring) cutOff(at kafka.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[inbox{at.Topic, at.Partition}] = fmt.Errorf("%s/%d ends at %d, below what was read of it: it was cut off, or brought back from a copy", at.Topic, at.Partition, at.End)
}

// damaged records what the broker has of a partition and can't be read.
func (s *restoring) damaged(topic string, p int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[inbox{topic, p}] = err
}

// unreadable is why nothing can be read of an inbox, or of the events beside it; nil: it can.
func (s *restoring) unreadable(topic string, p int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.cut[inbox{topic, p}], s.broken[inbox{topic, p}], s.broken[inbox{s.n.Kafka.Namespace.Events(), p % s.n.Partitions}])
}

// waitsFor records that a partition's inboxes wait, on purpose, for about so long.
func (s *restoring) waitsFor(p int32, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[p] = time.Now().Add(wait + s.n.standingEvery())
}

// loads records that finished tasks of a partition are to come, or have come.
func (s *restoring) loads(p int32, loading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.went = time.Now()
	if delete(s.loading, p); loading {
		s.loading[p] = true
	}
}

// definitionsUnread records that submissions of unknown workflows wait.
func (s *restoring) definitionsUnread() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = time.Now()
}

// admission records whether a worker takes submissions.
func (s *restoring) admission(owner string, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.full, owner); !open {
		s.full[owner] = true
	}
}

// paused reports whether nothing is read of an inbox on purpose: it waits for its turn, or its partition is
// being restored and that goes on, or waits until others are.
func (s *restoring) paused(topic string, p int32) bool {
	p %= s.n.Partitions
	s.mu.Lock()
	defer s.mu.Unlock()
	now, every := time.Now(), s.n.standingEvery()
	if topic == s.n.Kafka.Namespace.Inbox(events.Tasks) && len(s.full) > 0 {
		return true
	}
	move, restores := s.moving[p]
	return s.loading[p] || now.Sub(s.unread) < standingTold*every || now.Before(s.waits[p]) ||
		restores && now.Sub(move.at) < every || s.pending[p] && now.Sub(s.went) < standingTold*every
}

// owner is the worker of this process that owns a partition.
func (s *restoring) owner(p int32) (owner string, owns bool) {
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
func (s *restoring) close(owner string) {
	s.mu.Lock()
	l, is := s.workers[owner].(interface{ Close() })
	s.mu.Unlock()
	if is {
		l.Close()
	}
}

// over ends what is kept of a partition's restore, and reports whether that took long.
func (s *restoring) over(p int32) (long bool) {
	delete(s.moving, p)
	if _, long = s.logged[p]; long {
		delete(s.logged, p)
		s.n.metrics.restoring.DeleteLabelValues(strconv.Itoa(int(p)))
	}
	return long
}

func (s *restoring) say(p int32, r kafka.RestoreProgress) {
	s.due[p] = r
	select {
	case s.soon <- struct{}{}:
	default: // it holds one
	}
}

// run says what is due until ctx ends.
func (s *restoring) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.soon:
		}
		if err := s.commit(ctx); err != nil && ctx.Err() == nil {
			s.n.log.Info("how far restores are can't be shown; it is tried again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(restoringShownWithin):
			}
		}
	}
}

func (s *restoring) commit(ctx context.Context) error {
	s.mu.Lock()
	saying := s.due
	s.due = map[int32]kafka.RestoreProgress{}
	s.mu.Unlock()
	if len(saying) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restoringShownWithin)
	defer cancel()
	err := s.write(ctx, saying)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, r := range saying {
		if _, newer := s.due[p]; !newer && s.owns(p, r.Member) {
			s.say(p, r)
		}
	}
	return err
}

// owns reports whether a member of this process has a partition.
func (s *restoring) owns(p int32, id string) bool {
	for _, l := range s.workers {
		if now, owns := l.Member(p); owns && now == id {
			return true
		}
	}
	return false
}

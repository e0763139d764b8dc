package schedulerworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/inboxgate"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/listener"
)

const (
	// flushPerTransaction: all output must be acknowledged within this part of the transaction timeout, so that one
	// unavailable topic can't block a worker until the broker aborts.
	flushPerTransaction = 3
	// metadataAgeMax bounds how late added partitions are noticed.
	metadataAgeMax = 30 * time.Second
	// workerMetadataAgeMin is less than MetadataAgeMin: a worker's output waits for new metadata after each retriable
	// refusal. Examples are a leader change and, with several brokers, markers of the previous transaction that are
	// still being written.
	workerMetadataAgeMin = 25 * time.Millisecond
	// unknownTopicTries is how often a topic may be unknown: the broker asked first may need half a second to learn of
	// a new topic. With the client's default, a missing topic in a transaction blocks its flush forever.
	unknownTopicTries = 20
	// recordsBufferedMax is how many records of one transaction may be buffered. More block the Commit, within the time
	// that its flush may take.
	recordsBufferedMax = 100_000
	// endWait bounds how long Close waits for the end of the open transaction.
	endWait = 2 * time.Second
)

// Config configures a worker.
type Config struct {
	kafka.Config
	// Group is the consumer group.
	Group string
	// Owner is the worker's unique name in the namespace. Its transactional id is Namespace + Role + "." + Owner, so
	// opening a worker fences an earlier one with the same owner.
	Owner string
	// InstanceID makes a static member, which keeps its partitions if it opens again within the session timeout; empty:
	// a dynamic member.
	InstanceID string
	// LeaveOnClose reports, when the worker closes, whether a static member leaves its group, so that its partitions
	// are reassigned at once. Nil: it stays.
	LeaveOnClose func() bool
	// Topics are the inboxes. They are co-partitioned: each has Partitions partitions.
	Topics     []string
	Partitions int32
	// SessionTimeout must be shorter than TransactionTimeout; zero: the
	// defaults. FetchMaxWait bounds Poll.
	SessionTimeout     time.Duration
	TransactionTimeout time.Duration
	FetchMaxWait       time.Duration
	// MaxPollRecords bounds what one Poll returns; zero: the default.
	MaxPollRecords int
	// Role is the part of the transactional id that follows the namespace; empty: "scheduler".
	Role string
	// AcceptsResets: a position that an operator committed for the group, without the worker's mark, is used. Otherwise it
	// is reported, and the inbox is read from its start.
	AcceptsResets bool
	// Committed says which events of a partition the log has, see Restorer.Committed; nil: commits aren't compared with
	// the log.
	Committed func(ctx context.Context, p int32, offsets []int64) (has map[int64]bool, stable int64, err error)
	// Listener observes the worker. It and its fields may be nil.
	Listener *Listener
}

// Listener observes a worker. Assigned, GroupFailed and SubscriptionMismatch are called from the client's
// goroutines, the others from the worker's; none may block or call the worker.
type Listener struct {
	// Assigned: partitions were assigned or lost.
	Assigned func(added, lost []int32)
	// GroupFailed: the membership ended by err; the client joins again.
	GroupFailed func(err error)
	// SubscriptionMismatch: this worker leads the group, and a member reads other topics.
	SubscriptionMismatch func(member string, topics []string)
	// Committed: a transaction of so many records read and written.
	Committed func(polled, out int, took time.Duration)
	// Aborted: a transaction was rolled back; Poll returns its records again.
	Aborted func(polled int, why string)
	// DataLost: the broker no longer has records that it had acknowledged.
	DataLost func(err error)
	// Corrupt: records in a partition of an inbox were changed after they were written. The partition is paused, and
	// others continue. The worker retries it at intervals that double, and reports each failure.
	Corrupt func(topic string, partition int32, err error)
	// LeaveFailed: the worker is closed, but remains a member until its session times out.
	LeaveFailed func(err error)
	// OffsetsUnstable: an open transaction has kept the offsets of newly assigned partitions unstable for longer
	// than a restore takes to abort it. The client keeps waiting.
	OffsetsUnstable func(partitions []int32)
	// Position: the position of an inbox can't be used as it is. It may also be called from the client's
	// goroutines.
	Position func(at groupmember.Position, fault groupmember.PositionFault)
}

func (c *Config) validate() error {
	var faults []error
	c.SessionTimeout = cmp.Or(c.SessionTimeout, groupmember.DefaultSessionTimeout)
	c.TransactionTimeout = cmp.Or(c.TransactionTimeout, groupmember.DefaultTransactionTimeout)
	c.FetchMaxWait = cmp.Or(c.FetchMaxWait, groupmember.DefaultFetchMaxWait)
	c.MaxPollRecords = cmp.Or(c.MaxPollRecords, groupmember.DefaultMaxPollRecords)
	c.Listener = listener.Complete(c.Listener)
	if c.Group == "" {
		faults = append(faults, errors.New("no consumer group"))
	}
	if c.Owner == "" {
		faults = append(faults, errors.New("no owner: the transactional id is made from it"))
	}
	if len(c.Topics) == 0 {
		faults = append(faults, errors.New("no topics to read"))
	}
	if c.Partitions <= 0 {
		faults = append(faults, fmt.Errorf("%d partitions: give as many as the namespace has", c.Partitions))
	}
	if c.SessionTimeout >= c.TransactionTimeout {
		faults = append(faults, fmt.Errorf("session timeout %v is not shorter than transaction timeout %v: a new owner would wait for the transaction of a dead one", c.SessionTimeout, c.TransactionTimeout))
	}
	if c.MaxPollRecords < 0 || c.FetchMaxWait < 0 {
		faults = append(faults, fmt.Errorf("negative bound: %d records, %v wait", c.MaxPollRecords, c.FetchMaxWait))
	}
	return errors.Join(faults...)
}

// Worker is one transactional consumer-producer: a member of a group that reads the same partition of several topics.
// Its output and its input positions become visible together or not at all.
//
//	for {
//		records, err := worker.Poll(ctx)     // of restored partitions
//		owned := worker.Assigned()           // drop the state of lost partitions
//		...                                // restore new ones, then Resume them for PausedForRestore
//		out := decide(records)
//		committed, err := worker.Commit(ctx, out)
//		...                                // accept the new state, or drop it
//	}
//
// Guarantees:
//
//   - Every committed transaction consumes something, so the group's generation fences all writes of a worker that was
//     removed from the group.
//   - No transaction is committed with records of a partition that was lost after they were polled.
//   - A newly assigned partition is paused for its restore before any of its records can be fetched.
//   - An inbox flows only while no reason pauses it (inboxgate).
//
// One goroutine calls Poll, PollAtMost, Commit, Abort, Assigned, Pause and Resume; Member, TopicID, Reflected, Rewind,
// Wake, Stalled and Close may be called from any.
type Worker struct {
	cfg            Config
	session        *kgo.GroupTransactSession
	balancer       *groupmember.Balancer
	poller         groupmember.Poller
	tail           *brokerclock.Tail
	pendingOffsets pendingOffsets
	positions      positions
	cancelLife     context.CancelFunc // ends every wait of the client
	// duplicateWithin is the constant of that name, unless a test waits longer.
	duplicateWithin time.Duration

	// lastAssigned is the last result of Assigned. Pause and Resume apply to those assignments.
	lastAssigned map[int32]uint64
	// restored are the assignments that were resumed after their restore.
	restored    map[int32]uint64
	gate        *groupmember.Gate
	quarantines groupmember.Quarantines
	// polled counts the records that were returned since the last commit or abort; polledFrom has the assignment number
	// that each partition then had.
	polled     int
	polledFrom map[int32]uint64
	// decidedBy is the clock's offset when the first of them was polled. Another worker of the process may correct
	// the clock meanwhile.
	decidedBy time.Duration
	// mustAbort: the client returned records that Poll withheld, and counts them as read. Only an abort returns
	// them again.
	mustAbort bool
	// sawMarkers: the client returned markers, and counts them as read.
	sawMarkers bool
	// failure is set when only a new worker can continue.
	failure error

	inCommit sync.Mutex // held by Commit and Abort
	// narrow are topics that refused a batch as too large; of the worker's goroutine.
	narrow kafka.NarrowTopics
	// arena has the output records of a transaction, for reuse; nil while the client may still use them.
	arena  []kgo.Record
	closed atomic.Bool

	// opened is the origin of the fields below, which are in nanoseconds of the monotonic clock: a change of the
	// wall clock must not make a busy worker look stalled.
	opened     time.Time
	lastPoll   atomic.Int64
	lastCommit atomic.Int64
	waiting    atomic.Int64 // since when records wait for a commit; 0: none
}

// Open joins the group. It fails if a topic is missing or has fewer partitions, or the cluster can't be reached
// within ctx. The worker exists until Close, even if ctx ends.
func Open(ctx context.Context, cfg Config) (*Worker, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("worker %q of group %q: %w", cfg.Owner, cfg.Group, err)
	}
	ids, err := groupmember.CheckCopartitioned(ctx, cfg.Config, cfg.Topics, cfg.Partitions, true)
	if err != nil {
		return nil, fmt.Errorf("worker %q of group %q: %w", cfg.Owner, cfg.Group, kafka.FinalError(err))
	}
	cfg.Reached = true
	w := &Worker{cfg: cfg, duplicateWithin: duplicateWithin, balancer: groupmember.NewBalancer(cfg.Partitions), restored: map[int32]uint64{}, polledFrom: map[int32]uint64{},
		narrow: kafka.NarrowTopics{}, quarantines: groupmember.Quarantines{}, tail: brokerclock.NewTail(cfg.Clock, cfg.Namespace), pendingOffsets: pendingOffsets{partitions: cfg.Partitions, waiting: map[int32]bool{}}}
	w.gate = groupmember.NewGate(w.balancer, cfg.Topics)
	w.positions = positions{ids: map[string]string{}, fetched: map[kafka.TopicPartition]groupmember.PositionCommit{},
		events: lastEvents{committed: map[int32]int64{}, unconfirmed: map[int32][]int64{}}}
	for topic, id := range ids {
		w.positions.ids[topic] = kafka.FormatTopicID(id)
	}
	w.balancer.SetHooks(cfg.Listener.Assigned, cfg.Listener.GroupFailed, cfg.Listener.SubscriptionMismatch)
	w.balancer.OnAdded = func(_ *kgo.Client, added []int32) {
		w.tail.Forget(added)
		w.pendingOffsets.add(added)
		w.gate.PauseAssigned(added)
	}
	w.balancer.IncludeAdded = true
	w.balancer.Owner = cfg.Owner
	w.opened = time.Now()

	life, cut := context.WithCancel(context.Background())
	session, err := kgo.NewGroupTransactSession(append(clearStableFlag(cfg.Config, w.pendingOffsets.resetStable).ClientOptions(), w.options(life)...)...)
	if err != nil {
		cut()
		return nil, fmt.Errorf("worker %q of group %q: client: %w", cfg.Owner, cfg.Group, err)
	}
	w.session, w.cancelLife = session, cut
	// At once, not with the first output: an open transaction of the previous holder of this id blocks its
	// successors, most often this worker itself.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		_ = groupmember.CloseClient(session.Client(), cut, groupmember.NoMembership)
		return nil, fmt.Errorf("worker %q of group %q: take over its transactional id: %w", cfg.Owner, cfg.Group, kafka.FinalError(err))
	}
	w.poller = groupmember.Poller{Client: session.Client(), Wait: cfg.FetchMaxWait, Max: cfg.MaxPollRecords}
	go w.watchTopics(life)
	return w, nil
}

func (w *Worker) options(life context.Context) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(life),
		kgo.WithHooks(w.balancer, w.tail),
		kgo.MetadataMinAge(workerMetadataAgeMin),
		kgo.MetadataMaxAge(metadataAgeMax),

		kgo.ConsumerGroup(w.cfg.Group),
		kgo.Balancers(w.balancer),
		kgo.ConsumeTopics(w.cfg.Topics...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // commitMarkers commits their positions
		kgo.OnPartitionsAssigned(w.awaitOffsets),
		kgo.OnOffsetsFetched(func(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
			w.positions.recordFetched(resp)
			return nil
		}),
		kgo.AdjustFetchOffsetsFn(w.placeOffsets),
		// Group offsets expire. Records that are read again are recognized by their cause.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		// Outside of the log the worker fails, and a new one decides the position: see JudgePosition.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(w.cfg.FetchMaxWait),
		kgo.FetchMaxPartitionBytes(groupmember.FetchPartitionBytes(len(w.cfg.Topics) * int(w.cfg.Partitions))),
		kgo.SessionTimeout(w.cfg.SessionTimeout),
		kgo.HeartbeatInterval(groupmember.HeartbeatInterval(w.cfg.SessionTimeout)),
		// Ending a transaction delays a rebalance, and is bounded by the transaction timeout.
		kgo.RebalanceTimeout(w.cfg.TransactionTimeout + w.cfg.SessionTimeout),

		kgo.TransactionalID(kafka.RoleTransactionalID(w.cfg.Config, w.cfg.Role, w.cfg.Owner)),
		kgo.TransactionTimeout(w.cfg.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(kafka.TransactionBackoff),
		kgo.RecordPartitioner(kafka.PartitionByKeyOrExplicit()),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(recordsBufferedMax),
		kgo.UnknownTopicRetries(unknownTopicTries - 1),
		kgo.ProduceRequestTimeout(w.flushMax()),
	}
	if w.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(w.cfg.InstanceID))
	}
	if w.cfg.OneBroker {
		// A client that fetches ahead has a small batch at the next poll, which is as old as the transaction in
		// between, and newer records wait for another transaction. With 0 it fetches when it is polled, but from
		// one broker at a time, so it would be slower with several brokers.
		opts = append(opts, kgo.MaxConcurrentFetches(0))
	}
	return opts
}

func (w *Worker) flushMax() time.Duration { return w.cfg.TransactionTimeout / flushPerTransaction }

// home returns the planned partition that p belongs to: p itself, unless it was added to an inbox later.
func (w *Worker) home(p int32) int32 { return p % w.cfg.Partitions }

// Assigned returns what the worker owns: partition -> assignment number. The number changes whenever the partition is
// assigned again after it was not owned; others may have written to it meanwhile. The map must not be modified.
func (w *Worker) Assigned() map[int32]uint64 {
	w.lastAssigned = w.balancer.Assigned()
	return w.lastAssigned
}

// Member returns the worker's member id, and whether it owns a partition now.
func (w *Worker) Member(p int32) (id string, owns bool) {
	return w.balancer.MemberOf(p)
}

// Pause pauses an inbox of p, with its added partitions, for a reason: until a time, or until Resume if that is zero.
// It applies to the assignment of p in the last result of Assigned, and does nothing if that has ended.
// inboxgate.AllPartitions pauses the whole topic, with partitions that are assigned later.
func (w *Worker) Pause(p int32, topic string, why inboxgate.Reason, until time.Time) {
	if p == inboxgate.AllPartitions {
		w.gate.WithGate(func(g *inboxgate.Gate) { g.Pause(inboxgate.Inbox{Topic: topic, Partition: p}, why, until) })
		return
	}
	if n, ok := w.lastAssigned[p]; ok {
		w.gate.Pause(p, n, topic, why, until)
	}
}

// Resume ends a reason for the named inboxes of p, or for all. Each flows if no other reason pauses it. It applies to
// the same assignment as Pause.
func (w *Worker) Resume(p int32, why inboxgate.Reason, topics ...string) {
	if p == inboxgate.AllPartitions {
		w.gate.WithGate(func(g *inboxgate.Gate) {
			for _, topic := range topics {
				g.Resume(inboxgate.Inbox{Topic: topic, Partition: p}, why)
			}
		})
		return
	}
	if n, ok := w.lastAssigned[p]; ok && w.gate.Resume(p, n, why, topics) && why == inboxgate.PausedForRestore {
		w.restored[p] = n
	}
}

// PollAtMost limits the next calls of Poll to n records, below MaxPollRecords; 0 removes the limit.
func (w *Worker) PollAtMost(n int) {
	w.poller.Max = w.cfg.MaxPollRecords
	if n > 0 {
		w.poller.Max = min(n, w.poller.Max)
	}
}

// Wake makes a blocking Poll return at once, or else the next one.
func (w *Worker) Wake() { w.poller.Wake() }

// sinceOpened returns the worker's age in nanoseconds, at least 1.
func (w *Worker) sinceOpened(now time.Time) int64 { return max(1, int64(now.Sub(w.opened))) }

// Stalled returns for how long records have waited for a commit: records that were polled, or that the client has
// buffered since the last poll. Zero: none waits.
func (w *Worker) Stalled(now time.Time) time.Duration {
	since := w.waiting.Load()
	if since == 0 {
		if w.session.Client().BufferedFetchRecords() == 0 {
			return 0
		}
		since = w.lastPoll.Load()
	}
	return time.Duration(max(0, w.sinceOpened(now)-since))
}

// Close ends an open transaction, leaves the group (a static member only if
// LeaveOnClose says so) and closes the client. It takes at most a few
// seconds, also when no broker answers. A Commit that is running fails.
// Calling it again does nothing.
func (w *Worker) Close() {
	if w.closed.Swap(true) {
		return
	}
	// Not during a Commit, which would take the end of its transaction for its own success.
	if w.inCommit.TryLock() {
		ctx, cancel := context.WithTimeout(context.Background(), endWait)
		defer cancel()
		// This settles an unknown outcome, because it requests a new producer id. If it fails, the next owner or
		// the broker aborts the transaction.
		_, _ = w.session.End(ctx, kgo.TryAbort)
		w.inCommit.Unlock()
	}
	err := groupmember.CloseClient(w.session.Client(), w.cancelLife, groupmember.Membership{Group: w.cfg.Group, Instance: w.cfg.InstanceID, LeavesOnClose: w.cfg.LeaveOnClose})
	if err != nil {
		w.cfg.Listener.LeaveFailed(err)
	}
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/inboxgate"
)

// The defaults of a worker. A worker that froze is out of the group after the
// session timeout; what it left open is rolled back by the broker after the
// transaction timeout, or at once by the next owner (see Restorer). The session
// must be the shorter one: offsets stay unstable for as long as a transaction
// is open, so the other way round the next owner would wait longer than it
// took to notice the death.
const (
	DefaultSessionTimeout     = 6 * time.Second
	DefaultTransactionTimeout = 10 * time.Second
	DefaultFetchMaxWait       = 250 * time.Millisecond
	DefaultMaxPollRecords     = 500
)

const (
	// heartbeatsPerSession and heartbeatIntervalMax are how often a member says
	// that it lives; a rebalance is noticed by the next heartbeat, so that is
	// what a handover waits for.
	heartbeatsPerSession = 12
	heartbeatIntervalMax = 250 * time.Millisecond
	// flushPerTransaction: all output must be acknowledged within this part
	// of the transaction timeout, so that one bad topic can't hold a worker
	// until the broker rolls back.
	flushPerTransaction = 3
	// metadataAgeMin is how soon a topic that is missing is looked for again, and
	// metadataAgeMax how soon partitions are noticed that were added to one.
	metadataAgeMin = 250 * time.Millisecond
	metadataAgeMax = 30 * time.Second
	// workerMetadataAgeMin is less: a worker's output waits for new metadata whenever a
	// broker refuses it for now, as of a partition whose leader moves, or, with
	// several brokers, while the markers of the transaction before are written.
	workerMetadataAgeMin = 25 * time.Millisecond
	// unknownTopicTries: a topic that was just created may be unknown to the
	// broker asked first, for half a second. With the client's default, a missing topic in
	// a transaction blocks its flush forever.
	unknownTopicTries = 20
	// transactionBackoff is the wait for the broker to finish the transaction
	// before.
	transactionBackoff = 5 * time.Millisecond
	// closeWait bounds each of the two steps of leaving: to end what is open
	// and to leave the group.
	closeWait = 2 * time.Second
	// recordsBufferedMax is how many records of one transaction may wait for
	// the network; more block the Commit, within its flush bound.
	recordsBufferedMax = 100_000
	// fetchBytesMax bounds one answer to a fetch by the shares of its
	// partitions. It is below the client's own bound of the whole (50 MiB):
	// an answer that ends there, in the middle of a partition, comes from the
	// embedded broker without the list of what was rolled back, and a reader
	// of committed records then takes that for committed (found by a test).
	fetchBytesMax          = 48 << 20
	fetchPartitionBytesMax = 1 << 20
)

// fetchPartitionBytes is the share of each of n partitions.
func fetchPartitionBytes(n int) int32 {
	return int32(min(fetchPartitionBytesMax, fetchBytesMax/n))
}

func heartbeatInterval(session time.Duration) time.Duration {
	return min(session/heartbeatsPerSession, heartbeatIntervalMax)
}

// WorkerConfig says which worker to open.
type WorkerConfig struct {
	Config
	// Group is the consumer group.
	Group string
	// Owner names the worker among all workers of the namespace. Its transactional
	// id is Namespace + "scheduler." + Owner: opening a worker fences the one
	// that had the same owner.
	Owner string
	// InstanceID makes a static member, which gets its partitions back when it
	// opens again within the session timeout; empty: a dynamic member.
	InstanceID string
	// LeaveOnClose reports, when the worker closes, whether a static member leaves
	// its group, so that others take its partitions at once. Nil: it stays.
	LeaveOnClose func() bool
	// Topics are the inboxes: co-partitioned, Partitions each.
	Topics     []string
	Partitions int32
	// SessionTimeout must be shorter than TransactionTimeout; zero: the
	// defaults. FetchMaxWait bounds Poll.
	SessionTimeout     time.Duration
	TransactionTimeout time.Duration
	FetchMaxWait       time.Duration
	// MaxPollRecords bounds what one Poll returns; zero: the default.
	MaxPollRecords int
	// Committed says which events of a partition the log has, see Restorer.Committed; nil: commits aren't compared with the log.
	Committed func(ctx context.Context, p int32, offsets []int64) (has map[int64]bool, stable int64, err error)
	// Listener is told what happens; nil, and nil fields, are fine.
	Listener *WorkerListener
}

// WorkerListener observes a worker. Assigned, GroupFailed and Uneven are called
// from the client's goroutines, the others from that of the worker; none may
// block or call the worker.
type WorkerListener struct {
	// Assigned: partitions came anew or went.
	Assigned func(added, lost []int32)
	// GroupFailed: the membership ended by err; the client joins again.
	GroupFailed func(err error)
	// Uneven: this worker leads the group, and a member reads other topics.
	Uneven func(member string, topics []string)
	// Committed: a transaction of so many records read and written.
	Committed func(polled, out int, took time.Duration)
	// Aborted: a transaction was rolled back; what was polled comes again.
	Aborted func(polled int, why string)
	// DataLost: the broker no longer has what it had acknowledged.
	DataLost func(err error)
	// Damaged: what the broker has of a partition of an inbox can't be read, for it isn't what
	// was written. It stands still, the others don't; it is asked for again, and told of
	// again, at intervals that double.
	Damaged func(topic string, partition int32, err error)
	// LeaveFailed: the worker closed and is still a member, until its session times out.
	LeaveFailed func(err error)
	// Unsettled: partitions came whose offsets an open transaction holds back, for
	// longer than a restore takes to end it. The client waits for as long.
	Unsettled func(partitions []int32)
	// Position: something is wrong with where an inbox was to be read from. It is called from the
	// client's goroutines, too.
	Position func(at Position, fault PositionFault)
}

// TransactionalID is that of an owner's worker.
func TransactionalID(c Config, owner string) string {
	return fencePrefix(c) + owner
}

// fencePrefix begins the ids that a new owner of a partition may fence.
func fencePrefix(c Config) string { return string(c.Namespace) + "scheduler." }

func (c *WorkerConfig) complete() error {
	var faults []error
	orDefault(&c.SessionTimeout, DefaultSessionTimeout)
	orDefault(&c.TransactionTimeout, DefaultTransactionTimeout)
	orDefault(&c.FetchMaxWait, DefaultFetchMaxWait)
	orDefault(&c.MaxPollRecords, DefaultMaxPollRecords)
	if c.Listener == nil {
		c.Listener = &WorkerListener{}
	}
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

func orDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Worker is one transactional consumer-producer: a member of a group that reads
// the same partition of several topics, and whose output and input positions
// become visible together or not at all.
//
//	for {
//		records, err := worker.Poll(ctx)     // of partitions that may act
//		owned := worker.Assigned()           // drop the state of what went
//		...                                // restore what came, then Resume it for PausedForRestore
//		out := decide(records)
//		committed, err := worker.Commit(ctx, out)
//		...                                // accept the new state, or forget it
//	}
//
// It guarantees: no transaction is committed that consumed nothing, so the
// group's generation fences every write of a worker that lost its place; none is
// committed with records of a partition that was lost since they were polled;
// a partition that comes is paused for its restore before anything of it can be
// fetched. An inbox flows only while no reason pauses it (inboxgate).
//
// One goroutine calls Poll, PollAtMost, Commit, Abort, Assigned, Pause and Resume; Member, TopicID, Reflected, Rewind, Wake,
// Stalled and Close may be called from any.
type Worker struct {
	cfg       WorkerConfig
	session   *kgo.GroupTransactSession
	balancer  *Balancer
	poller    poller
	tail      tailClock
	arrivals  arrivals
	positions positions
	cut       context.CancelFunc // ends whatever the client waits for

	// seen is what Assigned said last: Pause and Resume mean a partition of that.
	seen map[int32]uint64
	// restored are the assignments that Resume said were restored.
	restored    map[int32]uint64
	gate        *workerGate
	quarantines quarantines
	// polled counts what was returned since the last commit or abort, by the
	// number that each partition then had.
	polled     int
	polledFrom map[int32]uint64
	// decidedBy is the clock's offset when the first of them was polled. Another
	// worker of the process may find out meanwhile that it was wrong.
	decidedBy time.Duration
	// skipped: the client gave records that had to be kept back, and counts
	// them as read. Only an abort brings them again.
	skipped bool
	// passed: it gave markers, and counts them as read.
	passed bool
	// broken is set when only a new worker can tell what the log says.
	broken error

	inCommit sync.Mutex // held by Commit and Abort
	// narrow are topics that refused a batch as too large; of the worker's goroutine.
	narrow narrowTopics
	// room is for the output of a transaction; nil where the client may have some of it.
	room   []kgo.Record
	closed atomic.Bool

	// opened is what the others count from, in nanoseconds: by the monotonic clock, which nobody
	// sets. With instants of the wall, a busy worker whose clock was put forward seemed to hang.
	opened     time.Time
	lastPoll   atomic.Int64
	lastCommit atomic.Int64
	waiting    atomic.Int64 // since when records wait for a commit; 0: none
}

// OpenWorker joins the group. It fails if a topic is missing or has fewer
// partitions, and when the cluster can't be reached within ctx. The worker
// lives until Close, whatever becomes of ctx.
func OpenWorker(ctx context.Context, cfg WorkerConfig) (*Worker, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("worker %q of group %q: %w", cfg.Owner, cfg.Group, err)
	}
	ids, err := copartitioned(ctx, cfg.Config, cfg.Topics, cfg.Partitions, true)
	if err != nil {
		return nil, fmt.Errorf("worker %q of group %q: %w", cfg.Owner, cfg.Group, finalError(err))
	}
	cfg.Reached = true
	l := &Worker{cfg: cfg, balancer: NewBalancer(cfg.Partitions), restored: map[int32]uint64{}, polledFrom: map[int32]uint64{},
		narrow: narrowTopics{}, quarantines: quarantines{}, arrivals: arrivals{partitions: cfg.Partitions, waiting: map[int32]bool{}}}
	l.gate = newWorkerGate(l.balancer, cfg.Topics)
	l.positions = positions{ids: map[string]string{}, fetched: map[topicPartition]committed{},
		witness: witness{last: map[int32]int64{}, open: map[int32][]int64{}}}
	for topic, id := range ids {
		l.positions.ids[topic] = topicID(id)
	}
	l.balancer.observe(cfg.Listener.Assigned, cfg.Listener.GroupFailed, cfg.Listener.Uneven)
	l.balancer.onAdded = func(_ *kgo.Client, added []int32) {
		l.tail.forget(added)
		l.arrivals.add(added)
		l.gate.assigned(added)
	}
	l.balancer.takeAdded = true
	l.balancer.owner = cfg.Owner
	l.opened = time.Now()

	life, cut := context.WithCancel(context.Background())
	session, err := kgo.NewGroupTransactSession(append(cfg.unwaiting(l.arrivals.takeSettled).options(), l.options(life)...)...)
	if err != nil {
		cut()
		return nil, fmt.Errorf("worker %q of group %q: client: %w", cfg.Owner, cfg.Group, err)
	}
	l.session, l.cut = session, cut
	// At once, not with the first output: what the one before left open with this
	// id holds up whoever takes over from it, most often this worker itself.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		_ = closeClient(session.Client(), cut, staysMember) // it has hardly joined
		return nil, fmt.Errorf("worker %q of group %q: take over its transactional id: %w", cfg.Owner, cfg.Group, finalError(err))
	}
	l.poller = poller{client: session.Client(), wait: cfg.FetchMaxWait, max: cfg.MaxPollRecords}
	go l.watchTopics(life)
	return l, nil
}

func (l *Worker) options(life context.Context) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(life),
		kgo.WithHooks(l.balancer, l.tail.of(l.cfg.Config)),
		kgo.MetadataMinAge(workerMetadataAgeMin),
		kgo.MetadataMaxAge(metadataAgeMax),

		kgo.ConsumerGroup(l.cfg.Group),
		kgo.Balancers(l.balancer),
		kgo.ConsumeTopics(l.cfg.Topics...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // see pass
		kgo.OnPartitionsAssigned(l.settle),
		kgo.OnOffsetsFetched(func(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
			l.positions.take(resp)
			return nil
		}),
		kgo.AdjustFetchOffsetsFn(l.place),
		// Group offsets expire. What is read twice is known by its cause.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // outside of the log a new client asks where it is: see judge
		kgo.FetchMaxWait(l.cfg.FetchMaxWait),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes(len(l.cfg.Topics) * int(l.cfg.Partitions))),
		kgo.SessionTimeout(l.cfg.SessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval(l.cfg.SessionTimeout)),
		// Ending a transaction holds a rebalance up, and is bounded by the
		// transaction timeout.
		kgo.RebalanceTimeout(l.cfg.TransactionTimeout + l.cfg.SessionTimeout),

		kgo.TransactionalID(TransactionalID(l.cfg.Config, l.cfg.Owner)),
		kgo.TransactionTimeout(l.cfg.TransactionTimeout),
		kgo.ConcurrentTransactionsBackoff(transactionBackoff),
		kgo.RecordPartitioner(byKeyOrExplicit()),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(recordsBufferedMax),
		kgo.UnknownTopicRetries(unknownTopicTries - 1),
		kgo.ProduceRequestTimeout(l.flushMax()),
	}
	if l.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(l.cfg.InstanceID))
	}
	if l.cfg.OneBroker {
		// A client that fetches ahead fetches as soon as it was polled: what it has at
		// the next poll is as old as the transaction in between, and little. What came
		// since waits for that little one, too. So it fetches when it is polled; but
		// then from one broker at a time, of several the others would wait.
		opts = append(opts, kgo.MaxConcurrentFetches(0))
	}
	return opts
}

func (l *Worker) flushMax() time.Duration { return l.cfg.TransactionTimeout / flushPerTransaction }

// copartitioned asks the cluster whether all topics have as many partitions, or more where
// some may have been added, and for their ids.
func copartitioned(ctx context.Context, cfg Config, topics []string, partitions int32, added bool) (ids map[string][16]byte, err error) {
	client, err := kgo.NewClient(cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	defer client.Close()
	meta, err := metadata(ctx, kadm.NewClient(client), topics...)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster for the topics: %w", err)
	}
	const advice = "`waybill topics check` says what to do"
	var faults []error
	ids = map[string][16]byte{}
	for _, topic := range topics {
		d, ok := meta.Topics[topic]
		ids[topic] = d.ID
		switch {
		case !ok:
			faults = append(faults, fmt.Errorf("topic %s: the broker says nothing about it; %s", topic, advice))
		case d.Err != nil:
			faults = append(faults, fmt.Errorf("topic %s: %w; %s", topic, d.Err, advice))
		case int32(len(d.Partitions)) < partitions, int32(len(d.Partitions)) > partitions && !added:
			faults = append(faults, fmt.Errorf("topic %s has %d partitions instead of %d; %s", topic, len(d.Partitions), partitions, advice))
		}
	}
	return ids, errors.Join(faults...)
}

// home is the partition that one goes together with: itself, but for one that was
// added to an inbox.
func (l *Worker) home(p int32) int32 { return p % l.cfg.Partitions }

// Assigned is what the worker owns: partition -> a number that changes whenever
// the partition came after not having been owned. A partition whose number
// changed may have been written by others meanwhile. The map must not be
// changed.
func (l *Worker) Assigned() map[int32]uint64 {
	l.seen = l.balancer.Assigned()
	return l.seen
}

// Member is the worker's id in its group, and whether it owns a partition now. It may be called
// from any goroutine.
func (l *Worker) Member(p int32) (id string, owns bool) {
	return l.balancer.memberOf(p)
}

// Pause pauses an inbox of p, with what was added to it, for a reason: until an instant, or until Resume
// if that is zero. p is meant as the last call of Assigned showed it. If it is gone since, or came anew,
// nothing is done. inboxgate.AllPartitions pauses the whole topic, with partitions that come later.
func (l *Worker) Pause(p int32, topic string, why inboxgate.Reason, until time.Time) {
	if p == inboxgate.AllPartitions {
		l.gate.locked(func(g *inboxgate.Gate) { g.Pause(inboxgate.Inbox{Topic: topic, Partition: p}, why, until) })
		return
	}
	if n, ok := l.seen[p]; ok {
		l.gate.pause(p, n, topic, why, until)
	}
}

// Resume ends a reason for inboxes of p, for all of them if none is named. Each flows if no other reason
// pauses it. p is meant as for Pause.
func (l *Worker) Resume(p int32, why inboxgate.Reason, topics ...string) {
	if p == inboxgate.AllPartitions {
		l.gate.locked(func(g *inboxgate.Gate) {
			for _, topic := range topics {
				g.Resume(inboxgate.Inbox{Topic: topic, Partition: p}, why)
			}
		})
		return
	}
	if n, ok := l.seen[p]; ok && l.gate.resume(p, n, why, topics) && why == inboxgate.PausedForRestore {
		l.restored[p] = n
	}
}

// PollAtMost bounds what the next calls of Poll return, below MaxPollRecords; 0: by that
// alone.
func (l *Worker) PollAtMost(n int) {
	l.poller.max = l.cfg.MaxPollRecords
	if n > 0 {
		l.poller.max = min(n, l.poller.max)
	}
}

// Wake makes a Poll that blocks return at once, and else the next one.
func (l *Worker) Wake() { l.poller.wake() }

// LastCommit is when the last transaction was committed, or the worker opened.
func (l *Worker) LastCommit() time.Time { return l.opened.Add(time.Duration(l.lastCommit.Load())) }

// age is how old the worker is, in nanoseconds, at least one.
func (l *Worker) age(now time.Time) int64 { return max(1, int64(now.Sub(l.opened))) }

// Stalled is for how long records have waited without a transaction being
// committed: records that were polled, or that lie in the client while nobody
// polls. Zero: none waits.
func (l *Worker) Stalled(now time.Time) time.Duration {
	since := l.waiting.Load()
	if since == 0 {
		if l.session.Client().BufferedFetchRecords() == 0 {
			return 0
		}
		since = l.lastPoll.Load()
	}
	return time.Duration(max(0, l.age(now)-since))
}

// Close ends an open transaction, leaves the group (a static member only if
// LeaveOnClose says so) and closes the client. It takes at most a few
// seconds, also when no broker answers. A Commit that is running fails.
// Calling it again does nothing.
func (l *Worker) Close() {
	if l.closed.Swap(true) {
		return
	}
	// Not beside a Commit: it would find its transaction ended, and take that
	// for its own success.
	if l.inCommit.TryLock() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		// An outcome in doubt is settled by this: it takes the producer id
		// anew. If it fails, the next owner or the broker rolls back.
		_, _ = l.session.End(ctx, kgo.TryAbort)
		l.inCommit.Unlock()
	}
	err := closeClient(l.session.Client(), l.cut, membership{l.cfg.Group, l.cfg.InstanceID, l.cfg.LeaveOnClose})
	if err != nil && l.cfg.Listener.LeaveFailed != nil {
		l.cfg.Listener.LeaveFailed(err)
	}
}

// closeClient leaves and closes within bounds: leaving waits for a rebalance
// in progress, and cutting the client's context ends that wait. The error says
// that the group has the member until its session times out.
func closeClient(client *kgo.Client, cut context.CancelFunc, m membership) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	client.AllowRebalance()
	err := m.leave(ctx, client)
	cut()
	client.CloseAllowingRebalance()
	// A poll that the cut ended counts as one whose records are at work, and a
	// goroutine of the client would wait for them for ever.
	client.AllowRebalance()
	return err
}

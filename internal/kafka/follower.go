package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

const (
	// rebalanceTimeout is how long a group waits for a member that is busy between two
	// polls before it goes on without it.
	rebalanceTimeout = 30 * time.Second
	// boundsTries, boundsRetryInterval: how often the ends of new partitions are asked
	// for before the member joins anew.
	boundsTries         = 5
	boundsRetryInterval = 100 * time.Millisecond
	// awaitEndsInterval: for those of which the cluster says nothing, also later.
	awaitEndsInterval = time.Second
	// endUnknown is where such a partition ended when it came.
	endUnknown = -1
	// readFailedInterval is how often a listener is told that no broker answers.
	readFailedInterval = 10 * time.Second
	// noCommit is the committed offset where there is none.
	noCommit = -1
)

// FollowerConfig says what to follow.
type FollowerConfig struct {
	Config
	// Group is the consumer group; empty: none. Then the follower reads all
	// partitions for as long as it lives, and needs Start. Nothing is assigned to
	// it or taken from it, and it needs no right to a group.
	Group string
	// InstanceID makes a static member; empty: a dynamic one.
	InstanceID string
	// LeaveOnClose reports, when the follower closes, whether a static member
	// leaves its group, so that others take its partitions at once. Nil: it stays.
	LeaveOnClose func() bool
	// Topics to read, co-partitioned if there are several; Partitions each.
	Topics     []string
	Partitions int32
	// Start says where to begin in a partition that comes anew; nil, or not
	// ok: at the group's committed offset, or else the start of the log. An
	// offset of Start's that is not in the log ends the follower with an
	// *OffsetRangeError; a committed one is moved to the nearest end of the
	// log and Listener.Reset is told. Start is called from the client's
	// goroutine, before any record of the partition comes; an error of it ends
	// the follower, unless its ctx has ended.
	Start func(ctx context.Context, topic string, p int32) (offset int64, ok bool, err error)
	// Again: the record before an offset of Start's is given, too, if the log has it, so that who
	// follows sees whether it is the one that he knows.
	IncludePrevious bool
	// SessionTimeout, FetchMaxWait, MaxPollRecords: zero means the default.
	SessionTimeout time.Duration
	FetchMaxWait   time.Duration
	MaxPollRecords int
	// Lend: what Poll returns, keys, values and headers too, is good until the next Poll.
	// Without it they may be kept, and are made anew for each record.
	ReuseBuffers bool
	// Listener is told what happens; nil, and nil fields, are fine.
	Listener *FollowerListener
}

// FollowerListener observes a follower; its functions are called from the
// client's goroutines, and may not block or call the follower.
type FollowerListener struct {
	// Assigned: partitions came anew or went.
	Assigned func(added, lost []int32)
	// GroupFailed: the membership ended by err; the client joins again.
	GroupFailed func(err error)
	// SubscriptionMismatch: this member leads the group, and another reads other topics.
	SubscriptionMismatch func(member string, topics []string)
	// LeaveFailed: the follower closed and is still a member, until its session times out.
	LeaveFailed func(err error)
	// Reset: a committed offset is not in the log any more.
	Reset func(topic string, partition int32, from, to int64)
	// ReadFailed: no broker answered for what it leads; it is asked again. It is told at
	// most every readFailedInterval.
	ReadFailed func(err error)
	// Damaged: what the broker has of a partition can't be read, for it isn't what was
	// written. The partition stands still, the others don't; it is asked for again, and told
	// of again, at intervals that double.
	Damaged func(topic string, partition int32, err error)
}

// Follower reads committed records, from positions of its own, and knows when it
// has caught up. It is a member of a consumer group, or reads all partitions
// without one. It commits nothing unless told to.
//
// One goroutine calls Poll; the other methods may be called from any. While
// the caller works between two polls no partition is given to another member,
// for half a minute: then the group goes on without this one.
type Follower struct {
	cfg        FollowerConfig
	client     *kgo.Client
	balancer   *Balancer
	tail       tailClock
	life       context.Context // ends with Close
	cancelLife context.CancelFunc
	woken      chan struct{}
	closing    sync.Once
	assignAll  sync.WaitGroup // readAll

	mu       sync.Mutex
	progress map[string]map[int32]partitionProgress // topic, partition
	broken   error

	// Of Poll's goroutine.
	fetcher      fetcher
	readers      [][]*partitionReader // by the number of the topic in cfg.Topics, and partition; nil: never owned
	nextReader   int                  // the reading that gives first, the next time
	polled       []events.Record
	readFailedAt time.Time // when ReadFailed was called last
}

// standing is where a follower is in a partition.
type partitionProgress struct{ position, highWatermark, tail int64 }

// OpenFollower joins the group. It fails if a topic is missing or has another
// partition count, and when the cluster can't be reached within ctx. The
// follower lives until Close, whatever becomes of ctx.
func OpenFollower(ctx context.Context, cfg FollowerConfig) (*Follower, error) {
	orDefault(&cfg.SessionTimeout, DefaultSessionTimeout)
	orDefault(&cfg.FetchMaxWait, DefaultFetchMaxWait)
	orDefault(&cfg.MaxPollRecords, DefaultMaxPollRecords)
	if cfg.Listener == nil {
		cfg.Listener = &FollowerListener{}
	}
	if cfg.Group == "" && cfg.Start == nil || len(cfg.Topics) == 0 || cfg.Partitions <= 0 {
		return nil, fmt.Errorf("%s: needs a group or a start, topics (%d) and partitions (%d)", cfg.name(), len(cfg.Topics), cfg.Partitions)
	}
	ids, err := copartitioned(ctx, cfg.Config, cfg.Topics, cfg.Partitions, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.name(), markFinal(err))
	}
	cfg.Reached = true
	f := &Follower{cfg: cfg, balancer: NewBalancer(cfg.Partitions), woken: make(chan struct{}, 1), progress: map[string]map[int32]partitionProgress{}}
	for _, topic := range cfg.Topics {
		f.progress[topic] = map[int32]partitionProgress{}
		f.readers = append(f.readers, make([]*partitionReader, cfg.Partitions))
	}
	f.balancer.setHooks(cfg.Listener.Assigned, cfg.Listener.GroupFailed, cfg.Listener.SubscriptionMismatch)
	f.balancer.onAdded = f.forgetPartitions
	f.tail.attach(cfg.Config)
	f.life, f.cancelLife = context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(cfg.options(), f.options()...)...)
	if err != nil {
		f.cancelLife()
		return nil, fmt.Errorf("%s: client: %w", cfg.name(), err)
	}
	f.client = client
	f.fetcher = fetcher{client: client, ids: ids, wait: cfg.FetchMaxWait, bytes: fetchPartitionBytes(len(cfg.Topics) * int(cfg.Partitions)),
		responses: make(chan leaderResponse), leaders: map[int32]*leader{}, life: f.life}
	if cfg.Group == "" {
		client.PauseFetchTopics(cfg.Topics...) // the client only knows who leads them: to fetch is the fetcher's to do
		client.AddConsumeTopics(cfg.Topics...)
		f.assignAll.Go(f.readAll)
	}
	return f, nil
}

// name says in errors which follower it is.
func (c *FollowerConfig) name() string {
	if c.Group == "" {
		return fmt.Sprintf("follower of %v", c.Topics)
	}
	return fmt.Sprintf("follower of group %q", c.Group)
}

// readAll begins to read all partitions, of a follower without a group.
func (f *Follower) readAll() {
	all := make([]int32, f.cfg.Partitions)
	offsets := map[string]map[int32]kgo.Offset{}
	for _, topic := range f.cfg.Topics {
		offsets[topic] = map[int32]kgo.Offset{}
		for p := range all {
			all[p] = int32(p)
			offsets[topic][int32(p)] = kgo.NewOffset().At(noCommit)
		}
	}
	f.balancer.ownAll()
	if _, err := f.placePartitions(f.life, offsets); err == nil && f.cfg.Listener.Assigned != nil {
		f.cfg.Listener.Assigned(all, nil)
	}
}

func (f *Follower) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(f.life),
		kgo.WithHooks(f.balancer),
		kgo.MetadataMinAge(metadataAgeMin),
	}
	if f.cfg.Group == "" {
		return opts
	}
	opts = append(opts,
		kgo.ConsumerGroup(f.cfg.Group),
		kgo.Balancers(f.balancer),
		kgo.ConsumeTopics(f.cfg.Topics...),
		kgo.DisableAutoCommit(),
		// A partition must not go and come back between a poll and what is
		// made of it: its records would fall into another assignment.
		kgo.BlockRebalanceOnPoll(),
		kgo.AdjustFetchOffsetsFn(f.placePartitions),
		// Only place says where to be; out of range later is an error.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(f.cfg.SessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval(f.cfg.SessionTimeout)),
		kgo.RebalanceTimeout(rebalanceTimeout),
	)
	if f.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(f.cfg.InstanceID))
	}
	return opts
}

// forget is called when partitions come anew, before the client can fetch: that is the
// fetcher's to do. Where they stood says nothing.
func (f *Follower) forgetPartitions(client *kgo.Client, added []int32) {
	client.PauseFetchTopics(f.cfg.Topics...)
	f.tail.forget(added)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, stands := range f.progress {
		for _, p := range added {
			delete(stands, p)
		}
	}
}

// place decides where to begin in partitions that came anew. The client calls
// it with the committed offsets, before it fetches. A partition of which the cluster says
// nothing, for want of a leader perhaps, must not keep the others from beginning: it begins where
// Start says, and a broker that leads it later says whether the log holds that.
func (f *Follower) placePartitions(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for topic, ps := range offsets {
		starts, ends, unknown := f.logBounds(ctx, topic, slices.Collect(maps.Keys(ps)))
		if unknown != nil && (f.cfg.Start == nil || ctx.Err() != nil) {
			return nil, unknown
		}
		var later []int32
		for p, committed := range ps {
			start, end := starts[p], int64(math.MaxInt64)
			stand := partitionProgress{highWatermark: endUnknown}
			if known, ok := ends[p]; ok {
				end, stand.highWatermark = known, known
			} else {
				later = append(later, p)
			}
			var err error
			stand.position, err = f.startOffset(ctx, topic, p, committed.EpochOffset().Offset, start, end)
			if out, is := errors.AsType[*OffsetRangeError](err); is && out.Offset > end {
				// Start took its time, and knows what has come since.
				if _, ends, _ := f.logBounds(ctx, topic, []int32{p}); ends[p] > end {
					stand.highWatermark = ends[p]
					stand.position, err = f.startOffset(ctx, topic, p, committed.EpochOffset().Offset, start, ends[p])
				}
			}
			if err != nil {
				return nil, f.fail(ctx, fmt.Errorf("begin in topic %s partition %d: %w", topic, p, err))
			}
			ps[p] = kgo.NewOffset().At(stand.position)
			f.mu.Lock()
			f.progress[topic][p] = stand
			f.mu.Unlock()
		}
		if len(later) > 0 {
			go f.awaitEnds(topic, later) // until it is known, or Close
		}
	}
	f.Wake()
	return offsets, nil
}

// learn asks where partitions ended of which the cluster said nothing when they came.
func (f *Follower) awaitEnds(topic string, ps []int32) {
	for len(ps) > 0 {
		select {
		case <-time.After(awaitEndsInterval):
		case <-f.life.Done():
			return
		}
		_, ends, _ := f.logBounds(f.life, topic, ps)
		f.mu.Lock()
		ps = slices.DeleteFunc(ps, func(p int32) bool {
			end, known := ends[p]
			if stand, here := f.progress[topic][p]; known && here && stand.highWatermark == endUnknown {
				stand.highWatermark = end
				f.progress[topic][p] = stand
			}
			return known
		})
		f.mu.Unlock()
		f.Wake()
	}
}

// begin is the offset to begin at in a log that holds [start, end); committed
// is negative if there is none.
func (f *Follower) startOffset(ctx context.Context, topic string, p int32, committed, start, end int64) (int64, error) {
	if f.cfg.Start != nil {
		at, ok, err := f.cfg.Start(ctx, topic, p)
		switch {
		case err != nil:
			return 0, err
		case ok && (at < start || at > end):
			return 0, &OffsetRangeError{Topic: topic, Partition: p, Offset: at, Start: start, End: end}
		case ok && f.cfg.IncludePrevious && at > start:
			return at - 1, nil
		case ok:
			return at, nil
		}
	}
	if committed < 0 {
		return start, nil
	}
	at := min(max(committed, start), end)
	if at != committed && f.cfg.Listener.Reset != nil {
		f.cfg.Listener.Reset(topic, p, committed, at)
	}
	return at, nil
}

// logs are the starts and the high watermarks of a topic's partitions; err: of some they are
// missing.
func (f *Follower) logBounds(ctx context.Context, topic string, ps []int32) (starts, ends map[int32]int64, err error) {
	// The group's goroutine may be here before OpenFollower has the client.
	var admin *kadm.Client
	f.balancer.withClient(func(client *kgo.Client) { admin = kadm.NewClient(client) })
	for try := 1; ; try++ {
		// The end first: a trim in between must not put the start above it.
		last, endErr := admin.ListEndOffsets(ctx, topic)
		first, startErr := admin.ListStartOffsets(ctx, topic)
		ends, starts = map[int32]int64{}, map[int32]int64{}
		_, endErr = offsetsOfPartitions(topic, "end", ps, last, endErr)
		_, startErr = offsetsOfPartitions(topic, "start", ps, first, startErr)
		for _, p := range ps {
			end, ended := last.Lookup(topic, p)
			if start, began := first.Lookup(topic, p); ended && began && end.Err == nil && start.Err == nil {
				starts[p], ends[p] = start.Offset, end.Offset
			}
		}
		if err = errors.Join(endErr, startErr); err == nil || try == boundsTries || ctx.Err() != nil {
			return starts, ends, err
		}
		select {
		case <-ctx.Done():
			return starts, ends, ctx.Err()
		case <-time.After(boundsRetryInterval):
		}
	}
}

// fail ends the follower, unless the assignment ended first.
func (f *Follower) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Wake()
	if f.broken == nil {
		f.broken = fmt.Errorf("%s: %w", f.cfg.name(), err)
	}
	return f.broken
}

func (f *Follower) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// Assigned is what the follower owns: partition -> a number that changes
// whenever the partition came after not having been owned. The map must not be
// changed.
func (f *Follower) Assigned() map[int32]uint64 { return f.balancer.Assigned() }

// HighWatermark is the end of a partition's log when it was assigned, or a little later; not ok:
// it is not assigned, or no broker has said it yet. A reader whose Position
// has reached it has seen all that was written before it became the owner.
func (f *Follower) HighWatermark(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	if !ok || stand.highWatermark == endUnknown {
		return 0, false
	}
	return stand.highWatermark, true
}

// Position is the offset after everything that Poll returned or passed over
// (markers, rolled back records) in a partition; not ok: it is not assigned, or not begun.
func (f *Follower) Position(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	return stand.position, ok
}

// Tail is where committed records ended when the partition was asked for last: a
// Position below it is behind. Not ok as of Position.
func (f *Follower) Tail(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	return stand.tail, ok
}

func (f *Follower) progressOf(topic string, p int32) (partitionProgress, bool) {
	if _, ok := f.balancer.Assigned()[p]; !ok {
		return partitionProgress{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, ok := f.progress[topic][p]
	return stand, ok
}

// Commit stores positions of the follower's one topic in the group: where a
// member without a Start of its own begins, and what tools show as lag.
// Partitions that went are left out: they are another member's to commit.
func (f *Follower) Commit(ctx context.Context, offsets map[int32]int64) error {
	if len(f.cfg.Topics) != 1 {
		return fmt.Errorf("follower of group %q: commit: reads %d topics, one is needed", f.cfg.Group, len(f.cfg.Topics))
	}
	owned := f.balancer.Assigned()
	ps := map[int32]kgo.EpochOffset{}
	for p, offset := range offsets {
		if _, ok := owned[p]; ok {
			ps[p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
	}
	if len(ps) == 0 {
		return nil
	}
	var failed error
	f.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{f.cfg.Topics[0]: ps},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if resp == nil {
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						failed = errors.Join(failed, fmt.Errorf("partition %d: %w", p.Partition, err))
					}
				}
			}
		})
	if failed != nil {
		return fmt.Errorf("follower of group %q: commit positions: %w", f.cfg.Group, failed)
	}
	return nil
}

// Wake makes a Poll that blocks return at once, and else the next one that would.
func (f *Follower) Wake() {
	select {
	case f.woken <- struct{}{}:
	default: // is to be already
	}
}

// Close leaves the group (a static member only if LeaveOnClose says so) and
// closes the client, within a few seconds. Calling it again does nothing.
func (f *Follower) Close() { f.closing.Do(f.close) }

func (f *Follower) close() {
	err := closeClient(f.client, f.cancelLife, membership{f.cfg.Group, f.cfg.InstanceID, f.cfg.LeaveOnClose})
	if err != nil && f.cfg.Listener.LeaveFailed != nil {
		f.cfg.Listener.LeaveFailed(err)
	}
	f.assignAll.Wait()
	f.fetcher.requests.Wait()
}

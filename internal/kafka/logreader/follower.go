package logreader

import (
	"cmp"
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
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/listener"
)

const (
	// rebalanceTimeout is how long a group waits for a member that is busy between two polls before it
	// removes the member.
	rebalanceTimeout = 30 * time.Second
	// The ends of new partitions are requested boundsTries times, every boundsRetryInterval. Then the member
	// joins again.
	boundsTries         = 5
	boundsRetryInterval = 100 * time.Millisecond
	// awaitEndsInterval is how often the ends of unavailable partitions are requested after that.
	awaitEndsInterval = time.Second
	// endUnknown is the end of an unavailable partition.
	endUnknown = -1
	// readFailedInterval is the least time between two calls of ReadFailed.
	readFailedInterval = 10 * time.Second
	// noCommit stands for a missing committed offset.
	noCommit = -1
)

// FollowerConfig configures a follower.
type FollowerConfig struct {
	kafka.Config
	// Group is the consumer group. If it is empty, the follower reads all partitions until Close. It then needs Start,
	// and no ACL for a group.
	Group string
	// InstanceID makes a static member; empty: a dynamic one.
	InstanceID string
	// LeaveOnClose is called by Close. It reports whether a static member leaves its group, so that others get
	// its partitions at once. Nil: it stays.
	LeaveOnClose func() bool
	// Topics are co-partitioned: each has Partitions partitions.
	Topics     []string
	Partitions int32
	// Start returns the first offset to read of a newly assigned partition. Without it, or if ok is false, the
	// follower begins at the group's committed offset, else at the start of the log. If Start's offset is not in the
	// log, the follower ends with an *OffsetRangeError. A committed offset that is not in the log is moved to the
	// nearest end, and Listener.Reset is called. The client's goroutine calls Start before any record of the
	// partition is returned. An error of Start ends the follower, unless its ctx has ended.
	Start func(ctx context.Context, topic string, p int32) (offset int64, ok bool, err error)
	// IncludePrevious: the follower also returns the record before Start's offset, if the log has it. The caller can
	// compare it with its own copy.
	IncludePrevious bool
	// SessionTimeout, FetchMaxWait, MaxPollRecords: zero means the default.
	SessionTimeout time.Duration
	FetchMaxWait   time.Duration
	MaxPollRecords int
	// ReuseBuffers: records, keys, values and headers are valid until the next Poll. Without it the caller may keep
	// keys, values and headers, which are allocated for each record.
	ReuseBuffers bool
	// Listener observes the follower. It and its fields may be nil.
	Listener *FollowerListener
}

// FollowerListener observes a follower. Its functions are called from the client's goroutines, and must not block or
// call the follower.
type FollowerListener struct {
	// Assigned: partitions were assigned or lost.
	Assigned func(added, lost []int32)
	// GroupFailed: the membership ended by err; the client joins again.
	GroupFailed func(err error)
	// SubscriptionMismatch: this member leads the group, and another member reads other topics.
	SubscriptionMismatch func(member string, topics []string)
	// LeaveFailed: the follower is closed, but remains a member until its session times out.
	LeaveFailed func(err error)
	// Reset: a committed offset was not in the log and was moved to the nearest end.
	Reset func(topic string, partition int32, from, to int64)
	// ReadFailed: a leader did not answer, and the fetch is retried. It is called at most every readFailedInterval.
	ReadFailed func(err error)
	// Corrupt: records in a partition were changed after they were written. The partition is paused, and others
	// continue. The follower retries it at intervals that double, and reports each failure.
	Corrupt func(topic string, partition int32, err error)
}

// Follower reads committed records from positions of its own, and knows when it has caught up. It is a member of
// a consumer group, or reads all partitions without one. It commits only in Commit.
//
// One goroutine calls Poll; the other methods are safe for concurrent use. No partition is reassigned between two
// polls, for up to 30 s (rebalanceTimeout). After that the group removes the member.
type Follower struct {
	cfg        FollowerConfig
	client     *kgo.Client
	balancer   *groupmember.Balancer
	tail       *brokerclock.Tail
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
	readers      [][]*partitionReader // by index in cfg.Topics and partition; nil: not owned
	nextReader   int                  // index of the partition that the next collect begins with
	polled       []events.Record
	readFailedAt time.Time // when ReadFailed was called last
}

// partitionProgress is the state of a partition that Follower reports.
type partitionProgress struct {
	position, highWatermark, tail int64
	answered                      time.Time // when its leader last answered
}

// OpenFollower joins the group. It fails if a topic is missing or has another partition count, or the cluster can't be
// reached within ctx. The follower exists until Close, even if ctx ends.
func OpenFollower(ctx context.Context, cfg FollowerConfig) (*Follower, error) {
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, groupmember.DefaultSessionTimeout)
	cfg.FetchMaxWait = cmp.Or(cfg.FetchMaxWait, groupmember.DefaultFetchMaxWait)
	cfg.MaxPollRecords = cmp.Or(cfg.MaxPollRecords, groupmember.DefaultMaxPollRecords)
	cfg.Listener = listener.Complete(cfg.Listener)
	if cfg.Group == "" && cfg.Start == nil || len(cfg.Topics) == 0 || cfg.Partitions <= 0 {
		return nil, fmt.Errorf("%s: needs a group or a Start function, topics (%d) and partitions (%d)", cfg.name(), len(cfg.Topics), cfg.Partitions)
	}
	ids, err := groupmember.CheckCopartitioned(ctx, cfg.Config, cfg.Topics, cfg.Partitions, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.name(), kafka.FinalError(err))
	}
	cfg.Reached = true
	f := &Follower{cfg: cfg, balancer: groupmember.NewBalancer(cfg.Partitions), woken: make(chan struct{}, 1), progress: map[string]map[int32]partitionProgress{}}
	for _, topic := range cfg.Topics {
		f.progress[topic] = map[int32]partitionProgress{}
		f.readers = append(f.readers, make([]*partitionReader, cfg.Partitions))
	}
	f.balancer.SetHooks(cfg.Listener.Assigned, cfg.Listener.GroupFailed, cfg.Listener.SubscriptionMismatch)
	f.balancer.OnAdded = f.forgetPartitions
	f.tail = brokerclock.NewTail(cfg.Clock, cfg.Namespace)
	f.life, f.cancelLife = context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(cfg.ClientOptions(), f.options()...)...)
	if err != nil {
		f.cancelLife()
		return nil, fmt.Errorf("%s: client: %w", cfg.name(), err)
	}
	f.client = client
	f.fetcher = fetcher{client: client, ids: ids, wait: cfg.FetchMaxWait, bytes: groupmember.FetchPartitionBytes(len(cfg.Topics) * int(cfg.Partitions)),
		responses: make(chan leaderResponse), leaders: map[int32]*leader{}, life: f.life}
	if cfg.Group == "" {
		client.PauseFetchTopics(cfg.Topics...) // the client only keeps their metadata; the fetcher fetches
		client.AddConsumeTopics(cfg.Topics...)
		f.assignAll.Go(f.readAll)
	}
	return f, nil
}

// name identifies the follower in errors.
func (c *FollowerConfig) name() string {
	if c.Group == "" {
		return fmt.Sprintf("follower of %v", c.Topics)
	}
	return fmt.Sprintf("follower of group %q", c.Group)
}

// readAll starts a follower without a group: it owns all partitions.
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
	f.balancer.OwnAll()
	if _, err := f.placePartitions(f.life, offsets); err == nil {
		f.cfg.Listener.Assigned(all, nil)
	}
}

func (f *Follower) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(f.life),
		kgo.WithHooks(f.balancer),
		kgo.MetadataMinAge(groupmember.MetadataAgeMin),
	}
	if f.cfg.Group == "" {
		return opts
	}
	opts = append(opts,
		kgo.ConsumerGroup(f.cfg.Group),
		kgo.Balancers(f.balancer),
		kgo.ConsumeTopics(f.cfg.Topics...),
		kgo.DisableAutoCommit(),
		// A partition must not be reassigned between a poll and the use of its records: they would be
		// counted to another assignment.
		kgo.BlockRebalanceOnPoll(),
		kgo.AdjustFetchOffsetsFn(f.placePartitions),
		// Only placePartitions decides offsets; a later OFFSET_OUT_OF_RANGE is an error.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(f.cfg.SessionTimeout),
		kgo.HeartbeatInterval(groupmember.HeartbeatInterval(f.cfg.SessionTimeout)),
		kgo.RebalanceTimeout(rebalanceTimeout),
	)
	if f.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(f.cfg.InstanceID))
	}
	return opts
}

// forgetPartitions is called with newly assigned partitions before the client can fetch them. It pauses the
// client, because the fetcher fetches, and drops the progress of earlier assignments.
func (f *Follower) forgetPartitions(client *kgo.Client, added []int32) {
	client.PauseFetchTopics(f.cfg.Topics...)
	f.tail.Forget(added)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, stands := range f.progress {
		for _, p := range added {
			delete(stands, p)
		}
	}
}

// placePartitions decides the first offsets of newly assigned partitions. The client calls it with the committed
// offsets before it fetches. An unavailable partition must not delay the others: it begins at Start's offset, and
// its next leader reports whether the log has that offset.
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
				end, stand.highWatermark, stand.answered = known, known, time.Now()
			} else {
				later = append(later, p)
			}
			var err error
			stand.position, err = f.startOffset(ctx, topic, p, committed.EpochOffset().Offset, start, end)
			if out, is := errors.AsType[*OffsetRangeError](err); is && out.Offset > end {
				// The log may have grown while Start ran.
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
			go f.awaitEnds(topic, later) // until the ends are known, or Close
		}
	}
	f.Wake()
	return offsets, nil
}

// awaitEnds requests the ends of partitions that were unavailable when they were assigned.
func (f *Follower) awaitEnds(topic string, ps []int32) {
	for len(ps) > 0 {
		if backoff.Sleep(f.life, awaitEndsInterval) != nil {
			return
		}
		_, ends, _ := f.logBounds(f.life, topic, ps)
		f.mu.Lock()
		ps = slices.DeleteFunc(ps, func(p int32) bool {
			end, known := ends[p]
			if stand, here := f.progress[topic][p]; known && here && stand.highWatermark == endUnknown {
				stand.highWatermark, stand.answered = end, time.Now()
				f.progress[topic][p] = stand
			}
			return known
		})
		f.mu.Unlock()
		f.Wake()
	}
}

// startOffset returns the first offset to read of a log that holds [start, end). committed is negative if there
// is no commit.
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
	if at != committed {
		f.cfg.Listener.Reset(topic, p, committed, at)
	}
	return at, nil
}

// logBounds returns the starts and the high watermarks of a topic's partitions. With an error some are
// missing.
func (f *Follower) logBounds(ctx context.Context, topic string, ps []int32) (starts, ends map[int32]int64, err error) {
	// The group's goroutine may call this before OpenFollower has set f.client.
	var admin *kadm.Client
	f.balancer.WithClient(func(client *kgo.Client) { admin = kadm.NewClient(client) })
	for try := 1; ; try++ {
		// The end first: a trim in between must not put the start above the end.
		last, endErr := admin.ListEndOffsets(ctx, topic)
		first, startErr := admin.ListStartOffsets(ctx, topic)
		ends, starts = map[int32]int64{}, map[int32]int64{}
		_, endErr = kafka.OffsetsOfPartitions(topic, "end", ps, last, endErr)
		_, startErr = kafka.OffsetsOfPartitions(topic, "start", ps, first, startErr)
		for _, p := range ps {
			end, ended := last.Lookup(topic, p)
			if start, began := first.Lookup(topic, p); ended && began && end.Err == nil && start.Err == nil {
				starts[p], ends[p] = start.Offset, end.Offset
			}
		}
		if err = errors.Join(endErr, startErr); err == nil || try == boundsTries || ctx.Err() != nil {
			return starts, ends, err
		}
		if backoff.Sleep(ctx, boundsRetryInterval) != nil {
			return starts, ends, ctx.Err()
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

// Assigned returns what the follower owns: partition -> assignment number. The number changes whenever the
// partition is assigned again after it was not owned. The map must not be modified.
func (f *Follower) Assigned() map[int32]uint64 { return f.balancer.Assigned() }

// TopicID returns the id of the topic that it reads, which is fixed for its lifetime; empty: the brokers don't tell it.
func (f *Follower) TopicID(topic string) string { return kafka.FormatTopicID(f.fetcher.ids[topic]) }

// HighWatermark returns the end of a partition's log when it was assigned, or shortly after. It is not ok if the
// partition isn't assigned, or its end isn't known yet. A reader whose Position has reached it has seen all
// records that were written before it became the owner.
func (f *Follower) HighWatermark(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	if !ok || stand.highWatermark == endUnknown {
		return 0, false
	}
	return stand.highWatermark, true
}

// Position returns the offset after everything that Poll returned or skipped (markers, aborted records) in a
// partition. It is not ok if the partition isn't assigned, or not placed yet.
func (f *Follower) Position(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	return stand.position, ok
}

// Tail returns the last stable offset in the last fetch response: a Position below it is behind. It is not ok as
// in Position.
func (f *Follower) Tail(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.progressOf(topic, p)
	return stand.tail, ok
}

// Answered returns when the leader of a partition last answered; zero: it never did. A partition with records that no Poll
// has returned yet isn't asked for more.
func (f *Follower) Answered(topic string, p int32) time.Time {
	stand, _ := f.progressOf(topic, p)
	return stand.answered
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

// Commit commits positions of the follower's only topic for the group. Members without Start begin there, and
// tools compute the lag from them. Partitions that the follower no longer owns are left out.
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

// Wake makes a blocking Poll return at once, or the next one that would block.
func (f *Follower) Wake() {
	select {
	case f.woken <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Close leaves the group (a static member only if LeaveOnClose says so) and
// closes the client, within a few seconds. Calling it again does nothing.
func (f *Follower) Close() { f.closing.Do(f.close) }

func (f *Follower) close() {
	err := groupmember.CloseClient(f.client, f.cancelLife, groupmember.Membership{Group: f.cfg.Group, Instance: f.cfg.InstanceID, LeavesOnClose: f.cfg.LeaveOnClose})
	if err != nil {
		f.cfg.Listener.LeaveFailed(err)
	}
	f.assignAll.Wait()
	f.fetcher.requests.Wait()
}

package kafka

import (
	"context"
	"errors"
	"fmt"
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
	// busyMax is how long a group waits for a member that is busy between two
	// polls before it goes on without it.
	busyMax = 30 * time.Second
	// placeTries, placeInterval: how often the ends of new partitions are asked
	// for before the member joins anew.
	placeTries    = 5
	placeInterval = 100 * time.Millisecond
)

// FollowerConfig says what to follow.
type FollowerConfig struct {
	Config
	// Group is the consumer group.
	Group string
	// InstanceID makes a static member; empty: a dynamic one.
	InstanceID string
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
	// SessionTimeout, FetchMaxWait, MaxPollRecords: zero means the default.
	SessionTimeout time.Duration
	FetchMaxWait   time.Duration
	MaxPollRecords int
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
	// Uneven: this member leads the group, and another reads other topics.
	Uneven func(member string, topics []string)
	// Reset: a committed offset is not in the log any more.
	Reset func(topic string, partition int32, from, to int64)
	// DataLost: the broker no longer has what it had acknowledged.
	DataLost func(err error)
	// Damaged: what the broker has of a partition can't be read, for it isn't what was
	// written. The partition stands still, the others don't; it is asked for again, and told
	// of again, at intervals that double.
	Damaged func(topic string, partition int32, err error)
}

// Follower is a member of a consumer group that reads committed records, from
// positions of its own, and knows when it has caught up. It commits nothing
// unless told to.
//
// One goroutine calls Poll; the other methods may be called from any. While
// the caller works between two polls no partition is given to another member,
// for half a minute: then the group goes on without this one.
type Follower struct {
	cfg      FollowerConfig
	client   *kgo.Client
	balancer *Balancer
	poller   poller
	tail     tailClock
	cut      context.CancelFunc
	still    standstills

	mu     sync.Mutex
	stands map[string]map[int32]standing // topic, partition
	broken error

	polled []events.Record // what Poll returned last
}

// standing is where a follower is in a partition.
type standing struct{ position, highWatermark, tail int64 }

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
	if cfg.Group == "" || len(cfg.Topics) == 0 || cfg.Partitions <= 0 {
		return nil, fmt.Errorf("follower of group %q: needs a group, topics (%d) and partitions (%d)", cfg.Group, len(cfg.Topics), cfg.Partitions)
	}
	if err := copartitioned(ctx, cfg.Config, cfg.Topics, cfg.Partitions); err != nil {
		return nil, fmt.Errorf("follower of group %q: %w", cfg.Group, err)
	}
	f := &Follower{cfg: cfg, balancer: NewBalancer(cfg.Partitions), still: standstills{}, stands: map[string]map[int32]standing{}}
	for _, topic := range cfg.Topics {
		f.stands[topic] = map[int32]standing{}
	}
	f.balancer.observe(cfg.Listener.Assigned, cfg.Listener.GroupFailed, cfg.Listener.Uneven)
	f.balancer.onAdded = f.forget
	life, cut := context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(cfg.options(), f.options(life)...)...)
	if err != nil {
		cut()
		return nil, fmt.Errorf("follower of group %q: client: %w", cfg.Group, err)
	}
	f.client, f.cut = client, cut
	f.poller = poller{client: client, wait: cfg.FetchMaxWait, max: cfg.MaxPollRecords}
	return f, nil
}

func (f *Follower) options(life context.Context) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithContext(life),
		kgo.WithHooks(f.balancer, f.tail.of(f.cfg.Config)),
		kgo.MetadataMinAge(metadataAgeMin),

		kgo.ConsumerGroup(f.cfg.Group),
		kgo.Balancers(f.balancer),
		kgo.ConsumeTopics(f.cfg.Topics...),
		kgo.DisableAutoCommit(),
		// A partition must not go and come back between a poll and what is
		// made of it: its records would fall into another assignment.
		kgo.BlockRebalanceOnPoll(),
		kgo.AdjustFetchOffsetsFn(f.place),
		// Only place says where to be; out of range later is an error.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Transaction markers take offsets. They are shown so that the position
		// is known where nothing but markers and rolled back records follow.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(f.cfg.FetchMaxWait),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes(len(f.cfg.Topics) * int(f.cfg.Partitions))),
		kgo.SessionTimeout(f.cfg.SessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval(f.cfg.SessionTimeout)),
		kgo.RebalanceTimeout(busyMax),
	}
	if f.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(f.cfg.InstanceID))
	}
	return opts
}

// forget is called when partitions come anew: where they stood says nothing.
func (f *Follower) forget(_ *kgo.Client, added []int32) {
	f.tail.forget(added)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, stands := range f.stands {
		for _, p := range added {
			delete(stands, p)
		}
	}
}

// place decides where to begin in partitions that came anew. The client calls
// it with the committed offsets, before it fetches.
func (f *Follower) place(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for topic, ps := range offsets {
		starts, ends, err := f.logs(ctx, topic)
		if err != nil {
			return nil, err
		}
		for p, committed := range ps {
			at, err := f.begin(ctx, topic, p, committed.EpochOffset().Offset, starts[p], ends[p])
			if err != nil {
				return nil, f.fail(ctx, fmt.Errorf("begin in topic %s partition %d: %w", topic, p, err))
			}
			ps[p] = kgo.NewOffset().At(at)
			f.mu.Lock()
			f.stands[topic][p] = standing{position: at, highWatermark: ends[p]}
			f.mu.Unlock()
		}
	}
	return offsets, nil
}

// begin is the offset to begin at in a log that holds [start, end); committed
// is negative if there is none.
func (f *Follower) begin(ctx context.Context, topic string, p int32, committed, start, end int64) (int64, error) {
	if f.cfg.Start != nil {
		at, ok, err := f.cfg.Start(ctx, topic, p)
		switch {
		case err != nil:
			return 0, err
		case ok && (at < start || at > end):
			return 0, &OffsetRangeError{Topic: topic, Partition: p, Offset: at, Start: start, End: end}
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

// logs are the starts and the high watermarks of a topic's partitions.
func (f *Follower) logs(ctx context.Context, topic string) (starts, ends map[int32]int64, err error) {
	// The group's goroutine may be here before OpenFollower has the client.
	var admin *kadm.Client
	f.balancer.whileOpen(func(client *kgo.Client) { admin = kadm.NewClient(client) })
	for try := 1; ; try++ {
		// The end first: a trim in between must not put the start above it.
		var last, first kadm.ListedOffsets
		last, err = admin.ListEndOffsets(ctx, topic)
		if ends, err = offsetsOf(topic, "end", last, err); err == nil {
			first, err = admin.ListStartOffsets(ctx, topic)
			starts, err = offsetsOf(topic, "start", first, err)
		}
		if err == nil || try == placeTries || ctx.Err() != nil {
			return starts, ends, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(placeInterval):
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
	if f.broken == nil {
		f.broken = fmt.Errorf("follower of group %q: %w", f.cfg.Group, err)
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

// Poll returns committed records that came in, at most MaxPollRecords, of
// partitions that are assigned; (nil, nil) after FetchMaxWait at the latest, or
// when woken. The order within a topic and partition is the log's. The
// positions it reached are those of Position. What it returns is the caller's
// until the next Poll; keys, values and headers may be kept.
//
// An error is final: ctx has ended, Start failed, the log no longer holds the
// position (*OffsetRangeError), or the group refuses the member. Close the
// follower and open a new one.
func (f *Follower) Poll(ctx context.Context) ([]events.Record, error) {
	f.client.AllowRebalance()
	clear(f.polled) // a poll that waits holds on to no batch
	f.polled = f.polled[:0]
	if err := f.failed(); err != nil {
		return nil, err
	}
	f.still.resume(time.Now(), func(at topicPartition) { f.client.ResumeFetchPartitions(at.flow()) })
	fetches, _ := f.poller.poll(ctx)
	f.still.pause(f.client, fetches, time.Now(), f.cfg.Listener.Damaged)
	// A start that failed shows as an error of the group, too: it says less.
	if err := f.failed(); err != nil {
		return nil, err
	}
	if err := fetchError(ctx, fetches, f.cfg.Listener.DataLost); err != nil {
		return nil, f.fail(ctx, fmt.Errorf("poll: %w", f.ranged(ctx, fetches, err)))
	}
	f.tail.observe(f.cfg.Config, fetches)
	owned := f.balancer.Assigned()
	f.polled = slices.Grow(f.polled, fetches.NumRecords())
	f.mu.Lock()
	defer f.mu.Unlock()
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		if _, ok := owned[fp.Partition]; !ok || len(fp.Records) == 0 {
			return
		}
		stand, placed := f.stands[fp.Topic][fp.Partition]
		if !placed {
			return // of an assignment before this one, which begins where place says
		}
		f.still.read(fp.Topic, fp.Partition)
		stand.tail = fp.LastStableOffset
		stand.position = fp.Records[len(fp.Records)-1].Offset + 1
		f.stands[fp.Topic][fp.Partition] = stand
		for _, r := range fp.Records {
			if !r.Attrs.IsControl() {
				f.polled = append(f.polled, recordOf(r))
			}
		}
	})
	if len(f.polled) == 0 {
		return nil, nil
	}
	return f.polled, nil
}

// ranged says where the log is, if an error is that we are not in it.
func (f *Follower) ranged(ctx context.Context, fetches kgo.Fetches, err error) error {
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return err
	}
	fetches.EachError(func(topic string, p int32, each error) {
		if !errors.Is(each, kerr.OffsetOutOfRange) {
			return
		}
		at, _ := f.Position(topic, p)
		starts, ends, listErr := f.logs(ctx, topic)
		if listErr != nil {
			err = errors.Join(err, listErr)
			return
		}
		err = errors.Join(err, &OffsetRangeError{Topic: topic, Partition: p, Offset: at, Start: starts[p], End: ends[p]})
	})
	return err
}

// HighWatermark is the end of a partition's log when it was assigned; not ok:
// it is not assigned, or the broker was not asked yet. A reader whose Position
// has reached it has seen all that was written before it became the owner.
func (f *Follower) HighWatermark(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.stand(topic, p)
	return stand.highWatermark, ok
}

// Position is the offset after everything that Poll returned or passed over
// (markers, rolled back records) in a partition; not ok as of HighWatermark.
func (f *Follower) Position(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.stand(topic, p)
	return stand.position, ok
}

// Tail is where committed records ended when a record of the partition was
// fetched last: a Position below it is behind. Not ok as of HighWatermark.
func (f *Follower) Tail(topic string, p int32) (offset int64, ok bool) {
	stand, ok := f.stand(topic, p)
	return stand.tail, ok
}

func (f *Follower) stand(topic string, p int32) (standing, bool) {
	if _, ok := f.balancer.Assigned()[p]; !ok {
		return standing{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, ok := f.stands[topic][p]
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

// Wake makes a Poll that blocks return at once, and else the next one.
func (f *Follower) Wake() { f.poller.wake() }

// Close leaves the group (a static member stays until its session times out)
// and closes the client, within a few seconds.
func (f *Follower) Close() { closeClient(f.client, f.cut) }

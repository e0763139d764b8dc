package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// Poll returns committed records that came in, at most MaxPollRecords, of
// partitions that are assigned; (nil, nil) after FetchMaxWait at the latest, or
// when woken. The order within a topic and partition is the log's. The
// positions it reached are those of Position. What it returns is the caller's
// until the next Poll; FollowerConfig.Lend says whether keys, values and headers may be
// kept.
//
// An error is final: ctx has ended, Start failed, the log no longer holds the
// position (*OffsetRangeError) or what was read before it (*LostError), or the group
// refuses the member. Close the follower and open a new one.
func (f *Follower) Poll(ctx context.Context) ([]events.Record, error) {
	if f.cfg.Group != "" {
		f.client.AllowRebalance()
	}
	clear(f.polled) // a poll that waits holds on to no batch
	f.polled = f.polled[:0]
	if err := f.checkMembership(ctx); err != nil {
		return nil, err
	}
	left := f.requestPartitions(time.Now())
	if err := f.receiveResponses(ctx, !left); err != nil {
		return nil, err
	}
	if f.collect(); len(f.polled) == 0 {
		return nil, nil
	}
	return f.polled, nil
}

// member fails if the follower can't be one of its group any more.
func (f *Follower) checkMembership(ctx context.Context) error {
	// The client has no records, but tells here of what has become of the group.
	told := f.client.PollRecords(nil, 0) //nolint:staticcheck // nil: what there is, without a wait
	// A start that failed shows as an error of the group, too: it says less.
	if err := f.failed(); err != nil {
		return err
	}
	if err := fetchError(ctx, told, nil, f.duplicate); err != nil {
		return f.fail(ctx, fmt.Errorf("poll: %w", err))
	}
	return nil
}

// duplicate is the error of a follower that another process has put out of the group; nil: it isn't known to be.
func (f *Follower) duplicate(err error) error {
	return f.balancer.duplicate(f.client, f.cfg.Group, f.cfg.InstanceID, f.cfg.SessionTimeout, err)
}

// ask has the leaders asked for what follows in the partitions that are assigned. It
// reports whether something is left of what they have answered.
func (f *Follower) requestPartitions(now time.Time) (left bool) {
	owned := f.balancer.Assigned()
	f.fetcher.nextRetry = time.Time{}
	for i, topic := range f.cfg.Topics {
		for p, r := range f.readers[i] {
			p := int32(p)
			number, ok := owned[p]
			switch {
			case !ok:
				f.readers[i][p] = nil
				continue
			case r == nil || r.assignment != number:
				if r = f.newPartitionReader(topic, p, number); r == nil {
					continue
				}
				f.readers[i][p] = r
			}
			left = left || r.hasUnread()
			f.fetcher.queueRequest(r, now)
		}
	}
	f.fetcher.sendRequests(f.cfg.processNow)
	return left
}

// begun begins to read a partition; nil: it isn't known yet from where on.
func (f *Follower) newPartitionReader(topic string, p int32, number uint64) *partitionReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, placed := f.progress[topic][p]
	if !placed {
		return nil
	}
	r := &partitionReader{at: topicPartition{topic, p}, assignment: number, batches: newBatchReader(topic, p, stand.position, f.cfg.ReuseBuffers), leader: noBroker}
	for _, hook := range f.cfg.Hooks {
		if hook, ok := hook.(kgo.HookFetchBatchRead); ok {
			r.batches.onBatch = func(m kgo.FetchBatchMetrics) {
				hook.OnFetchBatchRead(kgo.BrokerMetadata{NodeID: r.respondedBy}, topic, p, m)
			}
		}
	}
	return r
}

// answers takes in what leaders have answered; if it is to wait, for the first of them, for
// FetchMaxWait, or until woken.
func (f *Follower) receiveResponses(ctx context.Context, wait bool) error {
	for {
		select {
		case a := <-f.fetcher.responses:
			wait = false
			if err := f.handleResponse(ctx, &a); err != nil {
				return err
			}
			continue
		default:
		}
		if !wait {
			return ctx.Err()
		}
		wait = false
		a, err := f.awaitResponse(ctx)
		if a == nil || err != nil {
			return err
		}
		if err := f.handleResponse(ctx, a); err != nil {
			return err
		}
	}
}

func (f *Follower) awaitResponse(ctx context.Context) (*leaderResponse, error) {
	wait := f.cfg.FetchMaxWait
	if soonest := f.fetcher.nextRetry; !soonest.IsZero() {
		wait = min(wait, time.Until(soonest))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case a := <-f.fetcher.responses:
		return &a, nil
	case <-f.woken:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.fetcher.life.Done():
		return nil, kgo.ErrClientClosed
	}
	return nil, nil
}

// take takes in what a leader has answered.
func (f *Follower) handleResponse(ctx context.Context, a *leaderResponse) (err error) {
	f.fetcher.handleResponse(a, func(got partitionResponse) {
		if failed := f.handlePartition(ctx, got); failed != nil {
			err = errors.Join(err, failed)
		}
	})
	if err != nil {
		return f.fail(ctx, fmt.Errorf("poll: %w", err))
	}
	return nil
}

func (f *Follower) handlePartition(ctx context.Context, got partitionResponse) error {
	r, p := got.partitionReader, got.partition
	switch {
	case f.balancer.Assigned()[r.at.partition] != r.assignment:
		return nil // it went; what has become of its log is its next owner's to find out
	case errors.Is(got.err, kerr.OffsetOutOfRange):
		return f.rangeError(ctx, r, got.err)
	case got.err != nil:
		f.readFailed(got.err)
		return f.fetcher.retryLater(r, got.err, time.Now())
	case p == nil:
		r.backOff(time.Now()) // nothing was said of it, for want of a quota perhaps
		return nil
	case p.DivergingEpoch.EndOffset >= 0:
		return &LostError{Topic: r.at.topic, Partition: r.at.partition, From: min(r.batches.position, p.DivergingEpoch.EndOffset), To: r.batches.position}
	}
	r.end = p.HighWatermark
	if r.passedOver++; len(p.RecordBatches) > 0 || p.LastStableOffset <= r.batches.position {
		r.passedOver = 0
	}
	switch r.batches.startResponse(p); {
	case len(p.RecordBatches) > 0:
		r.lastData = r.came
	case r.came.Sub(r.lastData) > fetchIdleAfter:
		r.batches.releaseBuffers()
		fallthrough
	default:
		r.resetBackoff()
	}
	f.updateProgress(r, func(stand *partitionProgress) {
		stand.tail = max(stand.tail, p.LastStableOffset) // who has just come to lead may know of less
	})
	return nil
}

// readFailed tells that no broker answers.
func (f *Follower) readFailed(err error) {
	_, answered := errors.AsType[*kerr.Error](err)
	if answered || f.cfg.Listener.ReadFailed == nil || time.Since(f.readFailedAt) < readFailedInterval {
		return
	}
	f.readFailedAt = time.Now()
	f.cfg.Listener.ReadFailed(err)
}

// ranged says where the log is that doesn't hold the position of a reading.
func (f *Follower) rangeError(ctx context.Context, r *partitionReader, err error) error {
	err = fmt.Errorf("topic %s partition %d: %w", r.at.topic, r.at.partition, err)
	p := r.at.partition
	starts, ends, listErr := f.logBounds(ctx, r.at.topic, []int32{p})
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return errors.Join(err, &OffsetRangeError{Topic: r.at.topic, Partition: p, Offset: r.batches.position, Start: starts[p], End: ends[p]})
}

// LostError says that what was read is not in the log any more: a broker came to lead
// that didn't have it, though the cluster had acknowledged it. What was made of it must be
// rebuilt; going on behind it would mix two logs in silence.
type LostError struct {
	Topic     string
	Partition int32
	// From and To are what was read and is lost: [From, To).
	From, To int64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("topic %s partition %d: the cluster has lost what it had acknowledged, offsets %d to %d, which were read before",
		e.Topic, e.Partition, e.From, e.To-1)
}

// Permanent reports true: no other client finds what is lost.
func (e *LostError) Permanent() bool { return true }

// Ahead reports true: who has read it has what the log doesn't have.
func (e *LostError) Ahead() bool { return true }

// stood changes where a partition stands, if it still does in this assignment.
func (f *Follower) updateProgress(r *partitionReader, change func(*partitionProgress)) {
	owned := f.balancer.Assigned()
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, placed := f.progress[r.at.topic][r.at.partition]
	if !placed || owned[r.at.partition] != r.assignment {
		return
	}
	change(&stand)
	f.progress[r.at.topic][r.at.partition] = stand
}

// give fills polled from what was fetched, some of each partition in turn.
func (f *Follower) collect() {
	var owned map[int32]uint64
	n := int(f.cfg.Partitions)
	total := n * len(f.cfg.Topics)
	for range total {
		if len(f.polled) == f.cfg.MaxPollRecords {
			return
		}
		r := f.readers[f.nextReader/n][f.nextReader%n]
		f.nextReader = (f.nextReader + 1) % total
		if r == nil || !r.hasUnread() {
			continue
		}
		if owned == nil {
			f.blockRebalance()
			owned = f.balancer.Assigned()
		}
		if owned[r.at.partition] == r.assignment { // not of an assignment before this one
			f.collectPartition(r)
		}
	}
}

// hold keeps the group from giving a partition of this member to another until the next
// Poll: it must not go and come back between a poll and what is made of it, its records
// would fall into another assignment. To the client a poll whose context has ended
// is one whose records are at work.
func (f *Follower) blockRebalance() {
	if f.cfg.Group == "" {
		return
	}
	ended, end := context.WithCancel(context.Background())
	end()
	f.client.PollRecords(ended, 0)
}

// read gives some records of a partition.
func (f *Follower) collectPartition(r *partitionReader) {
	err := r.readMore()
	if err != nil {
		r.backOffQuarantined(time.Now())
		if f.cfg.Listener.Damaged != nil {
			f.cfg.Listener.Damaged(r.at.topic, r.at.partition, err)
		}
	} else {
		r.resetBackoff()
	}
	n := min(len(r.records), f.cfg.MaxPollRecords-len(f.polled))
	f.polled = append(f.polled, r.records[:n]...)
	if n > 0 && n == len(r.records) && len(r.batches.rest) == 0 {
		f.tail.observeLast(f.cfg.Config, &r.records[n-1], tailEnd{r.end, r.sent}, r.came)
	}
	r.records = r.records[n:]
	f.updateProgress(r, func(stand *partitionProgress) { stand.position = r.position() })
}

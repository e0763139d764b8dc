package logreader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// Poll returns at most MaxPollRecords committed records of assigned partitions. It returns (nil, nil) after
// FetchMaxWait, or when woken. Records of a partition are in log order. Position returns the positions that it
// reached. The slice is valid until the next Poll; FollowerConfig.ReuseBuffers decides whether keys, values and
// headers may be kept.
//
// An error is final: ctx has ended, Start failed, the log no longer holds the
// position (*OffsetRangeError) or records that were read (*LostError), or the group
// refuses the member. Close the follower and open a new one.
func (f *Follower) Poll(ctx context.Context) ([]events.Record, error) {
	if f.cfg.Group != "" {
		f.client.AllowRebalance()
	}
	clear(f.polled) // a waiting poll must not keep batches in memory
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

// checkMembership returns an error if the follower can't remain a member of its group.
func (f *Follower) checkMembership(ctx context.Context) error {
	// The client fetches no records, but returns errors of the group here.
	told := f.client.PollRecords(nil, 0) //nolint:staticcheck // nil: what there is, without a wait
	// A failed Start also appears as an error of the group, with less detail.
	if err := f.failed(); err != nil {
		return err
	}
	if err := groupmember.FetchError(ctx, told, nil, f.duplicate); err != nil {
		return f.fail(ctx, fmt.Errorf("poll: %w", err))
	}
	return nil
}

// duplicate returns the error of a follower whose instance id another process has taken; nil: that isn't established.
func (f *Follower) duplicate(err error) error {
	return f.balancer.Duplicate(f.client, f.cfg.Group, f.cfg.InstanceID, f.cfg.SessionTimeout, err)
}

// requestPartitions sends fetch requests for the assigned partitions. It reports whether fetched records are
// left.
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
	f.fetcher.sendRequests(f.cfg.Clock.ProcessNow)
	return left
}

// newPartitionReader returns a reader of a partition, nil if its first offset isn't known yet.
func (f *Follower) newPartitionReader(topic string, p int32, number uint64) *partitionReader {
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, placed := f.progress[topic][p]
	if !placed {
		return nil
	}
	r := &partitionReader{at: kafka.TopicPartition{Topic: topic, Partition: p}, assignment: number, batches: newBatchReader(topic, p, stand.position, f.cfg.ReuseBuffers), leader: noBroker}
	r.batches.contiguous = !kafka.IsCompacted(f.cfg.Namespace, topic)
	for _, hook := range f.cfg.Hooks {
		if hook, ok := hook.(kgo.HookFetchBatchRead); ok {
			r.batches.onBatch = func(m kgo.FetchBatchMetrics) {
				hook.OnFetchBatchRead(kgo.BrokerMetadata{NodeID: r.respondedBy}, topic, p, m)
			}
		}
	}
	return r
}

// receiveResponses handles the responses that have arrived. With wait it waits for the first one, up to
// FetchMaxWait or until woken.
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

// handleResponse handles the partitions of a leader's response.
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
	case f.balancer.Assigned()[r.at.Partition] != r.assignment:
		return nil // it is no longer assigned
	case errors.Is(got.err, kerr.OffsetOutOfRange):
		return f.rangeError(ctx, r, got.err)
	case got.err != nil:
		f.readFailed(got.err)
		return f.fetcher.retryLater(r, got.err, time.Now())
	case p == nil:
		r.backOff(time.Now()) // the response left it out, perhaps because of a quota
		return nil
	case p.DivergingEpoch.EndOffset >= 0:
		return &LostError{Topic: r.at.Topic, Partition: r.at.Partition, From: min(r.batches.position, p.DivergingEpoch.EndOffset), To: r.batches.position}
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
		stand.tail = max(stand.tail, p.LastStableOffset) // a new leader may not know the current one yet
		stand.answered = time.Now()
	})
	return nil
}

// readFailed reports that no broker answers.
func (f *Follower) readFailed(err error) {
	_, answered := errors.AsType[*kerr.Error](err)
	if answered || time.Since(f.readFailedAt) < readFailedInterval {
		return
	}
	f.readFailedAt = time.Now()
	f.cfg.Listener.ReadFailed(err)
}

// rangeError adds the bounds of a log that doesn't have the reader's position.
func (f *Follower) rangeError(ctx context.Context, r *partitionReader, err error) error {
	err = fmt.Errorf("topic %s partition %d: %w", r.at.Topic, r.at.Partition, err)
	p := r.at.Partition
	starts, ends, listErr := f.logBounds(ctx, r.at.Topic, []int32{p})
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return errors.Join(err, &OffsetRangeError{Topic: r.at.Topic, Partition: p, Offset: r.batches.position, Start: starts[p], End: ends[p]})
}

// LostError says that records which were read are no longer in the log: a new leader didn't have them, although the
// cluster had acknowledged them. State that was derived from them must be rebuilt. Continuing behind them would
// silently mix two logs.
type LostError struct {
	Topic     string
	Partition int32
	// From and To bound the lost records: [From, To).
	From, To int64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("topic %s partition %d: the cluster has lost acknowledged records, offsets %d to %d, which were read before",
		e.Topic, e.Partition, e.From, e.To-1)
}

// Permanent reports true: no other client can read the lost records.
func (e *LostError) Permanent() bool { return true }

// Ahead reports true: the reader has records that the log doesn't have.
func (e *LostError) Ahead() bool { return true }

// updateProgress changes the progress of a partition, unless the assignment has changed.
func (f *Follower) updateProgress(r *partitionReader, change func(*partitionProgress)) {
	owned := f.balancer.Assigned()
	f.mu.Lock()
	defer f.mu.Unlock()
	stand, placed := f.progress[r.at.Topic][r.at.Partition]
	if !placed || owned[r.at.Partition] != r.assignment {
		return
	}
	change(&stand)
	f.progress[r.at.Topic][r.at.Partition] = stand
}

// collect moves fetched records to polled, from the partitions in turn.
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
		if owned[r.at.Partition] == r.assignment { // not of an earlier assignment
			f.collectPartition(r)
		}
	}
}

// blockRebalance blocks rebalances until the next Poll: a partition must not be reassigned between a poll and the
// use of its records, or they would be counted to another assignment. The client blocks rebalances after any poll,
// even one whose context has ended.
func (f *Follower) blockRebalance() {
	if f.cfg.Group == "" {
		return
	}
	ended, end := context.WithCancel(context.Background())
	end()
	f.client.PollRecords(ended, 0)
}

// collectPartition moves records of one partition to polled.
func (f *Follower) collectPartition(r *partitionReader) {
	err := r.readMore()
	if err != nil {
		r.backOffQuarantined(time.Now())
		f.cfg.Listener.Corrupt(r.at.Topic, r.at.Partition, err)
	} else {
		r.resetBackoff()
	}
	n := min(len(r.records), f.cfg.MaxPollRecords-len(f.polled))
	f.polled = append(f.polled, r.records[:n]...)
	if n > 0 && n == len(r.records) && len(r.batches.rest) == 0 {
		f.tail.ObserveLast(&r.records[n-1], brokerclock.LogEnd{Offset: r.end, Asked: r.sent}, r.came)
	}
	r.records = r.records[n:]
	f.updateProgress(r, func(stand *partitionProgress) { stand.position = r.position() })
}

package brokerclock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

const (
	// errorMax is the largest error of the clock with which decisions are still committed.
	errorMax = time.Second
	// askTimeout bounds the time from a write to the answer when it was appended. A slower answer is too
	// imprecise.
	askTimeout = 2 * time.Second
	// askInterval is the pause after an answer without a record.
	askInterval = 5 * time.Millisecond
	// offsetOfMaxTimestamp requests, in ListOffsets, the record with the latest timestamp (KIP-734). The answer has its
	// offset and timestamp.
	offsetOfMaxTimestamp = -3
)

// Fresh reports whether the clock observed a record in the last minute.
func (c *Clock) Fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.fresh(c.processNow())
}

func (w *offsetWindow) fresh(local time.Time) bool {
	number := int64(w.elapsed(local)/bucketLength) + 1
	for _, b := range w.buckets {
		if b.number > 0 && b.number > number-bucketCount {
			return true
		}
	}
	return false
}

// WasRight reports whether decisions that were taken at an offset of c were taken at the right time, given that the
// client then wrote to a partition, between sent and now. If the clock is now known to have been off by more than a
// second, they must not be committed: time doesn't go back in a partition, so an instant far ahead would remain its
// time until then.
//
// Usually the tail of the inboxes has set the clock within the last minute, and no request is needed. A process that
// has just started has only its own clock. So WasRight requests when the broker appended what was just written: that
// lies between its sending and the answer, however long it took.
func (c *Clock) WasRight(ctx context.Context, cl *kgo.Client, offset time.Duration, topic string, partition int32, sent time.Time) (bool, error) {
	if c.Fresh() {
		return (c.Offset() - offset).Abs() <= errorMax, nil
	}
	appended, err := latestAppendTime(ctx, cl, topic, partition)
	if err != nil {
		return false, err
	}
	asked := c.processNow()
	least, most := c.difference(appended, sent), c.difference(appended, asked)
	right := offset >= least-errorMax && offset <= most+errorMax
	if !right || asked.Sub(sent) <= askTimeout {
		c.observeInterval(appended, sent, asked)
	}
	return right, nil
}

// Writes corrects a Clock with records that one client writes outside of transactions. Where records are rare, none at
// the tail sets the clock (see Tail), and the process would use its own clock for ever.
type Writes struct {
	clock     *Clock // nil: there is no clock to correct
	namespace events.Namespace
	client    *kgo.Client
	asking    atomic.Bool
}

// NewWrites returns a Writes for records of a namespace's topics. With a nil clock it does nothing.
func NewWrites(c *Clock, ns events.Namespace, cl *kgo.Client) *Writes {
	return &Writes{clock: c, namespace: ns, client: cl}
}

// Observe corrects the clock, if it isn't fresh, with an acknowledged record. sent is an instant of the process's clock
// before the record was acknowledged. It doesn't block. A failure leaves the clock unchanged, and the next record tries
// again.
func (w *Writes) Observe(r *kgo.Record, sent time.Time) {
	if w.clock == nil || !w.namespace.Owns(r.Topic) || w.clock.Fresh() || !w.asking.CompareAndSwap(false, true) {
		return
	}
	topic, partition := r.Topic, r.Partition
	go func() { // ends within askTimeout or when the client closes; r may be reused by then
		defer w.asking.Store(false)
		_ = w.clock.ask(context.Background(), w.client, topic, partition, sent)
	}()
}

// ask requests when the broker appended a record to a partition. sent is an instant of the process's clock before that.
func (c *Clock) ask(ctx context.Context, cl *kgo.Client, topic string, partition int32, sent time.Time) error {
	appended, err := latestAppendTime(ctx, cl, topic, partition)
	if err != nil {
		return err
	}
	asked := c.processNow()
	if took := asked.Sub(sent); took >= 0 && took <= askTimeout { // more if the process was stopped meanwhile
		c.observeInterval(appended, sent, asked)
	}
	return nil
}

// latestAppendTime returns the latest append time in a partition. For a caller whose record was acknowledged, it is no
// earlier than that record's. A broker returns no record while the latest one, of another writer, isn't replicated yet;
// the request is then repeated within askTimeout.
func latestAppendTime(ctx context.Context, cl *kgo.Client, topic string, partition int32) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		at, err := listMaxTimestamp(ctx, cl, topic, partition)
		if err != nil {
			return time.Time{}, fmt.Errorf("ask when %s partition %d was last appended to: %w", topic, partition, err)
		}
		if at >= 0 {
			return time.UnixMilli(at), nil
		}
		if backoff.Sleep(ctx, askInterval) != nil {
			return time.Time{}, fmt.Errorf("ask when %s partition %d was last appended to: "+
				"for %v the broker named no record, as if its last one was never replicated: %w",
				topic, partition, askTimeout, ctx.Err())
		}
	}
}

// listMaxTimestamp returns the latest timestamp of a partition's replicated records, in milliseconds since the Unix
// epoch; -1 if the broker returns none.
func listMaxTimestamp(ctx context.Context, cl *kgo.Client, topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, offsetOfMaxTimestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, errors.New("the broker's answer doesn't have the partition")
	}
	of := answer.Topics[0].Partitions[0]
	return of.Timestamp, kerr.ErrorForCode(of.ErrorCode)
}

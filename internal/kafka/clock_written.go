package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// clockErrorMax is the largest error of the clock with which decisions are still committed.
	clockErrorMax = time.Second
	// clockAskTimeout bounds the time from a write to the answer when it was appended. A slower answer is too
	// imprecise.
	clockAskTimeout = 2 * time.Second
	// clockAskInterval is the pause after an answer without a record.
	clockAskInterval = 5 * time.Millisecond
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
	number := int64(w.elapsed(local)/clockBucket) + 1
	for _, b := range w.buckets {
		if b.number > 0 && b.number > number-clockBuckets {
			return true
		}
	}
	return false
}

// clockWasRight reports whether the clock was right when the output of a transaction was decided. If it is now known to
// have been off by more than clockErrorMax, the transaction must not be committed: time doesn't go back in a partition,
// so an instant far ahead would remain its time until then.
//
// Usually the tail of the inboxes has set the clock within the last minute, and no request is needed. A process that
// has just started has only its own clock. So the worker requests when the broker appended what was just written: that
// lies between its sending and the answer, however long it took.
func (l *Worker) clockWasRight(ctx context.Context, records []*kgo.Record, sent time.Time) (bool, error) {
	clock := l.cfg.Clock
	if clock == nil || len(records) == 0 || !l.cfg.Namespace.Owns(records[0].Topic) {
		return true, nil
	}
	if clock.Fresh() {
		return (clock.Offset() - l.decidedBy).Abs() <= clockErrorMax, nil
	}
	appended, err := l.cfg.latestAppendTime(ctx, l.session.Client(), records[0].Topic, records[0].Partition)
	if err != nil {
		return false, err
	}
	asked := clock.processNow()
	least, most := clock.difference(appended, sent), clock.difference(appended, asked)
	right := l.decidedBy >= least-clockErrorMax && l.decidedBy <= most+clockErrorMax
	if !right || asked.Sub(sent) <= clockAskTimeout {
		clock.observeInterval(appended, sent, asked)
	}
	return right, nil
}

// writtenClock corrects a Clock with records that one client writes outside of transactions. Where records are rare,
// none at the tail sets the clock (see tailClock), and the process would use its own clock for ever.
type writtenClock struct{ asking atomic.Bool }

// observeWrite corrects the clock of c, if it isn't fresh, with an acknowledged record. sent is an instant of the
// process's clock before the record was acknowledged. It doesn't block. A failure leaves the clock unchanged, and the
// next record tries again.
func (w *writtenClock) observeWrite(c Config, cl *kgo.Client, r *kgo.Record, sent time.Time) {
	if c.Clock == nil || !c.Namespace.Owns(r.Topic) || c.Clock.Fresh() || !w.asking.CompareAndSwap(false, true) {
		return
	}
	topic, partition := r.Topic, r.Partition
	go func() { // ends within clockAskTimeout or when the client closes; r may be reused by then
		defer w.asking.Store(false)
		_ = c.askTime(context.Background(), cl, topic, partition, sent)
	}()
}

// askTime requests when the broker appended a record to a partition. sent is an instant of the process's clock before
// that.
func (c Config) askTime(ctx context.Context, cl *kgo.Client, topic string, partition int32, sent time.Time) error {
	appended, err := c.latestAppendTime(ctx, cl, topic, partition)
	if err != nil {
		return err
	}
	asked := c.Clock.processNow()
	if took := asked.Sub(sent); took >= 0 && took <= clockAskTimeout { // more if the process was stopped meanwhile
		c.Clock.observeInterval(appended, sent, asked)
	}
	return nil
}

// latestAppendTime returns the latest append time in a partition. For a caller whose record was acknowledged, it is no
// earlier than that record's. A broker returns no record while the latest one, of another writer, isn't replicated yet;
// the request is then repeated within clockAskTimeout.
func (c Config) latestAppendTime(ctx context.Context, cl *kgo.Client, topic string, partition int32) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, clockAskTimeout)
	defer cancel()
	for {
		at, err := listMaxTimestamp(ctx, cl, topic, partition)
		if err != nil {
			return time.Time{}, fmt.Errorf("ask when %s partition %d was last appended to: %w", topic, partition, err)
		}
		if at >= 0 {
			return time.UnixMilli(at), nil
		}
		select {
		case <-time.After(clockAskInterval):
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("ask when %s partition %d was last appended to: "+
				"for %v the broker named no record, as if its last one was never replicated: %w",
				topic, partition, clockAskTimeout, ctx.Err())
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
		return 0, errors.New("the broker answered about something else")
	}
	of := answer.Topics[0].Partitions[0]
	return of.Timestamp, kerr.ErrorForCode(of.ErrorCode)
}

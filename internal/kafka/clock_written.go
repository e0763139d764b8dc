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
	// clockErrorMax is how far a clock may be found wrong at once before what was
	// decided by it is given up.
	clockErrorMax = time.Second
	// clockAskTimeout bounds the time between a write and the answer to when it
	// was appended: what took longer tells the time badly.
	clockAskTimeout = 2 * time.Second
	// clockAskInterval is the pause after an answer that names no record.
	clockAskInterval = 5 * time.Millisecond
	// offsetOfMaxTimestamp asks ListOffsets for the record with the latest
	// timestamp (KIP-734), and is answered with both.
	offsetOfMaxTimestamp = -3
)

// Fresh reports whether a record told the time in the last minute.
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

// timeTold makes sure that the clock was right when the output of a transaction
// was decided: false, if it is now known to have been off by more than
// clockErrorMax, and the transaction must not be committed. An instant that is far
// ahead would be the partition's for as long: time doesn't fall there.
//
// Mostly the tail of the inboxes has told the time lately, and nothing is
// asked. A process that has just started knows its own clock only. So the
// broker is asked when it appended what was just written: between when that was
// sent and when the answer came, however long it took.
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

// writtenClock corrects a Clock by what one client writes outside of transactions.
// Where records are few none tells the time (see tailClock), and the process would
// go by its own clock for ever.
type writtenClock struct{ asking atomic.Bool }

// wrote is told of a record that was acknowledged; sent is an instant of the
// process's clock before it was. It doesn't wait. What goes wrong leaves the clock
// as it was, and the next record asks again.
func (w *writtenClock) observeWrite(c Config, cl *kgo.Client, r *kgo.Record, sent time.Time) {
	if c.Clock == nil || !c.Namespace.Owns(r.Topic) || c.Clock.Fresh() || !w.asking.CompareAndSwap(false, true) {
		return
	}
	topic, partition := r.Topic, r.Partition
	go func() { // until the client is closed, at most clockAskTimeout; r may be another record by then
		defer w.asking.Store(false)
		_ = c.askTime(context.Background(), cl, topic, partition, sent)
	}()
}

// askTime asks the broker when it appended a record to a partition that was sent at an
// instant of the process's clock.
func (c Config) askTime(ctx context.Context, cl *kgo.Client, topic string, partition int32, sent time.Time) error {
	appended, err := c.latestAppendTime(ctx, cl, topic, partition)
	if err != nil {
		return err
	}
	asked := c.Clock.processNow()
	if took := asked.Sub(sent); took >= 0 && took <= clockAskTimeout { // or the process was stopped meanwhile
		c.Clock.observeInterval(appended, sent, asked)
	}
	return nil
}

// latest is the latest instant at which anything was appended to the partition to
// which a record was, and acknowledged: no earlier than that one. A broker names none
// while the record of that instant isn't replicated yet, because another writer
// appended it after ours: then it is asked again, within clockAskTimeout.
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

// listMaxTimestamp is the latest timestamp of a partition's replicated records, in
// milliseconds of the Unix epoch; -1 if the broker names none.
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

package logreader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

const (
	// fenceWaitMax bounds the wait for the rollback that a fence causes.
	fenceWaitMax = 5 * time.Second
	// hangingAfter is how long after a fence the fenced transaction may remain open before it is reported as hanging.
	hangingAfter = 2 * time.Second
)

// HangingError reports a transaction that is open in a partition although its coordinator has ended it or doesn't know
// it: its marker is lost, and readers of committed records can't continue. Only an operator can end it.
//
// A single node of Apache Kafka that stops during transactions can cause that (seen with 4.3.1). When it restarts, it
// leads all partitions by its old metadata until the controller removes the old registration of the broker. Then no
// partition has a leader. The transaction coordinator treats such partitions as deleted, skips their markers, and
// records the transaction as complete. A commit can be lost in the same way.
type HangingError struct {
	Topic     string
	Partition int32
	// Producer and Epoch identify the producer, Start the transaction's first offset.
	Producer int64
	Epoch    int16
	Start    int64
	Brokers  []string
}

func (e *HangingError) Error() string {
	return fmt.Sprintf("the transaction of producer %d (epoch %d) is open in topic %s partition %d from offset %d on, and its coordinator has ended it or doesn't know it: "+
		"Kafka has lost its marker, and nothing after it can be read. Abort it by hand, here and in each partition where it is open, %s among them: `waybill doctor` "+
		"lists all of them. %s",
		e.Producer, e.Epoch, e.Topic, e.Partition, e.Start, OffsetsTopic, e.Abort())
}

// Abort returns the command that aborts the transaction in this partition.
func (e *HangingError) Abort() string {
	return fmt.Sprintf("kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
		strings.Join(e.Brokers, ","), e.Topic, e.Partition, e.Start)
}

// endBlocking ends the transactions that block a partition if their owner is a worker of this namespace. That worker is
// dead or has lost the partition. Other transactions are left to the broker's timeout. tell is false if the same was
// just reported.
func (r *Restorer) endBlocking(ctx context.Context, topic string, p int32, stable, end int64, tell bool) {
	if tell {
		r.listener.Blocked(topic, p, stable, end)
	}
	if err := r.fenceOpen(ctx, topic, p, end); err != nil && tell {
		r.listener.NotFenced(topic, p, err)
	}
}

func (r *Restorer) fenceOpen(ctx context.Context, topic string, p int32, end int64) error {
	described, err := r.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {p: {}}})
	if err != nil {
		return fmt.Errorf("describe the producers of topic %s partition %d: %w", topic, p, err)
	}
	var ids []int64
	open := map[int64]*HangingError{} // candidates, by producer id
	described.EachProducer(func(d kadm.DescribedProducer) {
		if d.CurrentTxnStartOffset >= 0 && d.CurrentTxnStartOffset < end {
			ids = append(ids, d.ProducerID)
			open[d.ProducerID] = &HangingError{topic, p, d.ProducerID, d.ProducerEpoch, d.CurrentTxnStartOffset, r.cfg.Brokers}
		}
	})
	if len(ids) == 0 {
		return nil
	}
	found, err := r.admin.ListTransactions(ctx, ids, nil)
	if err != nil {
		return fmt.Errorf("list the transactions of producers %v: %w", ids, err)
	}
	var faults []error
	for _, t := range found.Sorted() {
		o := open[t.ProducerID]
		if o == nil {
			continue // not requested
		}
		if gone, err := r.hasMovedOn(ctx, t.TxnID, o.Epoch); err != nil {
			return err
		} else if gone {
			continue // that transaction has ended; a fence would hit the id's present owner
		}
		delete(open, t.ProducerID)
		if !strings.HasPrefix(t.TxnID, kafka.FencePrefix(r.cfg)) {
			faults = append(faults, fmt.Errorf("transactional id %q is not a scheduler's of this namespace", t.TxnID))
			continue
		}
		before, err := r.fenceOnce(ctx, t.TxnID, producer{o.Producer, o.Epoch})
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("fence transactional id %q: %w", t.TxnID, err))
		case before > hangingAfter:
			faults = append(faults, o)
		}
	}
	for _, o := range open {
		if r.orphanedFor(ctx, producer{o.Producer, o.Epoch}) > hangingAfter {
			faults = append(faults, o)
		}
	}
	return errors.Join(faults...)
}

// fenceOnce fences an incarnation of a transactional id, once. A dead owner may block many partitions, and a process
// that has since opened the same id must not be fenced because of its predecessor. It returns how long ago the fence
// was.
func (r *Restorer) fenceOnce(ctx context.Context, id string, who producer) (before time.Duration, err error) {
	select {
	case r.fencing <- struct{}{}:
		defer func() { <-r.fencing }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if at, done := r.fenced[who]; done {
		return time.Since(at), nil
	}
	if err := r.fence(ctx, id); err != nil {
		return 0, err
	}
	r.fenced[who] = time.Now()
	r.listener.Fenced(id)
	return 0, nil
}

// hasMovedOn reports whether a transactional id is past the transaction with an epoch. Its end and a fence each
// increment the epoch once (KIP-890), and nothing else does before.
func (r *Restorer) hasMovedOn(ctx context.Context, id string, epoch int16) (bool, error) {
	described, err := r.admin.DescribeTransactions(ctx, id)
	if err != nil {
		return false, fmt.Errorf("describe the transaction of %q: %w", id, err)
	}
	t := described[id]
	return t.Err == nil && t.ProducerEpoch > epoch+1, nil
}

// orphanedFor returns for how long no coordinator has known a producer's transaction. A coordinator that is loading its
// log knows none, so a short time proves nothing.
func (r *Restorer) orphanedFor(ctx context.Context, who producer) time.Duration {
	select {
	case r.fencing <- struct{}{}:
		defer func() { <-r.fencing }()
	case <-ctx.Done():
		return 0
	}
	if _, met := r.orphaned[who]; !met {
		r.orphaned[who] = time.Now()
	}
	return time.Since(r.orphaned[who])
}

// fence requests a producer id for a transactional id, as a starting client does. The broker rolls back the open
// transaction and fences the previous producer.
func (r *Restorer) fence(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWaitMax)
	defer cancel()
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &id
		req.TransactionTimeoutMillis = int32(groupmember.DefaultTransactionTimeout / time.Millisecond)
		resp, err := req.RequestWith(ctx, r.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		// The rollback has begun; it is finished when the error ends.
		if backoff.Sleep(ctx, kafka.TransactionBackoff) != nil {
			return fmt.Errorf("rollback not finished within %v: %w", fenceWaitMax, err)
		}
	}
}

// OffsetsTopic has the offsets of all groups. Transactions that commit offsets write to it, too.
const OffsetsTopic = "__consumer_offsets"

package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fenceWaitMax bounds the wait for the broker to finish the rollback that a
	// fence begins.
	fenceWaitMax = 5 * time.Second
	// hangingAfter is how long after a fence what it rolled back may still be open.
	hangingAfter = 2 * time.Second
)

// HangingError is of a transaction that its coordinator has ended, or doesn't
// know, and that is open in a partition: its marker is lost, and nobody can read
// on there. Only an operator can end it.
//
// A single node of Apache Kafka that dies or stops in the middle of transactions does
// that (seen with 4.3.1). When it is back, it leads everything by its old metadata until the
// controller gives up the broker that it was before. Then no partition has a leader. The
// transaction coordinator takes such partitions for deleted, skips their markers, and writes that
// the transaction is complete. A commit can be lost in the same way.
type HangingError struct {
	Topic     string
	Partition int32
	// Producer and Epoch wrote it, from the offset Start on.
	Producer int64
	Epoch    int16
	Start    int64
	brokers  []string
}

func (e *HangingError) Error() string {
	return fmt.Sprintf("the transaction of producer %d (epoch %d) is open in topic %s partition %d from offset %d on, and its coordinator has ended it or doesn't know it: "+
		"Kafka has lost its marker, and nothing after it can be read. Abort it by hand, here and in each partition where it is open, %s among them: `waybill doctor` "+
		"lists all of them. %s",
		e.Producer, e.Epoch, e.Topic, e.Partition, e.Start, offsetsTopic, e.Abort())
}

// Abort is the command that ends it in this partition.
func (e *HangingError) Abort() string {
	return fmt.Sprintf("kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
		strings.Join(e.brokers, ","), e.Topic, e.Partition, e.Start)
}

// release ends the transactions that hold back a partition, where their owner
// is a worker of this namespace: by now it has lost the partition, or is dead.
// What can't be found or isn't a worker's is left to the broker's timeout. tell is
// false where the same was said a moment ago.
func (r *Restorer) endBlocking(ctx context.Context, topic string, p int32, stable, end int64, tell bool) {
	if tell && r.listener.Blocked != nil {
		r.listener.Blocked(topic, p, stable, end)
	}
	if err := r.fenceOpen(ctx, topic, p, end); err != nil && tell && r.listener.NotFenced != nil {
		r.listener.NotFenced(topic, p, err)
	}
}

func (r *Restorer) fenceOpen(ctx context.Context, topic string, p int32, end int64) error {
	described, err := r.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {p: {}}})
	if err != nil {
		return fmt.Errorf("describe the producers of topic %s partition %d: %w", topic, p, err)
	}
	var ids []int64
	open := map[int64]*HangingError{} // if it should prove to be one
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
			continue // not asked for
		}
		if gone, err := r.hasMovedOn(ctx, t.TxnID, o.Epoch); err != nil {
			return err
		} else if gone {
			continue // nothing is left to fence but who has the id now
		}
		delete(open, t.ProducerID)
		if !strings.HasPrefix(t.TxnID, fencePrefix(r.cfg)) {
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

// fenceOnce fences an incarnation of an id, unless this was done: a dead owner
// may hold back many partitions, and who opens the same id again must not be
// fenced for the sake of the one before. It returns how long before it was done.
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
	if r.listener.Fenced != nil {
		r.listener.Fenced(id)
	}
	return 0, nil
}

// goneOn reports whether a transactional id is past the transaction of an epoch: an
// end and a fence each add one (KIP-890), as nothing does before.
func (r *Restorer) hasMovedOn(ctx context.Context, id string, epoch int16) (bool, error) {
	described, err := r.admin.DescribeTransactions(ctx, id)
	if err != nil {
		return false, fmt.Errorf("describe the transaction of %q: %w", id, err)
	}
	t := described[id]
	return t.Err == nil && t.ProducerEpoch > epoch+1, nil
}

// orphanedFor is for how long no coordinator has known the transaction of a
// producer: one that loads its log knows none.
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

// fence takes a producer id for a transactional id, as a client does that
// starts: the broker rolls back what is open and refuses who had it before.
func (r *Restorer) fence(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWaitMax)
	defer cancel()
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &id
		req.TransactionTimeoutMillis = int32(DefaultTransactionTimeout / time.Millisecond)
		resp, err := req.RequestWith(ctx, r.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		// The rollback has begun; it is done when the broker says otherwise.
		select {
		case <-ctx.Done():
			return fmt.Errorf("rollback not finished within %v: %w", fenceWaitMax, err)
		case <-time.After(transactionBackoff):
		}
	}
}

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

// fenceWaitMax bounds the wait for the broker to finish the rollback that a
// fence begins.
const fenceWaitMax = 5 * time.Second

// release ends the transactions that hold back a partition, where their owner
// is a lane of this namespace: by now it has lost the partition, or is dead.
// What can't be found or isn't a lane's is left to the broker's timeout.
func (r *Restorer) release(ctx context.Context, topic string, p int32, stable, end int64) {
	if r.listener.HeldBack != nil {
		r.listener.HeldBack(topic, p, stable, end)
	}
	if err := r.fenceOpen(ctx, topic, p, end); err != nil && r.listener.NotFenced != nil {
		r.listener.NotFenced(topic, p, err)
	}
}

func (r *Restorer) fenceOpen(ctx context.Context, topic string, p int32, end int64) error {
	described, err := r.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {p: {}}})
	if err != nil {
		return fmt.Errorf("describe the producers of topic %s partition %d: %w", topic, p, err)
	}
	var open []int64
	epochs := map[int64]int16{}
	described.EachProducer(func(d kadm.DescribedProducer) {
		if d.CurrentTxnStartOffset >= 0 && d.CurrentTxnStartOffset < end {
			open = append(open, d.ProducerID)
			epochs[d.ProducerID] = d.ProducerEpoch
		}
	})
	if len(open) == 0 {
		return nil
	}
	found, err := r.admin.ListTransactions(ctx, open, nil)
	if err != nil {
		return fmt.Errorf("list the transactions of producers %v: %w", open, err)
	}
	var faults []error
	for _, t := range found.Sorted() {
		if !strings.HasPrefix(t.TxnID, fencePrefix(r.cfg)) {
			faults = append(faults, fmt.Errorf("transactional id %q is not a scheduler's of this namespace", t.TxnID))
			continue
		}
		if err := r.fenceOnce(ctx, t.TxnID, producer{t.ProducerID, epochs[t.ProducerID]}); err != nil {
			faults = append(faults, fmt.Errorf("fence transactional id %q: %w", t.TxnID, err))
		}
	}
	return errors.Join(faults...)
}

// fenceOnce fences an incarnation of an id, unless this was done: a dead owner
// may hold back many partitions, and who opens the same id again must not be
// fenced for the sake of the one before.
func (r *Restorer) fenceOnce(ctx context.Context, id string, who producer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fenced[who] {
		return nil
	}
	if err := r.fence(ctx, id); err != nil {
		return err
	}
	r.fenced[who] = true
	if r.listener.Fenced != nil {
		r.listener.Fenced(id)
	}
	return nil
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

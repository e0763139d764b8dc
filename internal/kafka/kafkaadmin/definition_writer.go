package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	// definitionsTransactionTimeout is the transaction timeout of who writes definitions: one that died holds up the
	// next for no longer.
	definitionsTransactionTimeout = 10 * time.Second
	// rollbackTimeout is how long a rollback waits for the broker.
	rollbackTimeout = 10 * time.Second
	// definitionsRetryMin is the longest first wait of one that was fenced; it doubles up to definitionsRetryMax.
	definitionsRetryMin = 50 * time.Millisecond
	definitionsRetryMax = 2 * time.Second
	// committedInterval is the pause between two questions whether readers get what was committed.
	committedInterval = 10 * time.Millisecond
)

// errRolledBack says that readers don't get what a confirmed transaction has written.
var errRolledBack = errors.New("the brokers confirmed the transaction, but have rolled it back")

// ChangeDefinitions reads the definitions topic and writes what follows from it, as one step: whoever else
// changes definitions meanwhile comes before or after, and never in between. decide is given all
// committed records, and returns what to write; none: nothing. It may be called several times.
//
// All who change definitions share a transactional id. Taking it over ends what another has open, and fences
// that one: its commit fails, and it begins again. It returns nil only when readers of committed records get the
// change.
func ChangeDefinitions(ctx context.Context, c kafka.Config, decide func(all []events.Record) ([]events.Record, error)) error {
	wait := definitionsRetryMin
	for {
		again, err := changeDefinitions(ctx, c, decide)
		if !again {
			return err
		}
		if backoff.Sleep(ctx, rand.N(wait)) != nil {
			return fmt.Errorf("other writers keep changing the definitions; try again: %w", err)
		}
		wait = min(2*wait, definitionsRetryMax)
	}
}

// changeDefinitions changes the definitions once. again: nothing is changed, and it may be tried again.
func changeDefinitions(ctx context.Context, c kafka.Config, decide func([]events.Record) ([]events.Record, error)) (again bool, err error) {
	admin, err := Open(c)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	cl, err := kgo.NewClient(append(c.ClientOptions(), append(kafka.ProduceOptions(),
		kgo.TransactionalID(string(c.Namespace)+"definitions"), kgo.TransactionTimeout(definitionsTransactionTimeout))...)...)
	if err != nil {
		return false, fmt.Errorf("client: %w", err)
	}
	defer cl.Close()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return isFenced(err), fmt.Errorf("take over the transactional id %sdefinitions: %w", c.Namespace, err)
	}
	var all []events.Record
	err = admin.ReadCompacted(ctx, c.Namespace.Definitions(), func(r events.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the definitions: %w", err)
	}
	out, err := decide(all)
	if err != nil || len(out) == 0 {
		return false, err
	}
	last, err := writeInTransaction(ctx, cl, out)
	if err != nil {
		return isFenced(err), fmt.Errorf("write to %s: %w", c.Namespace.Definitions(), err)
	}
	if err := awaitCommitted(ctx, admin, c.Namespace.Definitions(), last); err != nil {
		return false, err
	}
	committed, err := isCommitted(ctx, admin, c.Namespace.Definitions(), last)
	if err != nil {
		return false, fmt.Errorf("the definitions are written; check whether readers get them: %w", err)
	}
	if !committed {
		return true, errRolledBack
	}
	return false, nil
}

// awaitCommitted returns once readers of committed records get the record at an offset. A broker confirms a commit before
// it has written the markers that end the transaction, and an order of the new version may follow at once.
func awaitCommitted(ctx context.Context, admin *Admin, topic string, offset int64) error {
	for {
		ends, err := admin.CommittedEndOffsets(ctx, topic)
		if err != nil {
			return fmt.Errorf("the definitions are written; check whether readers get them: %w", err)
		}
		if ends[0] > offset {
			return nil
		}
		if backoff.Sleep(ctx, committedInterval) != nil {
			return fmt.Errorf("the definitions are written; wait until readers get them: %w", ctx.Err())
		}
	}
}

// isCommitted reports whether the record at an offset below the committed end was committed: the end also passes records
// that were rolled back. Compaction can't have removed it yet (definitionsLag).
func isCommitted(ctx context.Context, admin *Admin, topic string, offset int64) (committed bool, err error) {
	err = logreader.ReadCompacted(ctx, admin.cl, topic, map[int32]int64{0: offset}, map[int32]int64{0: offset + 1}, func(events.Record) error {
		committed = true
		return nil
	})
	return committed, err
}

// writeInTransaction writes records in a transaction, and returns the offset of the last one.
func writeInTransaction(ctx context.Context, cl *kgo.Client, out []events.Record) (last int64, err error) {
	if err := cl.BeginTransaction(); err != nil {
		return 0, err
	}
	rs := make([]*kgo.Record, len(out))
	for i := range out {
		rs[i] = kafka.ToKgo(&out[i])
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if ended := kafka.EndTransaction(bounded, cl, kgo.TryAbort); ended != nil && !isFenced(ended) {
			return 0, errors.Join(err, fmt.Errorf("roll back, which the brokers do by themselves within %s: %w", definitionsTransactionTimeout, ended))
		}
		return 0, err
	}
	return rs[len(rs)-1].Offset, kafka.EndTransaction(ctx, cl, kgo.TryCommit)
}

// isFenced reports whether another has taken a transactional id over.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ConcurrentTransactions) ||
		errors.Is(err, kerr.InvalidTxnState) // the new owner has rolled back what was open
}

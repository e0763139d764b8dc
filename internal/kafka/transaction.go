package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// EndTransaction ends the transaction of a client all of whose records are acknowledged or have failed. It returns nil
// only if the brokers have confirmed what how says. A GroupTransactSession doesn't need it: its commits have offsets.
//
// kgo.Client.EndTransaction (up to 1.22.3 at least) can roll a commit back and return nil. A topic's partitions become
// known to the client with its first record. The metadata goroutine hands the waiting records to the partitions first,
// and stores the partitions after that. Between the two, a record can be written, acknowledged, and its transaction
// ended. The client then finds no partition that was written to, and takes the transaction for an empty one. The
// goroutine holds a lock until it has stored the partitions, and AbortBufferedRecords takes that lock. No record is left
// that it could abort.
func EndTransaction(ctx context.Context, cl *kgo.Client, how kgo.TransactionEndTry) error {
	if err := cl.AbortBufferedRecords(ctx); err != nil {
		return fmt.Errorf("await the client's partitions before the end of a transaction: %w", err)
	}
	return cl.EndTransaction(ctx, how)
}

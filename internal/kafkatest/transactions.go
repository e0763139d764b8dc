package kafkatest

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// underWay are the states of a transaction that is not ended everywhere.
var underWay = []string{"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}

// OpenTransactions are the transactional ids that have a transaction under way,
// as their coordinators know: begun, or not marked in all of its partitions yet.
func (b *Broker) OpenTransactions(ctx context.Context) ([]string, error) {
	client, err := kgo.NewClient(b.Opts()...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	open, err := kadm.NewClient(client).ListTransactions(ctx, nil, underWay)
	if err != nil {
		return nil, fmt.Errorf("list the transactions under way: %w", err)
	}
	return open.TransactionalIDs(), nil
}

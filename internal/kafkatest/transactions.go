package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
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

// OpenTransaction writes a record in a transaction of its own that stays open until rollBack, and returns the record
// as the log has it.
func (b *Broker) OpenTransaction(t testing.TB, id string, r events.Record) (written events.Record, rollBack func()) {
	t.Helper()
	cl := b.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	err := cl.BeginTransaction()
	if err == nil {
		err = cl.ProduceSync(t.Context(), out).FirstErr()
	}
	if err != nil {
		t.Fatalf("write to %s in a transaction: %v", r.Topic, err)
	}
	r.Offset, r.Time = out.Offset, out.Timestamp
	return r, func() {
		t.Helper()
		if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatalf("roll back what was written to %s: %v", r.Topic, err)
		}
	}
}

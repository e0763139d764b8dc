package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rollBackTimeout bounds the rolling back of what a kill left open.
const rollBackTimeout = 30 * time.Second

// rollBack ends the transactions that were open when the process that had the
// data directory was killed. kfake takes them for rolled back when it reads the
// log, but writes no marker that says so, and a reader knows a rolled back
// transaction's end by its marker alone. Measured, of kills of a whole system:
//
//   - the next transactions of the same producer, committed, were passed over by
//     readers: they take all of a producer's records for rolled back until they
//     see the marker;
//   - after a second kill, the marker of the next commit counted for the records
//     before it, too: events came back that nobody had believed in, and were
//     there twice.
//
// So an abort marker goes to every partition for every transactional producer:
// which of them had something open can't be asked any more, and one too many
// changes nothing. Nobody may write before that.
func (b *Broker) abortOpenTransactions() error {
	ctx, cancel := context.WithTimeout(context.Background(), rollBackTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.Dialer(b.listener.dial), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopicsWithInternal(ctx)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return fmt.Errorf("list the topics: %w", err)
	}
	listed, err := admin.ListTransactions(ctx, nil, nil)
	if err != nil {
		return fmt.Errorf("list the transactional producers: %w", err)
	}
	if len(listed) == 0 || len(topics) == 0 {
		return nil
	}
	producers, err := admin.DescribeTransactions(ctx, listed.TransactionalIDs()...)
	if err != nil {
		return fmt.Errorf("describe the transactional producers: %w", err)
	}
	markers := make([]kadm.TxnMarkers, 0, len(producers))
	for _, p := range producers {
		if p.Err != nil {
			return fmt.Errorf("describe the transactional producer %s: %w", p.TxnID, p.Err)
		}
		markers = append(markers, kadm.TxnMarkers{ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, Topics: topics.TopicsSet()})
	}
	written, err := admin.WriteTxnMarkers(ctx, markers...)
	if err != nil {
		return fmt.Errorf("write the markers: %w", err)
	}
	written.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
		if p.Err != nil && err == nil {
			err = fmt.Errorf("write a marker to topic %s partition %d: %w", p.Topic, p.Partition, p.Err)
		}
	})
	return err
}

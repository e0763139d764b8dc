package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rollBackTimeout bounds the abort of transactions that a kill left open.
const rollBackTimeout = 30 * time.Second

// abortOpenTransactions aborts the transactions that were open when the previous process was killed. When kfake
// reads the log, it treats them as aborted, but writes no abort markers. Readers find the end of an aborted
// transaction only by its marker. Without it:
//
//   - readers skip the next committed transactions of the same producer, because they treat all of its records as
//     aborted until the marker;
//   - after a second kill, the next commit marker also commits the records before it, and aborted events reappear
//     as duplicates.
//
// kfake can't tell which producers had an open transaction. So an abort marker is written to every partition for
// every transactional producer; an extra marker changes nothing. It must happen before any client writes.
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

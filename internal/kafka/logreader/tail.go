package logreader

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// Tail reads new committed records of some partitions of a topic, from given offsets on. It uses no group, so it needs
// no rights on one and has no rebalances. It doesn't know whether it has reached the end (see Restorer). One goroutine
// polls it; Close is safe for concurrent use.
type Tail struct {
	client     *kgo.Client
	poller     groupmember.Poller
	cancelLife context.CancelFunc
	topic      string
}

// TailEnd, in place of an offset, is the partition's end when the Tail first connects to it.
const TailEnd = -1

// OpenTail starts at the offset, or TailEnd, that from has for each partition. Other partitions aren't read. It
// connects with the first poll.
func OpenTail(c kafka.Config, topic string, from map[int32]int64) (*Tail, error) {
	at := make(map[int32]kgo.Offset, len(from))
	for p, offset := range from {
		at[p] = kgo.NewOffset().At(offset) // kgo treats TailEnd as the end
	}
	life, cut := context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(c.ClientOptions(),
		kgo.WithContext(life),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // never read from another offset than the requested one
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(groupmember.DefaultFetchMaxWait),
		kgo.FetchMaxPartitionBytes(groupmember.FetchPartitionBytes(len(from))),
		kgo.MetadataMinAge(groupmember.MetadataAgeMin))...)
	if err != nil {
		cut()
		return nil, fmt.Errorf("tail of %s: client: %w", topic, err)
	}
	return &Tail{client: client, cancelLife: cut, topic: topic,
		poller: groupmember.Poller{Client: client, Wait: groupmember.DefaultFetchMaxWait, Max: groupmember.DefaultMaxPollRecords}}, nil
}

// Poll returns new records, in order within a partition; none after DefaultFetchMaxWait. An error is final: ctx has
// ended, the log doesn't have a requested offset, or reading is not permitted.
func (t *Tail) Poll(ctx context.Context) ([]events.Record, error) {
	fetches, _ := t.poller.Poll(ctx)
	if err := groupmember.FetchError(ctx, fetches, nil, kafka.FinalError); err != nil {
		return nil, fmt.Errorf("tail of %s: %w", t.topic, err)
	}
	rs := make([]*kgo.Record, 0, fetches.NumRecords())
	fetches.EachRecord(func(r *kgo.Record) { rs = append(rs, r) })
	if len(rs) == 0 {
		return nil, nil
	}
	return kafka.FromKgo(rs, make([]events.Record, 0, len(rs))), nil
}

// Close closes the client and ends a Poll that waits.
func (t *Tail) Close() { _ = groupmember.CloseClient(t.client, t.cancelLife, groupmember.NoMembership) } // there is no group to leave

package kafka

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// Tail reads committed records of some partitions of a topic as they come, from
// given offsets on, without a group: it needs no rights on one and waits for no
// rebalance. It doesn't know whether it has read to an end (see Restorer for a
// reader that does). One goroutine polls it; Close may be called from any.
type Tail struct {
	client     *kgo.Client
	poller     poller
	cancelLife context.CancelFunc
	cfg        Config
	topic      string
}

// TailEnd, in place of an offset, is where a partition ends when a Tail first finds it.
const TailEnd = -1

// OpenTail begins at the offset that from has for each partition, or TailEnd; others aren't
// read. It connects when it is first polled.
func OpenTail(c Config, topic string, from map[int32]int64) (*Tail, error) {
	at := make(map[int32]kgo.Offset, len(from))
	for p, offset := range maps.All(from) {
		at[p] = kgo.NewOffset().At(offset) // which takes TailEnd for the end
	}
	life, cut := context.WithCancel(context.Background())
	client, err := kgo.NewClient(append(c.options(),
		kgo.WithContext(life),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // elsewhere is not where it was asked for
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(DefaultFetchMaxWait),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes(len(from))),
		kgo.MetadataMinAge(metadataAgeMin))...)
	if err != nil {
		cut()
		return nil, fmt.Errorf("tail of %s: client: %w", topic, err)
	}
	return &Tail{client: client, cancelLife: cut, cfg: c, topic: topic,
		poller: poller{client: client, wait: DefaultFetchMaxWait, max: DefaultMaxPollRecords}}, nil
}

// Poll returns records that came, in the order of their partitions; none after
// DefaultFetchMaxWait. An error is final: ctx has ended, or the log doesn't hold
// an offset that was asked for, or may not be read.
func (t *Tail) Poll(ctx context.Context) ([]events.Record, error) {
	fetches, _ := t.poller.poll(ctx)
	if err := fetchError(ctx, fetches, nil, markFinal); err != nil {
		return nil, fmt.Errorf("tail of %s: %w", t.topic, err)
	}
	rs := make([]*kgo.Record, 0, fetches.NumRecords())
	fetches.EachRecord(func(r *kgo.Record) { rs = append(rs, r) })
	if len(rs) == 0 {
		return nil, nil
	}
	return fromKgo(rs, make([]events.Record, 0, len(rs))), nil
}

// Close ends the client, and a Poll that waits.
func (t *Tail) Close() { _ = closeClient(t.client, t.cancelLife, noMembership) } // it has no group to leave

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

const (
	topicVisibleTimeout = 30 * time.Second
	topicVisibleEvery   = 50 * time.Millisecond
	adminMetadataMinAge = 10 * time.Millisecond // the least that the client permits
)

// Admin asks and tells the cluster what is about topics and groups rather than
// records. It is safe for concurrent use. Every call is bounded by its context
// only, so give it one that ends.
type Admin struct {
	cfg Config
	cl  *kgo.Client
	adm *kadm.Client
}

// OpenAdmin returns an Admin; it connects when it is first used.
func OpenAdmin(c Config) (*Admin, error) {
	cl, err := kgo.NewClient(append(c.options(), append(produceOptions(),
		kgo.RecordDeliveryTimeout(DefaultDeliveryTimeout),
		// What an operator has just changed is what is asked for next.
		kgo.MetadataMinAge(adminMetadataMinAge))...)...)
	if err != nil {
		return nil, fmt.Errorf("open Kafka admin client: %w", err)
	}
	return &Admin{cfg: c, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the connections.
func (a *Admin) Close() { a.cl.Close() }

// ErrLogin is wrapped where brokers answer, and don't let the client in.
var ErrLogin = errors.New("the Kafka brokers refuse the log-in")

// Ping returns nil once any broker has answered; ErrLogin: it won't.
func (a *Admin) Ping(ctx context.Context) error {
	err := a.cl.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return fmt.Errorf("%w at %v; check the SASL mechanism, the user and the password: %w", ErrLogin, a.cfg.Brokers, err)
	}
	return fmt.Errorf("no Kafka broker answers at %v: %w", a.cfg.Brokers, err)
}

// ClusterID is the cluster's own id.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	meta, err := a.adm.BrokerMetadata(ctx)
	if err != nil {
		return "", fmt.Errorf("read the cluster id: %w", err)
	}
	return meta.Cluster, nil
}

// TopicPartitions is a topic's partition count, and whether there is such a
// topic.
func (a *Admin) TopicPartitions(ctx context.Context, topic string) (int32, bool, error) {
	t, err := a.topicDetail(ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return int32(len(t.Partitions)), true, nil
}

// metadata of some topics, or of all. It asks for authorized operations too,
// which nobody reads, because such a question is not answered from the client's
// cache.
func metadata(ctx context.Context, adm *kadm.Client, topics ...string) (kadm.Metadata, error) {
	return adm.Metadata(kadm.WithAuthorizedOps(ctx), topics...)
}

func (a *Admin) topicDetail(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	meta, err := metadata(ctx, a.adm, topic)
	if err == nil {
		err = meta.Topics[topic].Err
	}
	if err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	return meta.Topics[topic], nil
}

// RequestTopics is the partition count of each agent's request topic, and those of its partitions
// that no broker leads at the moment, ascending.
func (a *Admin) RequestTopics(ctx context.Context) (partitions map[string]int32, leaderless map[string][]int32, err error) {
	meta, err := metadata(ctx, a.adm)
	if err != nil {
		return nil, nil, fmt.Errorf("list topics: %w", err)
	}
	partitions, leaderless = map[string]int32{}, map[string][]int32{}
	for name, t := range meta.Topics {
		if agent, ok := a.cfg.Namespace.AgentOf(name); ok && t.Err == nil {
			partitions[agent] = int32(len(t.Partitions))
			if none := leaderlessPartitions(t); len(none) > 0 {
				leaderless[agent] = none
			}
		}
	}
	return partitions, leaderless, nil
}

// DeleteRecordsBefore trims each partition of a topic: what lies below the
// given offset can no longer be read. An offset below the partition's start
// changes nothing, and a partition of which the cluster doesn't say where it starts,
// such as one without a leader, stays as it is.
func (a *Admin) DeleteRecordsBefore(ctx context.Context, topic string, before map[int32]int64) error {
	starts, err := a.knownStartOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("trim %s: %w", topic, err)
	}
	var offsets kadm.Offsets
	for p, at := range before {
		if start, known := starts[p]; known && at > start {
			offsets.AddOffset(topic, p, at, -1)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	answers, err := a.adm.DeleteRecords(ctx, offsets)
	if err != nil {
		return fmt.Errorf("trim %s: %w", topic, err)
	}
	for _, p := range slices.Sorted(maps.Keys(offsets[topic])) {
		answer, ok := answers[topic][p]
		switch {
		case !ok:
			return fmt.Errorf("trim %s/%d before %d: the broker left it unanswered; try again", topic, p, before[p])
		case answer.Err != nil:
			return fmt.Errorf("trim %s/%d before %d: %w", topic, p, before[p], answer.Err)
		}
	}
	return nil
}

// TrimTopic is DeleteRecordsBefore of a topic that has an id; empty: whichever it has. If the topic was deleted and
// created again, the offsets are positions in the first one, and nothing is deleted: a RecreatedError. Nothing is deleted of
// partitions whose logs were cut off below where the scheduler group read them: below that lies what nobody has read.
func (a *Admin) TrimTopic(ctx context.Context, topic, id string, before map[int32]int64) error {
	if id != "" {
		listed, err := a.adm.ListTopics(ctx, topic)
		if err == nil {
			err = listed[topic].Err
		}
		if err != nil {
			return fmt.Errorf("trim %s: %w", topic, err)
		}
		if is := topicID(listed[topic].ID); is != "" && is != id {
			return fmt.Errorf("trim: %w", &RecreatedError{topic, id, is})
		}
	}
	safe, err := a.withoutCuts(ctx, topic, before)
	if err != nil {
		return fmt.Errorf("trim %s: %w", topic, err)
	}
	return a.DeleteRecordsBefore(ctx, topic, safe)
}

// InboxTopicIDs are the ids of the inboxes' topics; empty, where there is no such topic.
func (a *Admin) InboxTopicIDs(ctx context.Context) (ids events.TopicIDs, err error) {
	listed, err := a.adm.ListTopics(ctx, a.cfg.Namespace.InboxTopics()...)
	if err != nil {
		return ids, fmt.Errorf("list the inboxes: %w", err)
	}
	for i, topic := range a.cfg.Namespace.InboxTopics() {
		ids[i] = topicID(listed[topic].ID)
	}
	return ids, nil
}

// StartOffsets is the first offset of each partition of a topic.
func (a *Admin) StartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListStartOffsets(ctx, topic)
	return allOffsets(topic, "start", listed, err)
}

// EndOffsets is the offset after the last record of each partition of a topic:
// the high watermark.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListEndOffsets(ctx, topic)
	return allOffsets(topic, "end", listed, err)
}

// CommittedEndOffsets is where a reader of committed records ends: the last
// stable offset of each partition of a topic.
func (a *Admin) CommittedEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListCommittedOffsets(ctx, topic)
	return allOffsets(topic, "committed end", listed, err)
}

// KnownCommittedEndOffsets is CommittedEndOffsets without the partitions of which the cluster doesn't
// say it, such as those that have no leader. It fails if that is none.
func (a *Admin) KnownCommittedEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListCommittedOffsets(ctx, topic)
	return knownOffsets(topic, "committed end", listed, err)
}

// KnownEndOffsets is EndOffsets of those partitions.
func (a *Admin) KnownEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListEndOffsets(ctx, topic)
	return knownOffsets(topic, "end", listed, err)
}

// knownStartOffsets is StartOffsets of those partitions.
func (a *Admin) knownStartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListStartOffsets(ctx, topic)
	return knownOffsets(topic, "start", listed, err)
}

// knownOffsets is allOffsets without the partitions of which the cluster doesn't say it, unless
// that is all of them.
func knownOffsets(topic, which string, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		if o.Err == nil {
			offsets[p] = o.Offset
		}
	}
	if len(offsets) > 0 {
		return offsets, nil
	}
	return allOffsets(topic, which, listed, err)
}

// offsetsOfPartitions is allOffsets of some partitions; what is wrong with others is nothing to them.
func offsetsOfPartitions(topic, which string, partitions []int32, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	offsets := make(map[int32]int64, len(partitions))
	for _, p := range partitions {
		switch o, ok := listed.Lookup(topic, p); {
		case ok && o.Err == nil:
			offsets[p] = o.Offset
		case ok:
			return nil, fmt.Errorf("list %s offsets of %s/%d: %w", which, topic, p, o.Err)
		case err != nil || listed.Error() != nil || len(listed[topic]) == 0:
			return allOffsets(topic, which, listed, err)
		default:
			return nil, fmt.Errorf("topic %s has no partition %d, the last one is %d", topic, p, len(listed[topic])-1)
		}
	}
	return offsets, nil
}

func allOffsets(topic, which string, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	if err == nil {
		err = listed.Error()
	}
	if err == nil && len(listed[topic]) == 0 {
		err = kerr.UnknownTopicOrPartition
	}
	if err != nil {
		return nil, fmt.Errorf("list %s offsets of %s: %w", which, topic, err)
	}
	offsets := make(map[int32]int64, len(listed[topic]))
	for p, o := range listed[topic] {
		offsets[p] = o.Offset
	}
	return offsets, nil
}

// ReadCompacted calls fn with every committed record of a topic, as of the
// call, partition by partition, in the order of their offsets; of several with
// one key the last is the one that counts. An error of fn ends it.
func (a *Admin) ReadCompacted(ctx context.Context, topic string, fn func(events.Record) error) error {
	starts, err := a.StartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := a.CommittedEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		r := newReader(a.cl, topic, p, starts[p])
		r.compacted = true
		for r.position() < ends[p] {
			batch, err := r.next(ctx)
			if err != nil {
				return errors.Join(err, r.lastErr)
			}
			for _, record := range batch {
				if record.Offset >= ends[p] {
					break
				}
				if err := fn(record); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

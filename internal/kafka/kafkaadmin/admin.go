package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	topicVisibleTimeout = 30 * time.Second
	topicVisibleEvery   = 50 * time.Millisecond
	adminMetadataMinAge = 10 * time.Millisecond // the client's minimum
)

// Admin manages and inspects topics and consumer groups. It is safe for concurrent use.
// Only the context bounds a call, so pass one that ends.
type Admin struct {
	cfg kafka.Config
	cl  *kgo.Client
	adm *kadm.Client
}

// Open returns an Admin; it connects when it is first used.
func Open(c kafka.Config) (*Admin, error) {
	cl, err := kgo.NewClient(append(c.ClientOptions(), append(kafka.ProduceOptions(),
		kgo.RecordDeliveryTimeout(kafka.DefaultDeliveryTimeout),
		// A caller reads back what it has just changed.
		kgo.MetadataMinAge(adminMetadataMinAge))...)...)
	if err != nil {
		return nil, fmt.Errorf("open Kafka admin client: %w", err)
	}
	return &Admin{cfg: c, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the connections.
func (a *Admin) Close() { a.cl.Close() }

// ErrLogin is wrapped if brokers answer and refuse the authentication.
var ErrLogin = errors.New("the Kafka brokers refuse the log-in")

// Ping returns nil once any broker has answered. The error wraps ErrLogin if the brokers refuse
// the authentication. All brokers are asked at the same time: a frozen one may accept a connection and never answer.
func (a *Admin) Ping(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	brokers := append(a.cl.SeedBrokers(), a.cl.DiscoveredBrokers()...)
	answers := make(chan error, len(brokers))
	for _, b := range brokers {
		go func() {
			request := kmsg.NewPtrMetadataRequest()
			request.Topics = []kmsg.MetadataRequestTopic{} // none; nil would mean all
			_, err := b.Request(ctx, request)
			answers <- err
		}()
	}
	var failures []error
	for range brokers {
		err := <-answers
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return a.noAnswer(failures)
}

// noAnswer returns the error of a Ping with the failures of all brokers.
func (a *Admin) noAnswer(failures []error) error {
	var why []string
	for _, err := range failures {
		switch {
		case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
			return fmt.Errorf("%w at %v; check the SASL mechanism, the user and the password: %w", ErrLogin, a.cfg.Brokers, err)
		case errors.Is(err, context.DeadlineExceeded):
			why = append(why, "no answer in time")
		default:
			why = append(why, err.Error())
		}
	}
	slices.Sort(why)
	return &noAnswerError{fmt.Sprintf("no Kafka broker answers at %v: %s", a.cfg.Brokers, strings.Join(slices.Compact(why), "; ")), failures}
}

// WithAdvice adds what to do to an error that says that the brokers don't permit something. That of a refused log-in says
// so itself.
func WithAdvice(err error) error {
	if errors.Is(err, ErrLogin) {
		return err
	}
	return kafka.FinalError(err)
}

// noAnswerError says in one line why no broker answered.
type noAnswerError struct {
	text     string
	failures []error
}

func (e *noAnswerError) Error() string   { return e.text }
func (e *noAnswerError) Unwrap() []error { return e.failures }

// ClusterID is the cluster's own id.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	meta, err := a.adm.BrokerMetadata(ctx)
	if err != nil {
		return "", fmt.Errorf("read the cluster id: %w", err)
	}
	return meta.Cluster, nil
}

// TopicPartitions returns a topic's partition count, and whether the topic exists.
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

func (a *Admin) topicDetail(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	meta, err := kafka.Metadata(ctx, a.adm, topic)
	if err == nil {
		err = meta.Topics[topic].Err
	}
	if err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	return meta.Topics[topic], nil
}

// RequestTopics returns the partition count of each agent's request topic, and its leaderless partitions,
// ascending.
func (a *Admin) RequestTopics(ctx context.Context) (partitions map[string]int32, leaderless map[string][]int32, err error) {
	meta, err := kafka.Metadata(ctx, a.adm)
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

// DeleteRecordsBefore deletes the records of each partition below the given offset. An offset
// below the partition's start changes nothing. A partition whose start offset the cluster doesn't
// return, such as a leaderless one, stays as it is.
func (a *Admin) DeleteRecordsBefore(ctx context.Context, topic string, before map[int32]int64) error {
	starts, err := a.KnownStartOffsets(ctx, topic)
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
			return fmt.Errorf("trim %s/%d before %d: the broker did not answer for this partition; try again", topic, p, before[p])
		case answer.Err != nil:
			return fmt.Errorf("trim %s/%d before %d: %w", topic, p, before[p], answer.Err)
		}
	}
	return nil
}

// TrimTopic is DeleteRecordsBefore for the topic with an id; an empty id means any. If the topic was recreated, the
// offsets are positions in the old topic: TrimTopic deletes nothing and returns a RecreatedError. It skips partitions
// whose logs were truncated below the scheduler group's position: records there are unread.
func (a *Admin) TrimTopic(ctx context.Context, topic, id string, before map[int32]int64) error {
	if id != "" {
		listed, err := a.adm.ListTopics(ctx, topic)
		if err == nil {
			err = listed[topic].Err
		}
		if err != nil {
			return fmt.Errorf("trim %s: %w", topic, err)
		}
		if is := kafka.FormatTopicID(listed[topic].ID); is != "" && is != id {
			return fmt.Errorf("trim: %w", &kafka.RecreatedError{Topic: topic, Was: id, Is: is})
		}
	}
	safe, err := a.withoutCuts(ctx, topic, before)
	if err != nil {
		return fmt.Errorf("trim %s: %w", topic, err)
	}
	return a.DeleteRecordsBefore(ctx, topic, safe)
}

// TopicID returns the id of a topic; empty: it doesn't exist, or the brokers don't support ids.
func (a *Admin) TopicID(ctx context.Context, topic string) (string, error) {
	listed, err := a.adm.ListTopics(ctx, topic)
	return kafka.FormatTopicID(listed[topic].ID), err
}

// InboxTopicIDs returns the ids of the inbox topics; empty for a topic that doesn't exist.
func (a *Admin) InboxTopicIDs(ctx context.Context) (ids events.TopicIDs, err error) {
	listed, err := a.adm.ListTopics(ctx, a.cfg.Namespace.InboxTopics()...)
	if err != nil {
		return ids, fmt.Errorf("list the inboxes: %w", err)
	}
	for i, topic := range a.cfg.Namespace.InboxTopics() {
		ids[i] = kafka.FormatTopicID(listed[topic].ID)
	}
	return ids, nil
}

// StartOffsets returns the first offset of each partition of a topic.
func (a *Admin) StartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListStartOffsets(ctx, topic)
	return kafka.AllOffsets(topic, "start", listed, err)
}

// EndOffsets returns the high watermark of each partition of a topic: the offset after the last record.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListEndOffsets(ctx, topic)
	return kafka.AllOffsets(topic, "end", listed, err)
}

// CommittedEndOffsets returns the last stable offset of each partition of a topic: a reader of committed records
// ends there.
func (a *Admin) CommittedEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListCommittedOffsets(ctx, topic)
	return kafka.AllOffsets(topic, "committed end", listed, err)
}

// KnownCommittedEndOffsets is CommittedEndOffsets without the partitions for which the cluster returns no
// offset, such as leaderless ones. It fails if no partition is left.
func (a *Admin) KnownCommittedEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListCommittedOffsets(ctx, topic)
	return kafka.KnownOffsets(topic, "committed end", listed, err)
}

// KnownEndOffsets is EndOffsets with the same omission.
func (a *Admin) KnownEndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListEndOffsets(ctx, topic)
	return kafka.KnownOffsets(topic, "end", listed, err)
}

// KnownStartOffsets is StartOffsets with the same omission.
func (a *Admin) KnownStartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := a.adm.ListStartOffsets(ctx, topic)
	return kafka.KnownOffsets(topic, "start", listed, err)
}

// ReadCompacted calls fn with every record of a topic that is committed at the time of the call, partition
// by partition, in offset order. Of several records with one key the last one counts. An error of fn
// ends the read. It fails with a *logreader.UnavailableError if a partition has no leader.
func (a *Admin) ReadCompacted(ctx context.Context, topic string, fn func(events.Record) error) error {
	starts, err := a.StartOffsets(ctx, topic)
	if err != nil {
		return logreader.LeaderlessError(ctx, a.adm, topic, nil, err)
	}
	ends, err := a.CommittedEndOffsets(ctx, topic)
	if err != nil {
		return logreader.LeaderlessError(ctx, a.adm, topic, nil, err)
	}
	return logreader.ReadCompacted(ctx, a.cl, topic, starts, ends, fn)
}

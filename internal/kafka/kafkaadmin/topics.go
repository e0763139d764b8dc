package kafkaadmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	wantReplication = 3
	wantMinISR      = 2
	// MaxMessageBytes is the max.message.bytes of the namespace's topics: the largest batch, compressed. It exceeds the
	// client's own limit of 1 MB, so the client and never the broker refuses a batch.
	MaxMessageBytes = 2 << 20

	answersRetention     = time.Hour
	requestsRetention    = 7 * 24 * time.Hour  // a request is useless after its complete-by
	notifyRetention      = 7 * 24 * time.Hour  // the longest outage of a notifier without loss
	alertsRetention      = 30 * 24 * time.Hour // operators read them, possibly late
	deadlettersRetention = 30 * 24 * time.Hour
	batchesRetention     = 30 * 24 * time.Hour // more than the life of a batch
	schedulesRetention   = 30 * 24 * time.Hour // more than the longest catch_up

	keepForEver = "-1"

	// FormatVersion is the version of the topics and records that this program writes.
	FormatVersion = 1
	formatKey     = "format"
)

// CreateTopicsOptions says what CreateTopics creates.
type CreateTopicsOptions struct {
	// Partitions is the partition count of the inboxes, events and the related topics; 0: the namespace's present one,
	// or events.DefaultPartitions. It can't change later, because it determines the partition of each task.
	Partitions int32
	// Replication is that of every topic; 0: 3, or the number of brokers if that is less.
	Replication int16
	// Agents has the agents whose request topics to create, with their partition counts; 0: events.DefaultPartitions.
	Agents map[string]int32
}

// TopicReport is the result for one topic.
type TopicReport struct {
	Topic       string
	Partitions  int32
	Replication int16
	Created     bool
	// Note is a hint for the operator; often empty.
	Note string
}

// topicSpec is the specification of a topic.
type topicSpec struct {
	name       string
	partitions int32
	// inPartition: a task's records have the same partition number here as in events, so the topic needs as many
	// partitions as events.
	inPartition bool
	// inbox: records in added partitions are forwarded by a worker to the right partition.
	inbox bool
	// single: readers read one partition.
	single bool
	// kept: neither retention time nor size may delete its records.
	kept     bool
	settings map[string]string
}

// fits reports whether the topic may have this many partitions.
func (s *topicSpec) fits(partitions int32) bool {
	if s.single {
		return partitions == 1
	}
	return !s.inPartition || partitions == s.partitions || s.inbox && partitions > s.partitions
}

func topicSettings(cleanup string, retention time.Duration, extra ...string) map[string]string {
	s := map[string]string{
		"cleanup.policy":                 cleanup,
		"message.timestamp.type":         "LogAppendTime",
		"max.message.bytes":              strconv.Itoa(MaxMessageBytes),
		"unclean.leader.election.enable": "false",
	}
	if retention > 0 {
		s["retention.ms"] = strconv.FormatInt(retention.Milliseconds(), 10)
	}
	for i := 0; i+1 < len(extra); i += 2 {
		s[extra[i]] = extra[i+1]
	}
	return s
}

// definitionsLag is how long, in ms, a deleted definition stays before compaction removes it: a week. A scheduler that
// restarts within it keeps a copy for its tasks.
const definitionsLag = "604800000"

// topicSpecs returns the specifications of all topics of a namespace. Topics that a scheduler writes in transactions
// have the partition count of events, though only the inboxes require it. So a worker's transaction touches one
// partition number in each of them, and an unavailable partition stops only the tasks of that number. definitions,
// batches and schedules have one partition: their readers need a total order and a single end.
func topicSpecs(ns events.Namespace, partitions int32, agents map[string]int32) []topicSpec {
	var specs []topicSpec
	for _, t := range ns.InboxTopics() {
		specs = append(specs, topicSpec{name: t, partitions: partitions, inPartition: true, inbox: true, kept: true, settings: topicSettings("delete", 0, "retention.ms", keepForEver, "retention.bytes", keepForEver)})
	}
	specs = append(specs,
		topicSpec{name: ns.Events(), partitions: partitions, inPartition: true, kept: true, settings: topicSettings("delete", 0, "retention.ms", keepForEver, "retention.bytes", keepForEver)},
		topicSpec{name: ns.Answers(), partitions: partitions, settings: topicSettings("delete", answersRetention)},
		topicSpec{name: ns.Alerts(), partitions: partitions, settings: topicSettings("delete", alertsRetention)},
		topicSpec{name: ns.Deadletters(), partitions: partitions, settings: topicSettings("delete", deadlettersRetention)},
		topicSpec{name: ns.Notifications(), partitions: partitions, settings: topicSettings("delete", notifyRetention)},
		topicSpec{name: ns.Batches(), partitions: 1, single: true, settings: topicSettings("delete", batchesRetention)},
		topicSpec{name: ns.Schedules(), partitions: 1, single: true, settings: topicSettings("delete", schedulesRetention)},
		topicSpec{name: ns.Snapshots(), partitions: partitions, settings: topicSettings("compact", 0)},
		topicSpec{name: ns.Definitions(), partitions: 1, settings: topicSettings("compact", 0, "min.compaction.lag.ms", definitionsLag, "delete.retention.ms", definitionsLag)},
	)
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		specs = append(specs, requestSpec(ns, agent, agents[agent]))
	}
	return specs
}

func requestSpec(ns events.Namespace, agent string, partitions int32) topicSpec {
	if partitions == 0 {
		partitions = events.DefaultPartitions
	}
	return topicSpec{name: ns.Requests(agent), partitions: partitions, settings: topicSettings("delete", requestsRetention)}
}

// minISR returns how many replicas must have a record before it is acknowledged. With a replication of 2 it is both: an
// acknowledged task is never lost, and writes stop while a broker is down.
func minISR(replication int16) int { return min(wantMinISR, int(replication)) }

// CreateTopics creates the missing topics of the namespace. It writes the format record last, so that no role starts
// with only some of them. Existing topics are not changed, only reported; CheckTopics checks their settings. It is
// idempotent and may run concurrently.
func (a *Admin) CreateTopics(ctx context.Context, want CreateTopicsOptions) ([]TopicReport, error) {
	meta, err := kafka.Metadata(ctx, a.adm)
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}
	partitions, err := a.settledPartitions(ctx, want.Partitions, meta)
	if err != nil {
		return nil, err
	}
	replication, note, err := replicationFor(want.Replication, len(meta.Brokers))
	if err != nil {
		return nil, err
	}
	var report []TopicReport
	format := Format{Version: FormatVersion, Partitions: partitions}
	for _, spec := range topicSpecs(a.cfg.Namespace, partitions, want.Agents) {
		r, err := a.createTopic(ctx, spec, replication, note)
		if err != nil {
			return report, err
		}
		if !spec.fits(r.Partitions) {
			return report, fmt.Errorf("topic %s has %d partitions, and the namespace %q wants %d in every inbox and in events; "+
				"delete it if it is empty and run `waybill topics create` again, or use another --namespace",
				spec.name, r.Partitions, a.cfg.Namespace, partitions)
		}
		report = append(report, r)
	}
	return report, a.writeFormat(ctx, format)
}

// settledPartitions returns the namespace's partition count: that of its format record, else of its events topic, else
// the requested one.
func (a *Admin) settledPartitions(ctx context.Context, asked int32, meta kadm.Metadata) (int32, error) {
	if asked < 0 {
		return 0, fmt.Errorf("create topics: %d partitions; ask for 1 or more, or 0 for %d", asked, events.DefaultPartitions)
	}
	settled := int32(0)
	switch f, err := a.Format(ctx); {
	case err == nil:
		settled = f.Partitions
	case !errors.Is(err, ErrNoFormat):
		return 0, err
	}
	if t, ok := meta.Topics[a.cfg.Namespace.Events()]; settled == 0 && ok && t.Err == nil {
		settled = int32(len(t.Partitions))
	}
	switch {
	case settled != 0 && asked != 0 && settled != asked:
		return 0, fmt.Errorf("the namespace %q has %d partitions, not %d, which can't be changed, because the partition of a task depends on it; "+
			"leave --partitions out, or create another --namespace", a.cfg.Namespace, settled, asked)
	case settled != 0:
		return settled, nil
	case asked != 0:
		return asked, nil
	}
	return events.DefaultPartitions, nil
}

func replicationFor(asked int16, brokers int) (int16, string, error) {
	if asked < 0 || int(asked) > brokers {
		return 0, "", fmt.Errorf("create topics: replication %d with %d brokers; ask for 1 to %d, or 0", asked, brokers, brokers)
	}
	if asked == 0 {
		asked = int16(min(wantReplication, brokers))
	}
	switch {
	case brokers == 1:
		return asked, "replication 1: the cluster has a single broker, whose disk is the only copy", nil
	case asked < wantReplication:
		return asked, fmt.Sprintf("replication %d: less than %d, so the loss of a broker stops writes or loses tasks", asked, wantReplication), nil
	}
	return asked, "", nil
}

// CreateRequestTopic creates the request topic of an agent unless it exists, with the replication of the namespace's
// events.
func (a *Admin) CreateRequestTopic(ctx context.Context, agent string, partitions int32) (TopicReport, error) {
	t, err := a.topicDetail(ctx, a.cfg.Namespace.Events())
	if err != nil {
		return TopicReport{}, fmt.Errorf("create request topic of agent %s: %w; create the namespace first with `waybill topics create`", agent, err)
	}
	return a.createTopic(ctx, requestSpec(a.cfg.Namespace, agent, partitions), int16(t.Partitions.NumReplicas()), "")
}

// EnsureTopic creates a topic outside the namespace (one that a reply_to names) with the broker's default settings
// unless it exists. It reports whether it created it.
func (a *Admin) EnsureTopic(ctx context.Context, topic string, partitions int32) (created bool, err error) {
	r, err := a.createTopic(ctx, topicSpec{name: topic, partitions: partitions}, -1, "")
	return r.Created, err
}

// createTopic creates a topic unless it exists. It returns when every partition has a leader. replication -1 is the
// broker's default.
func (a *Admin) createTopic(ctx context.Context, spec topicSpec, replication int16, note string) (TopicReport, error) {
	t, err := a.topicDetail(ctx, spec.name)
	if err == nil {
		return TopicReport{spec.name, int32(len(t.Partitions)), int16(t.Partitions.NumReplicas()), false, "exists"}, nil
	}
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return TopicReport{}, err
	}
	configs := make(map[string]*string)
	for k, v := range spec.settings {
		configs[k] = &v
	}
	if spec.settings != nil {
		configs["min.insync.replicas"] = kadm.StringPtr(strconv.Itoa(minISR(replication)))
	}
	answer, err := a.adm.CreateTopic(ctx, spec.partitions, replication, configs, spec.name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return TopicReport{}, fmt.Errorf("create topic %s (%d partitions, replication %d): %w %s", spec.name, spec.partitions, replication, err, answer.ErrMessage)
	}
	created := err == nil
	if t, err = a.awaitTopic(ctx, spec.name); err != nil {
		return TopicReport{}, err
	}
	return TopicReport{spec.name, int32(len(t.Partitions)), int16(t.Partitions.NumReplicas()), created, note}, nil
}

// awaitTopic waits until a topic that was just created is usable: Kafka answers before all brokers know the topic.
func (a *Admin) awaitTopic(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, topicVisibleTimeout)
	defer cancel()
	for {
		t, err := a.topicDetail(ctx, topic)
		if err == nil {
			for _, p := range t.Partitions {
				if p.Err != nil || p.Leader < 0 {
					err = fmt.Errorf("partition %d has no leader", p.Partition)
				}
			}
		}
		if err == nil {
			return t, nil
		}
		if backoff.Sleep(ctx, topicVisibleEvery) != nil {
			return t, fmt.Errorf("topic %s was created but can't be used yet; check the brokers' logs: %w", topic, errors.Join(err, ctx.Err()))
		}
	}
}

// Format is the namespace's format record.
type Format struct {
	Version    int   `json:"format"`
	Partitions int32 `json:"partitions"`
}

// ErrNoFormat means that the namespace was not created, or not completely.
var ErrNoFormat = errors.New("the namespace has no format record")

// Format reads the format record from the definitions topic; ErrNoFormat if there is none.
func (a *Admin) Format(ctx context.Context) (Format, error) {
	var f Format
	found := false
	// First check that the topic exists: the client would cache the answer to a request for offsets of a missing topic,
	// and writeFormat repeats the request at once.
	_, err := a.topicDetail(ctx, a.cfg.Namespace.Definitions())
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return Format{}, fmt.Errorf("%w: %q; run `waybill topics create`", ErrNoFormat, a.cfg.Namespace)
	}
	if err != nil {
		return Format{}, fmt.Errorf("read the format of namespace %q: %w", a.cfg.Namespace, err)
	}
	take := func(r events.Record) error {
		if string(r.Key) != formatKey {
			return nil
		}
		f, found = Format{}, r.Value != nil
		if !found {
			return nil
		}
		if err := json.Unmarshal(r.Value, &f); err != nil || f.Version < 1 || f.Partitions < 1 {
			return fmt.Errorf("the format record %s/%d/%d is invalid: %.100q", r.Topic, r.Partition, r.Offset, r.Value)
		}
		return nil
	}
	err = a.onceThere(ctx, func(ctx context.Context) error {
		return a.ReadCompacted(ctx, a.cfg.Namespace.Definitions(), take)
	})
	switch {
	case err == nil && !found:
		return Format{}, fmt.Errorf("%w: %q; run `waybill topics create`", ErrNoFormat, a.cfg.Namespace)
	case err != nil:
		return Format{}, fmt.Errorf("read the format of namespace %q: %w", a.cfg.Namespace, err)
	}
	return f, nil
}

// onceThere calls do for a topic that exists, and retries, at most topicVisibleTimeout, while the topic is unknown, since the
// leader may learn of it later than other brokers, and while its leader can't be reached or isn't ready, and another
// broker answers: the cluster elects another leader within seconds.
func (a *Admin) onceThere(ctx context.Context, do func(context.Context) error) error {
	late, cancel := context.WithTimeout(ctx, topicVisibleTimeout)
	defer cancel()
	for {
		err := do(ctx)
		if !kafka.IsTopicMissing(err) && (!endsWithElection(err) || a.Ping(late) != nil) {
			return err
		}
		if backoff.Sleep(late, topicVisibleEvery) != nil {
			return err
		}
	}
}

// endsWithElection reports whether an error of a partition's leader ends when the cluster has elected another one. A
// partition that has no leader at all may have none for long.
func endsWithElection(err error) bool {
	if _, leaderless := errors.AsType[*logreader.UnavailableError](err); leaderless {
		return false
	}
	_, network := errors.AsType[*net.OpError](err)
	return network || kerr.IsRetriable(err)
}

// writeFormat writes the format record unless there is one. Then it reads the record that counts. Of two concurrent
// writers with different formats, one gets an error.
func (a *Admin) writeFormat(ctx context.Context, want Format) error {
	have, err := a.Format(ctx)
	if errors.Is(err, ErrNoFormat) {
		value, merr := json.Marshal(want)
		if merr != nil {
			return fmt.Errorf("encode the format record: %w", merr)
		}
		r := events.Record{Topic: a.cfg.Namespace.Definitions(), Key: []byte(formatKey), Value: value}
		perr := a.onceThere(ctx, func(ctx context.Context) error { return a.cl.ProduceSync(ctx, kafka.ToKgo(&r)).FirstErr() })
		if perr != nil {
			return fmt.Errorf("write the format record: %w", kafka.WriteError(r.Topic, perr))
		}
		have, err = a.Format(ctx)
	}
	if err == nil && have != want {
		err = fmt.Errorf("the namespace %q has format %d with %d partitions, this program expects %d with %d; use the release that wrote it, or another --namespace",
			a.cfg.Namespace, have.Version, have.Partitions, want.Version, want.Partitions)
	}
	return err
}

// CheckFormat returns the format if the namespace's topics match its format record and this program writes that format.
// Roles call it before they start.
func (a *Admin) CheckFormat(ctx context.Context) (Format, error) {
	f, err := a.Format(ctx)
	if err != nil {
		return f, err
	}
	if f.Version != FormatVersion {
		return f, fmt.Errorf("the namespace %q has format %d, this program knows %d; use the release that wrote it", a.cfg.Namespace, f.Version, FormatVersion)
	}
	for _, spec := range topicSpecs(a.cfg.Namespace, f.Partitions, nil) {
		n, ok, err := a.TopicPartitions(ctx, spec.name)
		switch {
		case err != nil:
			return f, fmt.Errorf("check the format: %w", err)
		case !ok:
			return f, fmt.Errorf("topic %s is missing; run `waybill topics create`", spec.name)
		case !spec.fits(n):
			return f, fmt.Errorf("topic %s has %d partitions, and the namespace's format record says %d: tasks would be looked up in the wrong partitions; "+
				"restore its partition count (run `waybill topics check`), or start a new --namespace", spec.name, n, f.Partitions)
		}
	}
	return f, nil
}

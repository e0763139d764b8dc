package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/suite"
)

// The kinds of broker. They are also the names of the subtests of Each.
const (
	EmbeddedKind = "embedded"
	KafkaKind    = "kafka"
)

// metadataInterval is the interval of metadata requests while awaitTopics waits.
const metadataInterval = 10 * time.Millisecond

// Broker is the broker of a test, embedded or real.
type Broker struct {
	Kind  string   // EmbeddedKind or KafkaKind
	Addrs []string // bootstrap servers, host:port
	// Dial connects to the broker if it has a network of its own; otherwise nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Fake is the embedded broker, for fault injection; nil for Kafka.
	Fake *kfake.Cluster
}

// Each runs fn as two subtests, on the embedded broker and on real Kafka.
func Each(t *testing.T, fn func(t *testing.T, b *Broker)) {
	t.Helper()
	t.Run(EmbeddedKind, func(t *testing.T) { fn(t, Embedded(t)) })
	t.Run(KafkaKind, func(t *testing.T) { fn(t, Kafka(t)) })
}

// Embedded starts an embedded broker of one node on loopback and closes it with the test. It keeps its data in memory
// unless opts set kfake.DataDir. Like the real broker, it doesn't create topics automatically.
func Embedded(t testing.TB, opts ...kfake.Opt) *Broker {
	t.Helper()
	return start(t, embedded.Network{Listen: net.Listen, Dial: new(net.Dialer).DialContext}, opts)
}

// Virtual is Embedded with an in-memory network, for a synctest bubble. With real sockets, the bubble's clock would not
// advance.
func Virtual(t testing.TB, opts ...kfake.Opt) *Broker {
	t.Helper()
	network := &kfake.VirtualNetwork{}
	b := start(t, embedded.Network{Listen: network.Listen, Dial: network.DialContext}, append([]kfake.Opt{kfake.Ports(9092)}, opts...))
	b.Dial = network.DialContext
	return b
}

func start(t testing.TB, n embedded.Network, opts []kfake.Opt) *Broker {
	t.Helper()
	defaults := []kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second)}
	c, err := embedded.NewCluster(n, append(defaults, opts...)...)
	if err != nil {
		t.Fatalf("start the embedded broker: %v", err)
	}
	t.Cleanup(c.Close)
	return &Broker{Kind: EmbeddedKind, Addrs: c.ListenAddrs(), Fake: c.Cluster}
}

// FromCluster returns the Broker of a cluster that the test itself started.
func FromCluster(c *node.Cluster) *Broker {
	return &Broker{Kind: KafkaKind, Addrs: c.Brokers()}
}

// Client returns a client of the broker that is closed with the test.
func (b *Broker) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(b.Opts(), opts...)...)
	if err != nil {
		t.Fatalf("client of the %s broker: %v", b.Kind, err)
	}
	t.Cleanup(c.Close)
	return c
}

// Produce writes a record to the partition that it names, and returns it with its offset and timestamp. Its batch limit
// is larger than that of Waybill's producers, so tests can write records that those would reject.
func (b *Broker) Produce(t testing.TB, r events.Record) events.Record {
	t.Helper()
	const most = 2_000_000 // bytes of a batch; topics of a namespace accept slightly more
	cl := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(most))
	out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	if err := cl.ProduceSync(t.Context(), out).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", r.Topic, err)
	}
	r.Offset, r.Time = out.Offset, out.Timestamp
	return r
}

// Opts returns the client options to connect to the broker.
func (b *Broker) Opts() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(b.Addrs...)}
	if b.Dial != nil {
		opts = append(opts, kgo.Dialer(b.Dial))
	}
	return opts
}

// Namespace returns a namespace that no other test uses, in this process or another. Its topics are deleted from a real
// broker at the end of the test.
func (b *Broker) Namespace(t testing.TB) events.Namespace {
	t.Helper()
	var id [6]byte
	rand.Read(id[:]) // never fails
	ns := events.Namespace("test-" + hex.EncodeToString(id[:]) + ".")
	if b.Kind == KafkaKind {
		t.Cleanup(func() { b.deleteTopics(t, ns) })
	}
	return ns
}

// NamespaceCoordinatedBy returns a Namespace in which the given group's coordinator is the node with the given id.
func (b *Broker) NamespaceCoordinatedBy(t testing.TB, node int32, group func(events.Namespace) string) events.Namespace {
	t.Helper()
	admin := kadm.NewClient(b.Client(t))
	again := time.NewTicker(50 * time.Millisecond) // the offsets topic may not exist yet, and nothing reports when it does
	defer again.Stop()
	for {
		ns := b.Namespace(t)
		at := admin.FindGroupCoordinators(t.Context(), group(ns))[group(ns)]
		if at.Err == nil && at.NodeID == node {
			return ns
		}
		select {
		case <-again.C:
		case <-t.Context().Done():
			t.Fatalf("no namespace whose group node %d coordinates: the last is at %d (%v)", node, at.NodeID, at.Err)
		}
	}
}

// CreateTopics creates topics with the broker's default replication factor, and returns once metadata shows them. Kafka
// answers the request before that.
func (b *Broker) CreateTopics(t testing.TB, partitions int32, topics ...string) {
	t.Helper()
	b.CreateTopicsWith(t, partitions, nil, topics...)
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	deleted, err := kadm.NewClient(b.Client(t)).DeleteTopics(ctx, topic)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatalf("delete topic %s from the %s broker: %v", topic, b.Kind, err)
	}
}

// CreateTopicsWith is CreateTopics with a topic configuration.
func (b *Broker) CreateTopicsWith(t testing.TB, partitions int32, config map[string]string, topics ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	values := make(map[string]*string, len(config))
	for k, v := range config {
		values[k] = &v
	}
	admin := kadm.NewClient(b.Client(t))
	defer admin.Close()
	responses, err := admin.CreateTopics(ctx, partitions, -1, values, topics...)
	if err == nil {
		err = responses.Error()
	}
	if err == nil {
		err = awaitTopics(ctx, admin, func(listed kadm.TopicDetails) bool {
			for _, topic := range topics {
				if d := listed[topic]; d.Err != nil || len(d.Partitions) != int(partitions) || !hasLeaders(d) {
					return false
				}
			}
			return true
		})
	}
	if err != nil {
		t.Fatalf("create topics %q on the %s broker: %v", topics, b.Kind, err)
	}
}

// SetTopic sets one value of a topic's configuration.
func (b *Broker) SetTopic(t testing.TB, topic, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	responses, err := kadm.NewClient(b.Client(t)).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	for _, r := range responses {
		if err == nil {
			err = r.Err
		}
	}
	if err != nil {
		t.Fatalf("set %s=%s of %s on the %s broker: %v", key, value, topic, b.Kind, err)
	}
}

// AddPartitions increases the partition count of a topic to count.
func (b *Broker) AddPartitions(t testing.TB, count int, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	admin := kadm.NewClient(b.Client(t))
	_, err := admin.UpdatePartitions(ctx, count, topic)
	if err == nil {
		err = awaitTopics(ctx, admin, func(listed kadm.TopicDetails) bool {
			return len(listed[topic].Partitions) == count && hasLeaders(listed[topic])
		})
	}
	if err != nil {
		t.Fatalf("add partitions to %s on the %s broker: %v", topic, b.Kind, err)
	}
}

// DeleteTopic deletes a topic, and returns once metadata no longer shows it. Unlike the method, it can delete a topic
// of any cluster and needs no test.
func DeleteTopic(brokers []string, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	return awaitTopics(ctx, admin, func(listed kadm.TopicDetails) bool { return !listed.Has(topic) })
}

// hasLeaders reports whether all partitions of a topic have a leader.
func hasLeaders(d kadm.TopicDetail) bool {
	for _, p := range d.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return true
}

// awaitTopics polls the topics until done returns true. Kafka doesn't notify clients of changes.
func awaitTopics(ctx context.Context, admin *kadm.Client, done func(kadm.TopicDetails) bool) error {
	tick := time.NewTicker(metadataInterval)
	defer tick.Stop()
	for {
		listed, err := admin.ListTopics(ctx)
		if err != nil || done(listed) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("metadata does not show it: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// deleteTopics deletes the topics of a test from the shared broker, which would otherwise get slower with every test.
func (b *Broker) deleteTopics(t testing.TB, ns events.Namespace) {
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	err := func() error {
		admin, err := kadm.NewOptClient(b.Opts()...)
		if err != nil {
			return err
		}
		defer admin.Close()
		listed, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		mine := slices.DeleteFunc(listed.Names(), func(topic string) bool { return !ns.Owns(topic) })
		if len(mine) == 0 {
			return nil
		}
		deleted, err := admin.DeleteTopics(ctx, mine...)
		if err != nil {
			return err
		}
		return deleted.Error()
	}()
	if err != nil {
		t.Errorf("delete the topics of %s from the %s broker: %v", ns, b.Kind, err)
	}
}

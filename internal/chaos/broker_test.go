package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// The kinds of broker of a run.
const (
	embeddedBroker = "embedded" // kfake with a data directory, in its own process
	oneKafka       = "kafka"    // one node of Apache Kafka
	threeKafkas    = "kafka3"   // three nodes: replication 3, min ISR 2
)

var brokerKinds = []string{embeddedBroker, oneKafka, threeKafkas}

// nodeControl injects faults into the nodes of a broker. Kill and restart keep the port and the data.
type nodeControl interface {
	Kill(i int) error
	Terminate(i int) error
	Pause(i int) error
	Continue(i int) error
	Restart(ctx context.Context, i int) error
}

// cluster is the brokers of a run. Clients connect to each node through a proxy. If there are several nodes, they
// connect to each other through further proxies.
type cluster struct {
	kind  string
	nodes nodeControl
	count int
	// doors are the proxies for clients, between those for nodes.
	doors, between []*Proxy
	direct         map[string]string // the address of a proxy, and of the node behind it
	failed         <-chan error      // a node that ended unexpectedly
}

// openCluster starts brokers. They end with the test.
func openCluster(t *testing.T, kind string) *cluster {
	t.Helper()
	if kind == embeddedBroker {
		return openEmbedded(t)
	}
	s := &cluster{kind: kind, count: 1}
	if kind == threeKafkas {
		s.count = 3
		s.between = openProxies(t, s.count)
	}
	s.doors = openProxies(t, s.count)
	const clients = "CLIENTS"
	o := node.Options{Nodes: s.count, Listeners: map[string]string{clients: "PLAINTEXT"}, Advertised: map[string][]string{clients: addresses(s.doors)}}
	if s.between != nil {
		// The nodes need each other to start. The proxies need their target before the nodes run, so the port is chosen
		// here.
		o.Advertised["PLAINTEXT"] = addresses(s.between)
		o.Port = freePort(t, s.count, len(o.Listeners)+2)
		for i, p := range s.between {
			p.To(fmt.Sprintf("127.0.0.%d:%d", i+1, o.Port))
		}
	}
	c := kafkatest.KafkaCluster(t, o)
	s.nodes, s.failed = c, c.Failed()
	s.pointProxiesTo(c.Listener(clients))
	return s
}

// pointProxiesTo sets the targets of the client proxies to the nodes' own addresses.
func (s *cluster) pointProxiesTo(addrs []string) {
	s.direct = map[string]string{}
	for i, door := range s.doors {
		door.To(addrs[i])
		s.direct[door.Addr()] = addrs[i]
	}
}

func openProxies(t *testing.T, n int) []*Proxy {
	t.Helper()
	all := make([]*Proxy, n)
	for i := range all {
		all[i] = openProxy(t)
	}
	return all
}

func addresses(proxies []*Proxy) []string {
	all := make([]string, len(proxies))
	for i, p := range proxies {
		all[i] = p.Addr()
	}
	return all
}

// These ports are below those that the kernel assigns to connections. So no other process gets the port of a broker
// while it is down.
const portLeast, portMost = 20_000, 32_000

// freePort returns a port. It and the ports after it are free on the addresses of all nodes.
func freePort(t *testing.T, nodes, ports int) int {
	t.Helper()
	free := func(port int) bool {
		for i := range nodes {
			for p := range ports {
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:%d", i+1, port+p))
				if err != nil {
					return false
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return true
	}
	for range 50 {
		if port := portLeast + int(time.Now().UnixNano()/1000%(portMost-portLeast)); free(port) {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// proxiedConfig returns a configuration that bypasses the proxies, for the test's own readers.
func (s *cluster) proxiedConfig(ns events.Namespace) kafka.Config {
	cfg := s.config(ns)
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to, ok := s.direct[addr]; ok {
			addr = to
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	return cfg
}

// broker returns the cluster for clients of other families, without the proxies.
func (s *cluster) broker(ns events.Namespace) *kafkatest.Broker {
	b := &kafkatest.Broker{Kind: kafkatest.KafkaKind}
	if s.kind == embeddedBroker {
		b.Kind = kafkatest.EmbeddedKind
	}
	cfg := s.proxiedConfig(ns)
	b.Addrs, b.Dial = cfg.Brokers, cfg.Dial
	return b
}

// config returns a configuration that goes through the proxies.
func (s *cluster) config(ns events.Namespace) kafka.Config {
	return kafka.Config{Brokers: addresses(s.doors), Namespace: ns, ClientID: "chaos"}
}

// clearWeather removes all network faults from all proxies.
func (s *cluster) clearWeather() {
	for _, p := range slices.Concat(s.doors, s.between) {
		p.Set(Weather{})
	}
}

// openEmbedded starts the embedded broker in its own process.
func openEmbedded(t *testing.T) *cluster {
	t.Helper()
	s := &cluster{kind: embeddedBroker, count: 1, doors: openProxies(t, 1)}
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t, 1, 1))
	b := &brokerProcess{spec: brokerSpec{DataDir: filepath.Join(t.TempDir(), "kafka"), Listen: listen, Advertise: s.doors[0].Addr()}}
	s.nodes = b
	if err := b.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(0); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the embedded broker said at last:\n%s", b.logged())
		}
	})
	s.pointProxiesTo([]string{listen})
	return s
}

// serveEmbedded is the main of the embedded broker's process. It serves until it is terminated or its parent ends.
func serveEmbedded(ctx context.Context, spec brokerSpec, ready func()) error {
	b, err := embedded.Start(embedded.Options{DataDir: spec.DataDir, Listen: spec.Listen, Advertise: spec.Advertise})
	if err != nil {
		return err
	}
	b.Open()
	ready()
	<-ctx.Done()
	return b.Close()
}

// Acknowledged records survive a kill, and the broker restarts on the same port. A stopped broker doesn't respond, and
// serves again when it is continued.
func TestBrokersKeepAcknowledgedRecords(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	for _, kind := range []string{embeddedBroker, threeKafkas} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := openCluster(t, kind)
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			const topic = "back"
			admin, producer := openClients(t, s.config("x."))
			if _, err := admin.EnsureTopic(ctx, topic, 1); err != nil {
				t.Fatal(err)
			}
			send := func(what string) {
				t.Helper()
				if err := producer.Send(ctx, events.Record{Topic: topic, Value: []byte(what)}); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			send("before")
			if err := errors.Join(s.nodes.Kill(0), s.nodes.Restart(ctx, 0)); err != nil {
				t.Fatal(err)
			}
			send("after a kill")
			if err := s.nodes.Pause(0); err != nil {
				t.Fatal(err)
			}
			if s.count == 1 {
				short, stop := context.WithTimeout(ctx, time.Second)
				if err := admin.Ping(short); err == nil {
					t.Error("a broker that stands still answers")
				}
				stop()
			}
			if err := s.nodes.Continue(0); err != nil {
				t.Fatal(err)
			}
			send("after a stop")
			ends, err := admin.EndOffsets(ctx, topic)
			if err != nil || ends[0] != 3 {
				t.Errorf("the topic ends at %v (%v), want 3", ends, err)
			}
		})
	}
}

func openClients(t *testing.T, cfg kafka.Config) (*kafkaadmin.Admin, *kafka.Producer) {
	t.Helper()
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	producer, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	return admin, producer
}

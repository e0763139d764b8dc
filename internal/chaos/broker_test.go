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
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// The kinds of broker that a run may have.
const (
	embeddedBroker = "embedded" // kfake with a data directory, a process of its own
	oneKafka       = "kafka"    // one node of Apache Kafka
	threeKafkas    = "kafka3"   // three: replication 3, min ISR 2
)

var brokerKinds = []string{embeddedBroker, oneKafka, threeKafkas}

// nodeControl does to a broker's nodes what a machine may do to them. Kill and
// restart keep port and data.
type nodeControl interface {
	Kill(i int) error
	Terminate(i int) error
	Pause(i int) error
	Continue(i int) error
	Restart(ctx context.Context, i int) error
}

// cluster is where a run's brokers are: nodes, each behind a proxy for clients, and
// where there are several behind another one for each other.
type cluster struct {
	kind  string
	nodes nodeControl
	count int
	// doors are what clients are led to, between what the nodes are.
	doors, between []*Proxy
	direct         map[string]string // the address of a door, and of the node behind it
	failed         <-chan error      // a node that ended though nobody asked for it
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
		// They need each other to start: the proxies lead there before the
		// nodes are up, so the port is chosen here.
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

// pointProxiesTo leads the doors to the nodes' own addresses.
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

// Ports below those that the kernel hands out to connections: nobody takes them
// while a broker that was killed is away.
const portLeast, portMost = 20_000, 32_000

// freePort is one that, with those that follow, is free on the addresses of all
// nodes.
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

// proxiedConfig leads past the proxies, for the eyes of a test.
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

// broker is the site for clients of other families, past the proxies.
func (s *cluster) broker(ns events.Namespace) *kafkatest.Broker {
	b := &kafkatest.Broker{Kind: kafkatest.KafkaKind}
	if s.kind == embeddedBroker {
		b.Kind = kafkatest.EmbeddedKind
	}
	cfg := s.proxiedConfig(ns)
	b.Addrs, b.Dial = cfg.Brokers, cfg.Dial
	return b
}

// config leads through the proxies.
func (s *cluster) config(ns events.Namespace) kafka.Config {
	return kafka.Config{Brokers: addresses(s.doors), Namespace: ns, ClientID: "chaos"}
}

// clearWeather takes all weather from all proxies.
func (s *cluster) clearWeather() {
	for _, p := range slices.Concat(s.doors, s.between) {
		p.Set(Weather{})
	}
}

// openEmbedded starts the embedded broker in a process of its own.
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

// serveEmbedded is the process of the embedded broker: it serves until it is
// told to end, or its parent has gone.
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

// What a broker acknowledged is there after a kill, on the same port; one that
// stands still answers nothing, and goes on.
func TestBrokersKeepAcknowledgedRecords(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	for _, kind := range []string{embeddedBroker, threeKafkas} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := openCluster(t, kind)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
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

func openClients(t *testing.T, cfg kafka.Config) (*kafka.Admin, *kafka.Producer) {
	t.Helper()
	admin, err := kafka.OpenAdmin(cfg)
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

package kafkatest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/suite"
)

// Env names the environment variable that skips tests on real Kafka if its value is Off, although all other tests run.
const (
	Env = "WAYBILL_TEST_KAFKA"
	Off = "off"
)

const membershipPollEvery = 50 * time.Millisecond

// Kafka returns the real broker that all test processes share, and starts it if it doesn't run. The package
// documentation says what a test may do to it, and when the test is skipped instead.
func Kafka(t testing.TB) *Broker {
	t.Helper()
	NeedKafka(t)
	addr, err := shared()
	if err != nil {
		t.Fatalf("real Kafka: %v", err)
	}
	used.add("shared")
	return &Broker{Kind: KafkaKind, Addrs: []string{addr}}
}

// KafkaNodes starts a cluster of 1 or 3 nodes for this test alone, with node.TestOverrides and then overrides. It is
// stopped with the test. If the test failed, the errors in the nodes' logs are shown.
func KafkaNodes(t testing.TB, n int, overrides map[string]string) *node.Cluster {
	t.Helper()
	return KafkaCluster(t, node.Options{Nodes: n, Overrides: overrides})
}

// KafkaCluster is KafkaNodes with all options of a cluster.
func KafkaCluster(t testing.TB, o node.Options) *node.Cluster {
	t.Helper()
	NeedKafka(t)
	overrides := node.TestOverrides()
	for k, v := range o.Overrides {
		overrides[k] = v
	}
	o.Overrides, o.QuickStart = overrides, true
	ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
	defer cancel()
	c, err := node.Start(ctx, o)
	if err != nil {
		t.Fatalf("real Kafka: %v", err)
	}
	used.add("own")
	t.Cleanup(func() {
		if t.Failed() {
			for i := range c.Brokers() {
				t.Logf("log of kafka node %d:\n%s", i, node.LogErrors(c.Log(i)))
			}
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop kafka: %v", err)
		}
	})
	if err := awaitMembership(ctx, c.Brokers()); err != nil {
		t.Fatalf("real Kafka: %v", err)
	}
	return c
}

// awaitMembership returns when each node knows of all others. A node serves clients before that, and would create topics
// with fewer copies.
func awaitMembership(ctx context.Context, addrs []string) error {
	for _, addr := range addrs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			return err
		}
		for known := 0; known < len(addrs) && err == nil; {
			var resp *kmsg.MetadataResponse
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{} // none; nil: all
			if resp, err = req.RequestWith(ctx, cl.SeedBrokers()[0]); err == nil {
				known = len(resp.Brokers)
			}
			if known < len(addrs) && err == nil {
				err = backoff.Sleep(ctx, membershipPollEvery)
			}
		}
		cl.Close()
		if err != nil {
			return fmt.Errorf("the nodes that %s knows of: %w", addr, err)
		}
	}
	return nil
}

// wanted reports whether tests on real Kafka run: with WAYBILL_TEST=all, unless Env is Off. It panics if Env has
// another value.
func wanted(t testing.TB) bool {
	t.Helper()
	switch v := os.Getenv(Env); v {
	case Off:
		return false
	case "":
		return suite.All(t)
	default:
		panic(fmt.Sprintf("%s=%q: want %s=%s, or no value; %s=all requires real Kafka", Env, v, Env, Off, suite.Env))
	}
}

// NeedKafka skips the test if real Kafka is not wanted, and fails it if no broker can be started. Tests that start Kafka by
// other means than this package call it.
func NeedKafka(t testing.TB) {
	t.Helper()
	if !wanted(t) {
		used.skip()
		t.Skipf("real Kafka: %s=all runs this test, and so does .ci/run", suite.Env)
	}
	if err := node.Available(t.Context()); err != nil {
		t.Fatalf("real Kafka: %v", err)
	}
}

// usage counts the uses of real Kafka, for the last line of Main.
type usage struct {
	sync.Mutex
	ran     map[string]int
	skipped int
}

var used = usage{ran: map[string]int{}}

func (u *usage) add(kind string) {
	u.Lock()
	defer u.Unlock()
	u.ran[kind]++
}

func (u *usage) skip() {
	u.Lock()
	defer u.Unlock()
	u.skipped++
}

func (u *usage) String() string {
	u.Lock()
	defer u.Unlock()
	switch {
	case u.skipped > 0:
		return fmt.Sprintf("kafkatest: real Kafka was skipped %d times; %s=all runs those tests", u.skipped, suite.Env)
	case len(u.ran) == 0:
		return "kafkatest: no test asked for real Kafka"
	}
	return fmt.Sprintf("kafkatest: real Kafka %s ran: shared broker %d times, own clusters %d",
		node.Version, u.ran["shared"], u.ran["own"])
}

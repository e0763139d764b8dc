package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
)

// Env names the environment variable that says what to do where the real
// broker can't be had: "", Require or Off.
const (
	Env     = "WAYBILL_TEST_KAFKA"
	Require = "require"
	Off     = "off"
)

// kafkaStartDurationMax bounds the start of a broker, its download included.
const kafkaStartDurationMax = 10 * time.Minute

// Kafka returns the real broker that all test processes share, and starts it
// if need be. See the package for what a test may do to it and for when it is
// skipped instead.
func Kafka(t testing.TB) *Broker {
	t.Helper()
	NeedKafka(t)
	addr, err := shared()
	if err != nil {
		unavailable(t, err)
	}
	used.add("shared")
	return &Broker{Kind: KafkaKind, Addrs: []string{addr}}
}

// KafkaNodes starts a cluster for this test alone, of 1 or 3 nodes, with
// node.TestOverrides and then overrides. It ends with the test; one that
// failed shows what the nodes' logs complain of.
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
	ctx, cancel := context.WithTimeout(context.Background(), kafkaStartDurationMax)
	defer cancel()
	c, err := node.Start(ctx, o)
	if err != nil {
		unavailable(t, err)
	}
	used.add("own")
	t.Cleanup(func() {
		if t.Failed() {
			for i := range c.Brokers() {
				t.Logf("log of kafka node %d:\n%s", i, node.Complaint(c.Log(i)))
			}
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop kafka: %v", err)
		}
	})
	return c
}

// NeedKafka skips or fails the test unless a broker can be started here, for
// a test that starts one by other means than this package's.
func NeedKafka(t testing.TB) {
	t.Helper()
	if os.Getenv(Env) == Off {
		used.skip(Env + "=" + Off)
		t.Skipf("real Kafka: %s=%s; .ci/run runs this test", Env, Off)
	}
	if err := node.Available(t.Context()); err != nil {
		unavailable(t, err)
	}
}

// unavailable ends the test. What a person must install is a reason to skip,
// unless the broker is required; a broker that fails is a failure.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(Env) != Require && errors.Is(err, node.ErrMissing) {
		used.skip(err.Error())
		t.Skipf("real Kafka: %v (%s=%s makes this a failure; .ci/run runs this test)", err, Env, Require)
	}
	t.Fatalf("real Kafka: %v", err)
}

// usage is what Main tells at the end.
type usage struct {
	sync.Mutex
	ran     map[string]int
	skipped int
	reason  string
}

var used = usage{ran: map[string]int{}}

func (u *usage) add(kind string) {
	u.Lock()
	defer u.Unlock()
	u.ran[kind]++
}

func (u *usage) skip(reason string) {
	u.Lock()
	defer u.Unlock()
	u.skipped++
	u.reason = reason
}

func (u *usage) String() string {
	u.Lock()
	defer u.Unlock()
	switch {
	case u.skipped > 0:
		return fmt.Sprintf("kafkatest: HALF A SUITE: real Kafka was skipped %d times: %s", u.skipped, u.reason)
	case len(u.ran) == 0:
		return "kafkatest: no test asked for real Kafka"
	}
	return fmt.Sprintf("kafkatest: real Kafka %s ran: shared broker %d times, own clusters %d",
		node.Version, u.ran["shared"], u.ran["own"])
}

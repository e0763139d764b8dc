package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

// Must ends a test because of an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Bounded returns a context that ends after suite.Patience.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	t.Cleanup(cancel)
	return ctx
}

// ConfigOf returns a configuration for a broker, with a namespace of the test's own.
func ConfigOf(t testing.TB, b *Broker) kafka.Config {
	return kafka.Config{Brokers: b.Addrs, Dial: b.Dial, Namespace: b.Namespace(t), ClientID: "test"}
}

// Fake starts a bare kfake cluster of one broker, and returns a configuration for it with the namespace "test.".
func Fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	Must(t, err)
	t.Cleanup(c.Close)
	return c, kafka.Config{Brokers: c.ListenAddrs(), Namespace: "test.", ClientID: "test"}
}

// OpenAdmin opens an Admin for the time of the test.
func OpenAdmin(t testing.TB, c kafka.Config) *kafkaadmin.Admin {
	t.Helper()
	a, err := kafkaadmin.Open(c)
	Must(t, err)
	t.Cleanup(a.Close)
	return a
}

// OpenProducer opens a Producer for the time of the test.
func OpenProducer(t testing.TB, c kafka.Config) *kafka.Producer {
	t.Helper()
	p, err := kafka.OpenProducer(c)
	Must(t, err)
	t.Cleanup(p.Close)
	return p
}

// Package kafkametrics exports Prometheus metrics of the clients of internal/kafka. It is separate from them so that a
// program that only uses Kafka doesn't link Prometheus.
package kafkametrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/waybill-run/waybill/internal/kafka"
)

// Hook returns a hook for kafka.Config.Hooks. It counts what the clients of a process send and receive, by broker and
// topic, with the prefix waybill_kafka. One hook serves all clients, which may open and close at any time.
func Hook(r *prometheus.Registry) kafka.Hook {
	return &sharedMetrics{Metrics: kprom.NewMetrics("waybill_kafka", kprom.Registry(r))}
}

// sharedMetrics is kprom's hook for any number of clients. kprom's own hook would register the same names for each
// client, and remove them with the first that closes. The gauges of buffered records are those of the first client.
type sharedMetrics struct {
	*kprom.Metrics
	once sync.Once
}

// OnNewClient registers the metrics with the first client.
func (m *sharedMetrics) OnNewClient(client *kgo.Client) {
	m.once.Do(func() { m.Metrics.OnNewClient(client) })
}

// OnClientClosed does nothing: the metrics remain registered.
func (m *sharedMetrics) OnClientClosed(*kgo.Client) {}

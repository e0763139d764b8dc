// Package kafkametrics counts for Prometheus what the clients of internal/kafka
// do. It is apart from them so that a program that only talks to Kafka links no
// Prometheus.
package kafkametrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/waybill-run/waybill/internal/kafka"
)

// Hook is for kafka.Config.Hooks: it counts what the clients of a process send
// and receive, by broker and topic, under the prefix waybill_kafka. One hook
// serves all clients, each of which may come and go.
func Hook(r *prometheus.Registry) kafka.Hook {
	return &sharedMetrics{Metrics: kprom.NewMetrics("waybill_kafka", kprom.Registry(r))}
}

// sharedMetrics is kprom's hook for any number of clients: its own registers
// the same names again for each, and takes them away with the first that is
// closed. The gauges of what is buffered are those of the first client.
type sharedMetrics struct {
	*kprom.Metrics
	once sync.Once
}

// OnNewClient registers the metrics with the first client.
func (m *sharedMetrics) OnNewClient(client *kgo.Client) {
	m.once.Do(func() { m.Metrics.OnNewClient(client) })
}

// OnClientClosed keeps them.
func (m *sharedMetrics) OnClientClosed(*kgo.Client) {}

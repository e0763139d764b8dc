package instance

import "github.com/prometheus/client_golang/prometheus"

// batchMetrics are the metrics of batches, in the console that sends their commands.
type batchMetrics struct {
	open, waiting prometheus.Gauge
	commands      *prometheus.CounterVec
}

func newBatchMetrics(r prometheus.Registerer, vec func(name, help string, labels ...string) *prometheus.CounterVec) batchMetrics {
	m := batchMetrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "waybill_batches_open", Help: "Batches that have not ended, in the console that sends their commands; 0 in others."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "waybill_batch_tasks_waiting",
			Help: "Tasks of open batches that have no command yet, in the console that sends the commands; 0 in others."}),
		commands: vec("waybill_batch_commands_total", "Commands of batches that this console has sent, by result.", "result"),
	}
	r.MustRegister(m.open, m.waiting)
	for _, result := range []string{"accepted", "refused", "unanswered"} {
		m.commands.WithLabelValues(result).Add(0)
	}
	return m
}

// CountBatchCommand counts a command of a batch.
func (n *Instance) CountBatchCommand(result string) {
	n.metrics.batches.commands.WithLabelValues(result).Inc()
}

// SetBatches sets the numbers of batches that have not ended, and of their tasks that have no command yet.
func (n *Instance) SetBatches(open, waiting int) {
	n.metrics.batches.open.Set(float64(open))
	n.metrics.batches.waiting.Set(float64(waiting))
}

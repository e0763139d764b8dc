package instance

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/intakerun"
)

// lagInterval is the interval of the measurements of intakes' lag.
const lagInterval = 10 * time.Second

// IntakeOptions are the flags of a process that runs intakes.
type IntakeOptions struct {
	Only    []string // names; empty: all
	Workers int      // of each intake
	Schemas intakerun.Schemas
}

// intakeMetrics are the metrics of intakes.
type intakeMetrics struct {
	records *prometheus.CounterVec
	failed  *prometheus.CounterVec
	lag     *prometheus.GaugeVec
}

func newIntakeMetrics(vec func(name, help string, labels ...string) *prometheus.CounterVec, gauge func(name, help string, labels ...string) *prometheus.GaugeVec) intakeMetrics {
	return intakeMetrics{
		records: vec("waybill_intake_records_total", "Records that an intake consumed in committed transactions, by result: submission, signal, skipped or deadletter.", "intake", "result"),
		failed:  vec("waybill_intake_failures_total", "Failures of an intake's workers in this process, and requests to its schema registry that failed.", "intake"),
		lag:     gauge("waybill_intake_lag", "Records that an intake of this process still has to consume.", "intake"),
	}
}

// StartIntakes runs intakes until ctx ends.
func (n *Instance) StartIntakes(ctx context.Context, o IntakeOptions) {
	m := &n.metrics.intakes
	var running atomic.Pointer[map[string]string] // topics, by name
	instanceID := func(string, int) string { return "" }
	if id := n.memberID("intake"); id != "" {
		instanceID = func(name string, worker int) string { return fmt.Sprintf("%s.%s.%d", id, name, worker) }
	}
	s := intakerun.New(intakerun.Config{Kafka: n.Kafka, Admin: n.Admin, Owner: n.Name, InstanceID: instanceID, LeaveOnClose: n.leaveOnStop(ctx), Only: o.Only, Workers: o.Workers,
		Schemas: o.Schemas, Session: n.config.Session, Transaction: n.config.Transaction, FetchMaxWait: n.config.FetchMaxWait, Log: n.log,
		Listener: &intakerun.Listener{
			Committed: func(name string, c intakerun.Counts) {
				for result, count := range map[string]int{"submission": c.Submissions, "signal": c.Signals, "skipped": c.Skipped} {
					m.records.WithLabelValues(name, result).Add(float64(count))
				}
				for reason, count := range c.Deadletters {
					m.records.WithLabelValues(name, "deadletter").Add(float64(count))
					n.metrics.deadletters.WithLabelValues(string(reason)).Add(float64(count))
				}
			},
			Failed: func(name string, _ error) { m.failed.WithLabelValues(name).Inc() },
			Alert:  func(name, code, message string) { n.alert(ctx, "intake", name, code, message) },
			Running: func(topics map[string]string) {
				for name := range topics {
					m.failed.WithLabelValues(name).Add(0)
					for _, result := range []string{"submission", "signal", "skipped", "deadletter"} {
						m.records.WithLabelValues(name, result).Add(0)
					}
				}
				running.Store(&topics)
			},
		}})
	n.roles.Go(func() error {
		if err := s.Run(ctx); err != nil {
			return fmt.Errorf("intakes: %w", err)
		}
		return nil
	})
	n.roles.Go(func() error {
		for backoff.Sleep(ctx, lagInterval) == nil {
			if topics := running.Load(); topics != nil {
				n.measureIntakeLag(ctx, *topics)
			}
		}
		return nil
	})
}

// measureIntakeLag measures the lag of intakes, as far as the brokers answer.
func (n *Instance) measureIntakeLag(ctx context.Context, topics map[string]string) {
	n.metrics.intakes.lag.Reset()
	for name, topic := range topics {
		lag, err := n.Admin.GroupLag(ctx, intake.Group(n.Kafka.Namespace, name), topic)
		if err != nil {
			n.log.Debug("lag of an intake unknown", "intake", name, "error", err)
			continue
		}
		sum := int64(0)
		for _, behind := range lag[topic] {
			sum += behind
		}
		n.metrics.intakes.lag.WithLabelValues(name).Set(float64(sum))
	}
}

// alert writes an alert of a role about something.
func (n *Instance) alert(ctx context.Context, role, what, code, message string) {
	a := &events.Alert{Code: code, Message: message, At: events.Millis(n.Clock.Now())}
	n.Producer.SendAsync(ctx, a.Record(n.Kafka.Namespace, n.source(role), role+"/"+what+"/"+code+"/"+n.Name), func(_ events.Record, err error) {
		if err != nil && ctx.Err() == nil {
			n.log.Error("alert not written", "error", err)
		}
	})
}

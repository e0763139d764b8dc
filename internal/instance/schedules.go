package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
)

// runSchedules starts the tasks of schedules while this process is the one of the supervisors that does.
func (n *Instance) runSchedules(ctx context.Context) error {
	s := schedulerun.New(schedulerun.Config{Kafka: n.Kafka, Admin: n.Admin, Producer: n.Producer, Source: n.source("supervisor"), Log: n.log, Now: n.Clock.Now,
		Session: n.config.Session, Decided: n.countDecision})
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("schedules: %w", err)
	}
	return nil
}

// addSchedules registers the metrics of schedules.
func (m *Metrics) addSchedules(vec func(name, help string, labels ...string) *prometheus.CounterVec, seconds func(name, help string) prometheus.Histogram) {
	m.schedulesStarted = vec("waybill_schedules_started_total", "Tasks that this process has decided to start for schedules, by cause: due, queued, triggered or backfilled. A scheduler can still refuse one.", "cause")
	m.schedulesSkipped = vec("waybill_schedules_skipped_total", "Instants of schedules that this process has skipped, by reason.", "why")
	m.schedulesLate = seconds("waybill_schedule_lateness_seconds", "Time from an instant of a schedule to the decision to start its task.")
}

// countDecision counts a decision about a schedule.
func (n *Instance) countDecision(decision any, late time.Duration) {
	switch d := decision.(type) {
	case *schedule.Start:
		n.metrics.schedulesStarted.WithLabelValues(string(d.Cause)).Inc()
		if d.Cause == schedule.Due {
			n.metrics.schedulesLate.Observe(late.Seconds())
		}
	case *schedule.Skipping:
		n.metrics.schedulesSkipped.WithLabelValues(string(d.Why)).Add(float64(d.Count))
	}
}

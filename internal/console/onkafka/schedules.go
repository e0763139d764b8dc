package onkafka

import (
	"context"
	"errors"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/registry"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/schedulerun"
)

// Schedules implements console.Schedules.
type Schedules struct {
	*schedulerun.Service
	kafka kafka.Config
}

// NewSchedules returns the schedules of an instance's namespace. Run makes it work.
func NewSchedules(n *instance.Instance, source string) *Schedules {
	return &Schedules{schedulerun.New(schedulerun.Config{Kafka: n.Kafka, Admin: n.Admin, Producer: n.Producer, Source: source, Log: n.Logger()}), n.Kafka}
}

// changed waits until the service knows a change, so that the next answer has it.
func (s *Schedules) changed(ctx context.Context, result registry.Result, err error) (string, error) {
	if errors.Is(err, registry.ErrNotFound) {
		err = schedule.ErrNotFound
	}
	if err == nil {
		err = s.AwaitDefinitions(ctx)
	}
	return string(result), err
}

// ApplySchedule writes a definition.
func (s *Schedules) ApplySchedule(ctx context.Context, d *schedule.Definition, by events.By) (string, error) {
	body, err := d.JSON()
	if err != nil {
		return "", err
	}
	result, err := registry.ApplyNamed(ctx, s.kafka, events.NamedDefinition{Kind: events.ScheduleDefinition, Name: d.Name, Body: body, By: by}, schedule.SameRule)
	return s.changed(ctx, result, err)
}

// Pause pauses a schedule.
func (s *Schedules) Pause(ctx context.Context, name string, by events.By) (string, error) {
	result, err := registry.PauseNamed(ctx, s.kafka, events.ScheduleDefinition, name, by)
	return s.changed(ctx, result, err)
}

// Resume ends a pause.
func (s *Schedules) Resume(ctx context.Context, name string, by events.By) (string, error) {
	result, err := registry.ResumeNamed(ctx, s.kafka, events.ScheduleDefinition, name, by)
	return s.changed(ctx, result, err)
}

// Delete deletes a schedule.
func (s *Schedules) Delete(ctx context.Context, name string, by events.By) (string, error) {
	result, err := registry.DeleteNamed(ctx, s.kafka, events.ScheduleDefinition, name, by)
	return s.changed(ctx, result, err)
}

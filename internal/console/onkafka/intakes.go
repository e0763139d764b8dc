package onkafka

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// Intakes implements console.Intakes.
type Intakes struct {
	Kafka kafka.Config
	Admin *kafkaadmin.Admin
	// Schemas may be nil: then dead letters whose values are Avro can't be written again.
	Schemas intakerun.Schemas
	// DefinitionsChanged returns when this process read a definition last; nil: it doesn't follow them.
	DefinitionsChanged func() time.Time

	changedHere atomic.Pointer[time.Time] // when this process changed one
}

// List returns all intakes, by name.
func (s *Intakes) List(ctx context.Context) ([]intake.IntakeStatus, error) {
	return intakerun.Views(ctx, s.Admin, s.Kafka.Namespace)
}

// Changed returns when a definition changed last.
func (s *Intakes) Changed() (last time.Time) {
	if at := s.changedHere.Load(); at != nil {
		last = *at
	}
	if s.DefinitionsChanged != nil {
		if at := s.DefinitionsChanged(); at.After(last) {
			last = at
		}
	}
	return last
}

// MapAgain returns a function that maps the records of dead letters again, with the intakes of now.
func (s *Intakes) MapAgain(ctx context.Context) (func(letter *events.Record) (events.Record, bool, error), error) {
	return intakerun.MapAgain(ctx, s.Admin, s.Kafka.Namespace, s.Schemas)
}

// changed makes the next answer ask for the intakes again.
func (s *Intakes) changed(result registry.Result, err error) (string, error) {
	if errors.Is(err, registry.ErrNotFound) {
		err = intake.ErrNotFound
	}
	s.changedHere.Store(new(time.Now()))
	return string(result), err
}

// ApplyIntake writes a definition.
func (s *Intakes) ApplyIntake(ctx context.Context, d *intake.Definition, by events.By) (string, error) {
	return s.changed(registry.ApplyNamed(ctx, s.Kafka, events.NamedDefinition{Kind: events.IntakeDefinition, Name: d.Name, Body: d.Canonical(), By: by}, nil))
}

// Pause pauses an intake.
func (s *Intakes) Pause(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.PauseNamed(ctx, s.Kafka, events.IntakeDefinition, name, by))
}

// Resume ends a pause.
func (s *Intakes) Resume(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.ResumeNamed(ctx, s.Kafka, events.IntakeDefinition, name, by))
}

// Delete deletes an intake.
func (s *Intakes) Delete(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.DeleteNamed(ctx, s.Kafka, events.IntakeDefinition, name, by))
}

package onkafka

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// intakesFresh is how long a list of intakes is used again: viewers that ask together cost the brokers one answer.
const intakesFresh = time.Second

// Intakes implements console.Intakes.
type Intakes struct {
	kafka   kafka.Config
	admin   *kafkaadmin.Admin
	schemas intakerun.Schemas
	// last is the list that was read last. It is held by who reads it.
	last chan intakeList
}

type intakeList struct {
	list []intake.IntakeStatus
	at   time.Time // when it was read
}

// NewIntakes returns the intakes of an instance's namespace. schemas may be nil: then dead letters whose values are Avro
// can't be written again.
func NewIntakes(n *instance.Instance, schemas intakerun.Schemas) *Intakes {
	s := &Intakes{kafka: n.Kafka, admin: n.Admin, schemas: schemas, last: make(chan intakeList, 1)}
	s.last <- intakeList{}
	return s
}

// List returns all intakes, by name.
func (s *Intakes) List(ctx context.Context) ([]intake.IntakeStatus, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case last := <-s.last:
		if time.Since(last.at) < intakesFresh {
			s.last <- last
			return last.list, nil
		}
		list, err := intakerun.Views(ctx, s.admin, s.kafka.Namespace)
		if err != nil || ctx.Err() != nil { // an answer that was cut short isn't for others
			s.last <- intakeList{}
			return list, errors.Join(err, ctx.Err())
		}
		s.last <- intakeList{list, time.Now()}
		return list, nil
	}
}

// MapAgain returns a function that maps the records of dead letters again, with the intakes of now.
func (s *Intakes) MapAgain(ctx context.Context) (func(letter *events.Record) (events.Record, bool, error), error) {
	return intakerun.MapAgain(ctx, s.admin, s.kafka.Namespace, s.schemas)
}

// changed makes the next List read the intakes again.
func (s *Intakes) changed(result registry.Result, err error) (string, error) {
	if errors.Is(err, registry.ErrNotFound) {
		err = intake.ErrNotFound
	}
	<-s.last
	s.last <- intakeList{}
	return string(result), err
}

// ApplyIntake writes a definition.
func (s *Intakes) ApplyIntake(ctx context.Context, d *intake.Definition, by events.By) (string, error) {
	return s.changed(registry.ApplyNamed(ctx, s.kafka, events.NamedDefinition{Kind: events.IntakeDefinition, Name: d.Name, Body: d.Canonical(), By: by}, nil))
}

// Pause pauses an intake.
func (s *Intakes) Pause(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.PauseNamed(ctx, s.kafka, events.IntakeDefinition, name, by))
}

// Resume ends a pause.
func (s *Intakes) Resume(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.ResumeNamed(ctx, s.kafka, events.IntakeDefinition, name, by))
}

// Delete deletes an intake.
func (s *Intakes) Delete(ctx context.Context, name string, by events.By) (string, error) {
	return s.changed(registry.Deleted, registry.DeleteNamed(ctx, s.kafka, events.IntakeDefinition, name, by))
}

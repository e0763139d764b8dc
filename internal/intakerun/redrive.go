package intakerun

import (
	"context"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/registry"
)

// MapAgain returns a function that maps the records of dead letters again, with the intakes that are in the log now
// (redrive.MapAgain). schemas may be nil.
func MapAgain(ctx context.Context, admin *kafkaadmin.Admin, ns events.Namespace, schemas Schemas) (func(letter *events.Record) (events.Record, bool, error), error) {
	list, err := registry.ListNamed(ctx, admin, ns, events.IntakeDefinition)
	if err != nil {
		return nil, err
	}
	programs := map[string]*intake.Program{}
	for i := range list {
		if p, err := intake.ParseStored(list[i].Body, ns); list[i].Fault == "" && err == nil {
			programs[list[i].Name] = p
		}
	}
	var avro intake.Decoder
	if schemas != nil {
		avro = schemas.Decode
	}
	return func(letter *events.Record) (events.Record, bool, error) {
		return intake.Redrive(ctx, programs, avro, letter)
	}, nil
}

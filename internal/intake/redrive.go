package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-run/waybill/events"
)

// Decoder returns a value of the format avro as JSON, as in package intakerun.
type Decoder func(ctx context.Context, value []byte) (json.RawMessage, *events.Unusable, error)

// Redrive maps the record of an intake's dead letter again, with the intake of today. programs are the intakes by name;
// avro may be nil. ours is false if the dead letter is of no intake. The error says why the record can't be mapped.
func Redrive(ctx context.Context, programs map[string]*Program, avro Decoder, letter *events.Record) (out events.Record, ours bool, err error) {
	original, ref, err := events.IntakeOriginal(letter)
	if err != nil || ref == nil {
		return out, ref != nil, err
	}
	p := programs[ref.Name]
	if p == nil {
		return out, true, fmt.Errorf("there is no intake %s now", ref.Name)
	}
	var value json.RawMessage
	var undecoded *events.Unusable
	if p.Definition.Format == Avro && original.Value != nil {
		if avro == nil {
			return out, true, errors.New("its value is Avro: name the schema registry: --schema-registry of `waybill deadletters redrive`, or of the console")
		}
		if value, undecoded, err = avro(ctx, original.Value); err != nil {
			return out, true, err
		}
	}
	got := p.Map(original, ref.TopicID, value, undecoded)
	switch {
	case got.Reason != "":
		detail, _ := got.Record.Header(events.HeaderDetail)
		return out, true, fmt.Errorf("it would be a dead letter again: %s: %s", got.Reason, detail)
	case got.Skipped():
		return out, true, errors.New("the intake's condition excludes it now")
	}
	return got.Record, true, nil
}

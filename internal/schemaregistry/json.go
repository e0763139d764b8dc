package schemaregistry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/avro"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/jsonscan"
)

// conversions make the logical types whose Go values don't say what they are to JSON.
var conversions = []avro.SchemaOpt{
	texts("date", "int", func(v int64) string { return time.Unix(v*secondsPerDay, 0).UTC().Format(time.DateOnly) }),
	texts("time-millis", "int", func(v int64) string { return timeOfDay(time.UnixMilli(v), "15:04:05.000") }),
	texts("time-micros", "long", func(v int64) string { return timeOfDay(time.UnixMicro(v), "15:04:05.000000") }),
	texts("local-timestamp-millis", "long", func(v int64) string { return time.UnixMilli(v).UTC().Format(localLayout) }),
	texts("local-timestamp-micros", "long", func(v int64) string { return time.UnixMicro(v).UTC().Format(localLayout) }),
	texts("local-timestamp-nanos", "long", func(v int64) string { return time.Unix(0, v).UTC().Format(localLayout) }),
	avro.CustomType{LogicalType: "decimal", Decode: decimal},
	avro.CustomType{LogicalType: "duration", AvroType: "fixed", Decode: duration},
	avro.CustomType{LogicalType: "uuid", AvroType: "fixed", Decode: uuid},
}

const (
	secondsPerDay = 24 * 60 * 60
	localLayout   = "2006-01-02T15:04:05.999999999"
)

func timeOfDay(t time.Time, layout string) string { return t.UTC().Format(layout) }

// texts converts a logical type of whole numbers to text.
func texts(logical, of string, text func(int64) string) avro.SchemaOpt {
	return avro.CustomType{LogicalType: logical, AvroType: of, Decode: func(v any, _ *avro.SchemaNode) (any, error) {
		switch n := v.(type) {
		case int32:
			return text(int64(n)), nil
		case int64:
			return text(n), nil
		}
		return nil, fmt.Errorf("%s: a value of the type %T", logical, v)
	}}
}

func decimal(v any, node *avro.SchemaNode) (any, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("decimal: a value of the type %T", v)
	}
	return json.Number(avro.RatFromBytes(b, node.Scale).FloatString(max(0, node.Scale))), nil
}

func duration(v any, _ *avro.SchemaNode) (any, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("duration: a value of the type %T", v)
	}
	d := avro.DurationFromBytes(b)
	return map[string]any{"months": int64(d.Months), "days": int64(d.Days), "milliseconds": int64(d.Milliseconds)}, nil
}

func uuid(v any, _ *avro.SchemaNode) (any, error) {
	b, ok := v.([]byte)
	if !ok || len(b) != 16 {
		return nil, fmt.Errorf("uuid: a value of the type %T", v)
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

// decode returns a value in Avro's binary encoding as JSON.
func decode(s *avro.Schema, data []byte) (json.RawMessage, *events.Unusable) {
	var v any
	rest, err := s.Decode(data, &v)
	switch {
	case err != nil:
		return nil, badAvro(err.Error())
	case len(rest) > 0:
		return nil, badAvro(fmt.Sprintf("%d bytes follow the value", len(rest)))
	}
	out, err := appendJSON(make([]byte, 0, 2*len(data)), v)
	if err == nil {
		err = events.CheckJSON(out) // text that isn't UTF-8, or too many levels
	}
	if err != nil {
		return nil, badAvro(err.Error())
	}
	return out, nil
}

func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int32:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float32:
		return appendFloat(b, float64(v), 32)
	case float64:
		return appendFloat(b, v, 64)
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("a text isn't UTF-8")
		}
		return jsonscan.AppendString(b, v), nil
	case json.Number:
		return append(b, v...), nil
	case time.Time:
		return jsonscan.AppendString(b, v.UTC().Format(time.RFC3339Nano)), nil
	case []byte:
		return jsonscan.AppendString(b, base64.StdEncoding.EncodeToString(v)), nil
	case []any:
		return appendList(b, v)
	case map[string]any:
		return appendObject(b, v)
	}
	return nil, fmt.Errorf("a value of the Go type %T", v)
}

func appendFloat(b []byte, v float64, bits int) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("the number %v has no form in JSON", v)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits), nil
}

func appendList(b []byte, list []any) (_ []byte, err error) {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, v); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, object map[string]any) (_ []byte, err error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, name), ':')
		if b, err = appendJSON(b, object[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return append(b, '}'), nil
}

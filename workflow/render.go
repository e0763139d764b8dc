package workflow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

var errTooLarge = fmt.Errorf("the result is larger than %d bytes", MaxResultBytes)

// appendValue appends the JSON of a CEL value. Raw JSON is copied; objects of expressions get sorted keys.
func appendValue(b []byte, v ref.Val, depth int) ([]byte, error) {
	if len(b) > MaxResultBytes {
		return b, errTooLarge
	}
	if depth < 0 {
		return b, fmt.Errorf("the result is nested more than %d deep", maxJSONDepth)
	}
	switch v := v.(type) {
	case *object:
		return appendRaw(b, v.raw)
	case *list:
		return appendRaw(b, v.raw)
	case types.Null:
		return append(b, "null"...), nil
	case types.String:
		return jsonscan.AppendString(b, string(v)), nil
	case types.Timestamp, types.Duration:
		return jsonscan.AppendString(b, string(v.ConvertToType(types.StringType).(types.String))), nil
	case types.Bytes:
		return jsonscan.AppendString(b, base64.StdEncoding.EncodeToString(v)), nil
	case traits.Mapper:
		return appendMap(b, v, depth-1)
	case traits.Lister:
		return appendList(b, v, depth-1)
	}
	return appendScalar(b, v)
}

func appendScalar(b []byte, v ref.Val) ([]byte, error) {
	switch v := v.(type) {
	case types.Bool:
		return strconv.AppendBool(b, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case types.Double:
		if f := float64(v); math.IsInf(f, 0) || math.IsNaN(f) {
			return b, fmt.Errorf("the result is %v, which JSON has no number for", f)
		}
		return appendDouble(b, float64(v)), nil
	case *types.Err:
		return b, v
	}
	return b, fmt.Errorf("a result of type %s has no JSON form", v.Type().TypeName())
}

func appendRaw(b, raw []byte) ([]byte, error) {
	if len(b)+len(raw) > MaxResultBytes {
		return b, errTooLarge
	}
	if !utf8.Valid(raw) {
		return b, errors.New("the value is not UTF-8 text")
	}
	return append(b, raw...), nil
}

func appendMap(b []byte, m traits.Mapper, depth int) ([]byte, error) {
	type entry struct {
		key   string
		value ref.Val
	}
	var entries []entry
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return b, fmt.Errorf("an object's keys must be strings, this one is of type %s: %v", key.Type().TypeName(), key.Value())
		}
		entries = append(entries, entry{string(name), m.Get(key)})
	}
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.key, y.key) })
	b = append(b, '{')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, e.key), ':')
		var err error
		if b, err = appendValue(b, e.value, depth); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendList(b []byte, l traits.Lister, depth int) ([]byte, error) {
	b = append(b, '[')
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; {
		if !first {
			b = append(b, ',')
		}
		first = false
		var err error
		if b, err = appendValue(b, it.Next(), depth); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendText appends a value inside a JSON string.
func appendText(b []byte, v ref.Val) ([]byte, error) {
	switch s := v.(type) {
	case types.String:
		return jsonscan.AppendInner(b, string(s)), nil
	case types.Timestamp, types.Duration:
		return jsonscan.AppendInner(b, string(v.ConvertToType(types.StringType).(types.String))), nil
	case types.Bool, types.Int, types.Uint, types.Double:
		return appendScalar(b, v)
	case types.Null:
		return b, errors.New("null can't be used inside text")
	}
	return b, fmt.Errorf("a value of type %s can't be used inside text", v.Type().TypeName())
}

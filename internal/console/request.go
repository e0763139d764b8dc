package console

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// A request is a struct. The tag path, query or header of a field names a parameter; jsonschema describes it. The
// field Body is the body. The type of a parameter is string, bool, or one that implements encoding.TextUnmarshaler;
// paramSchemas has its schema. Parameters of a path are required, others aren't, and empty means absent.
type (
	noParameters struct{}

	// taskPath names a task.
	taskPath struct {
		Task taskID `path:"id" jsonschema:"The task's id, percent-encoded: a slash is %2F. The ids . and .. are %2E and %2E%2E, since they would be relative path segments."`
	}
	taskRequest struct {
		taskPath
		MinOffset taskOffset `query:"min_offset" jsonschema:"Wait until the answer reflects everything of the task's partition below this offset. end: the end of the log when the request arrives."`
	}
	listRequest struct {
		MinOffset listOffsets `query:"min_offset" jsonschema:"PARTITION:OFFSET, several with commas: wait until the answer reflects these partitions below these offsets. end: the end of the log when the request arrives."`
	}
)

// Types of parameters.
type (
	taskID      string
	taskOffset  string // an offset, or consoleapi.LogEnd
	listOffsets string // offsets of partitions, or consoleapi.LogEnd
	pageSize    int
)

const (
	pageDefault = 50
	pageMax     = 1000
)

func (id *taskID) UnmarshalText(text []byte) error {
	*id = taskID(text)
	if err := events.CheckTaskID(string(text)); err != nil {
		return fmt.Errorf("task %w", err)
	}
	return nil
}

func (n *pageSize) UnmarshalText(text []byte) error { return parseSize((*int)(n), text, pageMax) }

// parseSize parses a number from 1 to most.
func parseSize(n *int, text []byte, most int) error {
	size, err := strconv.Atoi(string(text))
	if err != nil || size < 1 || size > most {
		return fmt.Errorf("must be 1 to %d", most)
	}
	*n = size
	return nil
}

// orDefault is the size of a page; pageDefault if none was asked for.
func (n pageSize) orDefault() int { return cmp.Or(int(n), pageDefault) }

// parameter is a parameter of a request.
type parameter struct {
	in, name string
	field    []int // index in the request's struct
	kind     reflect.Type
	text     string // description
}

// parametersOf returns the parameters of a request, in order.
func parametersOf(request reflect.Type) (ps []parameter) {
	for _, f := range reflect.VisibleFields(request) {
		for _, in := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(in); name != "" {
				ps = append(ps, parameter{in, name, f.Index, f.Type, f.Tag.Get("jsonschema")})
			}
		}
	}
	return ps
}

// bodyOf returns the type of a request's body; nil: it has none.
func bodyOf(request reflect.Type) reflect.Type {
	if f, ok := request.FieldByName("Body"); ok {
		return f.Type
	}
	return nil
}

// decode sets the fields of a request. It rejects unknown and repeated parameters.
func (c *call) decode(request reflect.Value) error {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return badRequest("the query can't be read: %v", err)
	}
	parameters := parametersOf(request.Type())
	var known []string
	for _, p := range parameters {
		if p.in == "query" {
			known = append(known, p.name)
		}
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			return badRequest("unknown parameter %q; known: %s", consoleapi.Printable(name), cmp.Or(strings.Join(known, ", "), "none"))
		case len(values) > 1:
			return badRequest("the parameter %s is given %d times", name, len(values))
		}
	}
	for _, p := range parameters {
		field := request.FieldByIndex(p.field)
		switch p.in {
		case "path":
			if err := setParameter(field, c.r.PathValue(p.name)); err != nil {
				return badRequest("%v", err)
			}
		case "header":
			field.SetString(c.r.Header.Get(p.name))
		case "query":
			if text := query.Get(p.name); text != "" {
				if err := setParameter(field, text); err != nil {
					return badRequest("%s %q: %v", p.name, consoleapi.Printable(text), err)
				}
			}
		}
	}
	if bodyOf(request.Type()) == nil {
		return nil
	}
	return c.decodeBody(request.FieldByName("Body"))
}

func setParameter(field reflect.Value, text string) error {
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if field.Kind() == reflect.Bool {
		if text != "true" && text != "false" {
			return errors.New("must be true or false")
		}
		field.SetBool(text == "true")
		return nil
	}
	field.SetString(text)
	return nil
}

// decodeBody reads the body. A body of raw JSON is checked by its handler.
func (c *call) decodeBody(body reflect.Value) error {
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, bodyMaxBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge("at most %d bytes", large.Limit)
	case err != nil:
		return badRequest("the body can't be read: %v", err)
	case len(raw) == 0:
		return badRequest("the body is empty")
	}
	if err := events.CheckJSON(raw); err != nil {
		return badRequest("the body is not valid JSON: %v", err)
	}
	if body.Kind() == reflect.Slice {
		body.SetBytes(raw)
		return nil
	}
	return decodeObject(raw, body)
}

// decodeObject decodes an object. It rejects unknown fields.
func decodeObject(raw []byte, into reflect.Value) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return badRequest("the body is no JSON object")
	}
	known := jsonFields(into.Type())
	for name := range given {
		if _, ok := known[name]; !ok {
			return badRequest("unknown field %q in the body; known: %s", consoleapi.Printable(name), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	err := json.Unmarshal(raw, into.Addr().Interface())
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		return badRequest("the body: %s is a %s, must be a %s", wrong.Field, wrong.Value, wrong.Type)
	} else if err != nil {
		return badRequest("the body is not valid JSON: %v", err)
	}
	return nil
}

// jsonFields returns the fields of a struct by their names in JSON.
func jsonFields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f
		}
	}
	return fields
}

package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// fieldSchema is the description of a field.
type fieldSchema struct {
	typ     string // empty: any
	text    string
	enum    []string
	pattern string
	items   string // the type of the elements of an array of plain values
	values  string // the type of the values of an object with arbitrary names
}

// ordered is a JSON object with a fixed order of members.
type ordered []struct {
	k string
	v any
}

func (o *ordered) add(k string, v any) {
	*o = append(*o, struct {
		k string
		v any
	}{k, v})
}

func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(jsonscan.AppendString(nil, m.k))
		b.WriteByte(':')
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(m.v); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// baseType returns a sample's type, without the suffix of its name.
func baseType(name string) string {
	i := strings.LastIndex(name, ".v1")
	return name[:i+3]
}

// instance returns the part of a record that a schema describes: its value, or the whole record.
func instance(t *testing.T, s sample) []byte {
	t.Helper()
	r := readGolden(t, s.name)
	typ := baseType(s.name)
	if strings.HasSuffix(s.name, ".structured") {
		var o object
		if err := o.scan(r.Value, 0); err != nil {
			t.Fatal(err)
		}
		return o.value(len(o.members) - 1) // data
	}
	if !wholeRecords[typ] {
		return r.Value
	}
	headers := ordered{}
	for _, h := range r.Headers {
		headers.add(h.Key, string(h.Value))
	}
	whole := ordered{}
	whole.add("key", string(r.Key))
	whole.add("headers", headers)
	if ValidJSON(r.Value) {
		whole.add("value", json.RawMessage(r.Value))
	} else {
		whole.add("value", string(r.Value))
	}
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// describe returns the description of the field at a path.
func describe(typ, path string) (fieldSchema, bool) {
	for _, key := range []string{typ + "/" + path, path, lastTwo(path), path[strings.LastIndexByte(path, '.')+1:]} {
		if d, ok := described[key]; ok {
			return d, true
		}
	}
	return fieldSchema{}, false
}

func lastTwo(path string) string {
	parts := strings.Split(path, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// properties makes the schemas of all members of the objects, from their descriptions.
func properties(t *testing.T, typ, path string, objects [][]byte) ordered {
	t.Helper()
	var names []string
	values := map[string][][]byte{}
	for _, data := range objects {
		var o object
		if o.scan(data, 0) != nil {
			continue // free-form and not an object
		}
		for i := range o.members {
			name := string(o.name(i))
			if values[name] == nil {
				names = append(names, name)
			}
			values[name] = append(values[name], o.value(i))
		}
	}
	out := ordered{}
	for _, name := range names {
		at := strings.TrimPrefix(path+"."+name, ".")
		d, ok := describe(typ, at)
		if !ok {
			if strings.HasPrefix(at, "value.") {
				continue // data from outside
			}
			t.Errorf("%s: nothing is said of the field %s: describe it in schema_describe_test.go", typ, at)
		}
		out.add(name, fieldOf(t, typ, at, d, values[name]))
	}
	return out
}

func fieldOf(t *testing.T, typ, path string, d fieldSchema, values [][]byte) ordered {
	f := ordered{}
	if d.typ != "" {
		f.add("type", d.typ)
	}
	f.add("description", d.text)
	if d.enum != nil {
		f.add("enum", d.enum)
	}
	if d.pattern != "" {
		f.add("pattern", d.pattern)
	}
	if d.values != "" {
		f.add("additionalProperties", ordered{{"type", d.values}})
	}
	if d.items != "" {
		f.add("items", ordered{{"type", d.items}})
	}
	switch {
	case freeform[path] || freeform[lastTwo(path)] || freeform[typ+"/"+path] || freeform[path[strings.LastIndexByte(path, '.')+1:]]:
	case d.typ == "array" && d.items == "":
		var elements [][]byte
		for _, v := range values {
			if err := scanArray(v, func(el []byte) error { elements = append(elements, el); return nil }); err != nil {
				t.Errorf("%s: %s: %v", typ, path, err)
			}
		}
		f.add("items", ordered{{"type", "object"}, {"properties", properties(t, typ, path, elements)}})
	case d.typ == "object" || d.typ == "" && bytes.HasPrefix(values[len(values)-1], []byte("{")):
		f.add("properties", properties(t, typ, path, values))
	}
	return f
}

// renderSchema makes the schema of a type from its golden files and the descriptions of its fields.
func renderSchema(t *testing.T, typ string, all []sample) []byte {
	t.Helper()
	about, ok := schemaTexts[strings.Replace(typ, "waybill.undo.", "waybill.step.", 1)]
	if !ok {
		t.Fatalf("nothing is said of type %s: describe it in schema_describe_test.go", typ)
	}
	text, required := about.text, slices.Clone(about.required)
	var instances [][]byte
	isEvent := false
	for _, s := range all {
		if baseType(s.name) == typ {
			instances = append(instances, instance(t, s))
			isEvent = isEvent || s.event != nil
		}
	}
	if isEvent {
		if strings.HasPrefix(typ, "waybill.undo.") {
			text = "About the undo of a step. " + text
		}
		first := []string{"at", "cause", "epoch"}
		if typ != "waybill.task.received.v1" && !strings.HasPrefix(typ, "waybill.partition.") {
			first = append(first, "prev")
		}
		required = append(first, required...)
	}
	s := ordered{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"$id", "urn:waybill:" + strings.TrimPrefix(typ, "waybill.")}, {"title", typ},
		{"description", text}, {"type", "object"}, {"properties", properties(t, typ, "", instances)}}
	if len(required) > 0 {
		s.add("required", required)
	}
	if typ == TypeSubmission { // any other member is probably a mistake
		s.add("propertyNames", ordered{{"pattern", "^(" + strings.ReplaceAll(submissionMembers, ", ", "|") + "|" + extensionPrefix + ".*)$"}})
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	// Undo json.Marshal's escapes of <, > and &, since people read schemas.
	return []byte(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(b.String()))
}

// types returns the types of all samples, each once.
func types(all []sample) []string {
	var ts []string
	for _, s := range all {
		if typ := baseType(s.name); !slices.Contains(ts, typ) {
			ts = append(ts, typ)
		}
	}
	return ts
}

// TestSchemas checks that the published schemas have exactly the codec's fields. They are made from the golden files,
// in which every field is set.
func TestSchemas(t *testing.T) {
	all := published()
	published, err := fs.Glob(Schemas(), "*.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types(all) {
		name := typ + ".schema.json"
		generated(t, "schema/"+name, string(renderSchema(t, typ, all)))
		if i := slices.Index(published, name); i >= 0 {
			published = slices.Delete(published, i, i+1)
		}
	}
	if len(published) > 0 {
		t.Errorf("%v: schemas of types that nobody writes. A type that was ever written keeps its golden file and its decoder.", published)
	}
}

// TestGoldenMatchSchemas checks every golden file against its published schema, and that the schemas use only the
// subset that check knows.
func TestGoldenMatchSchemas(t *testing.T) {
	for _, s := range published() {
		schema := readSchema(t, baseType(s.name))
		if faults := check(schema, parseJSON(t, instance(t, s)), "$"); len(faults) > 0 {
			t.Errorf("%s: %s", s.name, strings.Join(faults, "; "))
		}
	}
}

// TestSchemasRefuse checks that the schemas refuse invalid records.
func TestSchemasRefuse(t *testing.T) {
	for _, tc := range []struct{ typ, value, want string }{
		{TypeSubmission, `{"id":"a"}`, "workflow"},
		{TypeSubmission, `{"id":7,"workflow":"w"}`, "$.id"},
		{TypeSubmission, `{"id":"a","workflow":"w","labels":{"k":1}}`, "$.labels.k"},
		{TypeSubmission, `{"id":"a","workflow":"w","complete_by":"tomorrow"}`, "$.complete_by"},
		{TypeSubmission, `{"id":"a","workflow":"w","version":1.5}`, "$.version"},
		{TypeSubmission, `{"id":"a","workflow":"w","inputs":{}}`, "$.inputs"},
		{TypeSubmission, `[]`, "$"},
		{TypeControl, `{"task":"a","command":"stop"}`, "$.command"},
		{"waybill.task.received.v1", `{"at":"2026-03-01T12:00:00.000Z","cause":"tasks/1/2","epoch":1,"workflow":"w","plan":{"steps":[{"needs":["a"]}]}}`, "$.plan.steps[0].needs[0]"},
		{TypeReply, `{"headers":{"ce_request":"a/b/do/0/x"},"value":1}`, "$.headers.ce_request"},
		{TypeReply, `{"headers":{"ce_request":"a/b/do/1"},"value":1}`, "$.headers.ce_request"},
	} {
		faults := strings.Join(check(readSchema(t, tc.typ), parseJSON(t, []byte(tc.value)), "$"), "; ")
		if !strings.Contains(faults, tc.want) {
			t.Errorf("%s: %s: found %q, want a fault at %s", tc.typ, tc.value, faults, tc.want)
		}
	}
	more := parseJSON(t, []byte(`{"task":"a","control":"1","added_later":true}`))
	if faults := check(readSchema(t, TypeAnswer), more, "$"); len(faults) > 0 {
		t.Errorf("an additive change is refused: %v", faults)
	}
}

func parseJSON(t fataler, data []byte) any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// fataler is the common part of *testing.T and *rapid.T that is needed here.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func readSchema(t fataler, typ string) map[string]any {
	t.Helper()
	data, err := fs.ReadFile(Schemas(), typ+".schema.json")
	if err != nil {
		t.Fatalf("%v: go test ./events -run Schemas -update writes it", err)
	}
	return parseJSON(t, data).(map[string]any)
}

// annotations are keywords that don't affect validity.
var annotations = []string{"$schema", "$id", "title", "description"}

// check validates a value by the part of JSON Schema that the schemas use. It returns the faults, each with its path.
func check(schema map[string]any, v any, at string) []string {
	var faults []string
	bad := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	object, isObject := v.(map[string]any)
	for _, word := range sortedKeys(schema) {
		s := schema[word]
		switch word {
		case "type":
			if !hasType(v, s.(string)) {
				bad("%v is no %s", v, s)
			}
		case "enum":
			if !slices.Contains(s.([]any), v) {
				bad("%v is none of %v", v, s)
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(s.(string)).MatchString(text) {
				bad("%q doesn't match %s", text, s)
			}
		case "required":
			for _, name := range s.([]any) {
				if _, ok := object[name.(string)]; isObject && !ok {
					bad("%s is missing", name)
				}
			}
		case "properties":
			for name, sub := range s.(map[string]any) {
				if member, ok := object[name]; ok {
					faults = append(faults, check(sub.(map[string]any), member, at+"."+name)...)
				}
			}
		case "additionalProperties":
			for name, member := range object {
				faults = append(faults, check(s.(map[string]any), member, at+"."+name)...)
			}
		case "propertyNames":
			for name := range object {
				faults = append(faults, check(s.(map[string]any), name, at+"."+name)...)
			}
		case "items":
			elements, _ := v.([]any)
			for i, el := range elements {
				faults = append(faults, check(s.(map[string]any), el, fmt.Sprintf("%s[%d]", at, i))...)
			}
		default:
			if !slices.Contains(annotations, word) {
				bad("the schema uses %q, which this checker doesn't know", word)
			}
		}
	}
	return faults
}

func sortedKeys(m map[string]any) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

func hasType(v any, typ string) bool {
	switch v := v.(type) {
	case map[string]any:
		return typ == "object"
	case []any:
		return typ == "array"
	case string:
		return typ == "string" && utf8.ValidString(v)
	case bool:
		return typ == "boolean"
	case json.Number:
		return typ == "number" || typ == "integer" && !strings.ContainsAny(string(v), ".eE")
	}
	return typ == "null"
}

package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is the part of an OpenAPI document that the tests of this package read.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	Role       string      `json:"x-role"`
	Parameters []parameter `json:"parameters"`
	Responses  map[string]struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type parameter struct {
	Name, In string
	Schema   *schema `json:"schema"`
}

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Enum       []string           `json:"enum"`
	Pattern    string             `json:"pattern"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional json.RawMessage    `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	AnyOf      []*schema          `json:"anyOf"`
}

func readDocument(t testing.TB) *document {
	t.Helper()
	d := &document{}
	if err := json.Unmarshal(openAPI, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The document has exactly the routes of the console, with their roles.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	d := readDocument(t)
	want, got := []string{}, []string{}
	for _, r := range routes {
		want = append(want, strings.ToLower(r.method)+" "+r.path+" "+r.role.String())
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			got = append(got, method+" "+path+" "+op.Role)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nthe routes are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The document has exactly the parameters that a route accepts.
func TestOpenAPIHasTheParameters(t *testing.T) {
	w := newWorld(t)
	s := w.console(t, nil)
	id := w.some(t, "processed").ID
	for path, methods := range readDocument(t).Paths {
		op, ok := methods["get"]
		if !ok {
			continue
		}
		path = strings.Replace(path, "{id}", id, 1)
		var known []string
		for _, p := range op.Parameters {
			if p.In == "query" {
				known = append(known, p.Name)
			}
		}
		r := ask(t, s, http.MethodGet, path+"?surprise=1", "")
		_, list, _ := strings.Cut(problem(t, r, http.StatusBadRequest).Detail, "; known: ")
		if want := strings.Join(known, ", "); !sameWords(list, want) {
			t.Errorf("%s: takes %q, the document has %q", path, list, want)
		}
	}
}

func sameWords(a, b string) bool {
	words := func(s string) []string {
		list := strings.Split(strings.Replace(s, "none", "", 1), ", ")
		slices.Sort(list)
		return list
	}
	return slices.Equal(words(a), words(b))
}

// min_offset accepts exactly what its pattern in the document allows.
func TestOpenAPIHasTheOffsets(t *testing.T) {
	w := newWorld(t)
	s := w.console(t, nil)
	id, checked := w.some(t, "processed").ID, 0
	d := readDocument(t)
	for route, methods := range d.Paths {
		i := slices.IndexFunc(methods["get"].Parameters, func(p parameter) bool { return p.Name == "min_offset" })
		if i < 0 || strings.HasSuffix(route, "/events") { // TestStream and TestTaskStream cover streams
			continue
		}
		pattern := regexp.MustCompile(methods["get"].Parameters[i].Schema.Pattern)
		path := strings.Replace(route, "{id}", id, 1) + "?min_offset="
		for _, text := range []string{logEnd, "1", "1:1", "0:1,1:2", "", "-1", "1:", "End", "end,0:1", "latest"} {
			r := ask(t, s, http.MethodGet, path+text, "")
			want := http.StatusOK
			if text != "" && !pattern.MatchString(text) {
				want = http.StatusBadRequest
			}
			if r.status != want {
				t.Errorf("%s%s: %d, want %d by the pattern %s: %s", path, text, r.status, want, pattern, r.body)
			}
			d.fits(t, http.MethodGet, route, r)
		}
		if !pattern.MatchString(logEnd) {
			t.Errorf("%s: the pattern %s has no %q", route, pattern, logEnd)
		}
		checked++
	}
	if checked < 5 {
		t.Errorf("%d paths take min_offset: too few", checked)
	}
}

// fits reports deviations of a response from the document.
func (d *document) fits(t testing.TB, method, path string, r reply) {
	t.Helper()
	op, ok := d.Paths[path][strings.ToLower(method)]
	if !ok {
		t.Fatalf("%s %s isn't in the document", method, path)
	}
	response, ok := op.Responses[fmt.Sprint(r.status)]
	if !ok {
		t.Errorf("%s %s: status %d isn't in the document", method, path, r.status)
		return
	}
	kind := r.header.Get("Content-Type")
	content, ok := response.Content[kind]
	switch {
	case !ok && len(response.Content) > 0:
		t.Errorf("%s %s: %d is %q, which the document doesn't have", method, path, r.status, kind)
		return
	case !strings.HasSuffix(kind, "json"):
		return
	}
	var v any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Errorf("%s %s: %v in %s", method, path, err, r.body)
		return
	}
	if why := d.check(content.Schema, v, "answer"); why != "" {
		t.Errorf("%s %s: %s\n%s", method, path, why, r.body)
	}
}

// check returns why a value doesn't match a schema; empty: it does.
func (d *document) check(s *schema, v any, at string) string {
	if s.Ref != "" {
		named := d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		if named == nil {
			return at + ": no schema " + s.Ref
		}
		return d.check(named, v, at)
	}
	if len(s.AnyOf) > 0 {
		var why string
		for _, one := range s.AnyOf {
			if why = d.check(one, v, at); why == "" {
				return ""
			}
		}
		return why
	}
	if !ofType(s.Type, v) {
		return fmt.Sprintf("%s: %v isn't %v", at, v, s.Type)
	}
	switch v := v.(type) {
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			return fmt.Sprintf("%s: %q isn't one of %v", at, v, s.Enum)
		}
	case []any:
		for i := range v {
			if why := d.check(s.Items, v[i], fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	case map[string]any:
		return d.checkObject(s, v, at)
	}
	return ""
}

func (d *document) checkObject(s *schema, v map[string]any, at string) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return at + ": " + name + " is missing"
		}
	}
	for name, value := range v {
		property := s.Properties[name]
		if property == nil {
			if string(s.Additional) == "false" {
				return at + ": " + name + " isn't in the document"
			}
			continue
		}
		if why := d.check(property, value, at+"."+name); why != "" {
			return why
		}
	}
	return ""
}

// ofType reports whether a value has a type of JSON Schema, or one of several. A missing type allows any.
func ofType(want, v any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(want, func(one any) bool { return ofType(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	}
	return want == "object"
}

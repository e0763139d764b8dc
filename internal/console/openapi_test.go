package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

var componentRef = regexp.MustCompile(`"#/components/schemas/(\w+)"`)

// document is the OpenAPI document as clients read it. It is safe for concurrent use.
type document struct {
	openAPIDocument

	mu       sync.Mutex
	resolved map[*jsonschema.Schema]*jsonschema.Resolved
}

var publishedDocument = sync.OnceValues(func() (*document, error) {
	d := &document{resolved: map[*jsonschema.Schema]*jsonschema.Resolved{}}
	text, err := OpenAPI()
	if err == nil {
		err = json.Unmarshal(text, &d.openAPIDocument)
	}
	return d, err
})

func readDocument(t testing.TB) *document {
	t.Helper()
	d, err := publishedDocument()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The document describes every operation, parameter, schema and field in sentences.
func TestOpenAPIDescribesEverything(t *testing.T) {
	d := readDocument(t)
	sentence := regexp.MustCompile("^[A-Za-z`].*[.]$")
	check := func(what, text string) {
		t.Helper()
		if !sentence.MatchString(text) {
			t.Errorf("%s is described as %q: want sentences", what, text)
		}
	}
	check("the API", d.Info.Description)
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			if o.ID == "" || ids[o.ID] {
				t.Errorf("%s %s has the operationId %q, which must be unique", method, path, o.ID)
			}
			ids[o.ID] = true
			if o.Summary == "" || strings.HasSuffix(o.Summary, ".") {
				t.Errorf("%s %s is summarized as %q", method, path, o.Summary)
			}
			for _, p := range o.Parameters {
				check(method+" "+path+" "+p.Name, p.Description)
			}
		}
	}
	for status, r := range d.Components.Responses {
		check(status, r.Description)
	}
	for name, s := range d.Components.Schemas {
		check(name, s.Description)
		for field, p := range s.Properties {
			check(name+"."+field, p.Description)
		}
	}
	if len(d.Paths) < 15 || len(d.Components.Schemas) < 30 {
		t.Errorf("%d paths, %d schemas: too few", len(d.Paths), len(d.Components.Schemas))
	}
	for kind := range described {
		if d.Components.Schemas[componentName(kind)] == nil {
			t.Errorf("%s is described, but isn't in the document", kind)
		}
	}
}

// Every route answers as the document says. TestStream and TestTaskStream cover streams.
func TestAnswersFitTheDocument(t *testing.T) {
	w := newRecording(t)
	w.answer = func(x *events.Control) (*events.Answer, error) {
		return &events.Answer{Task: x.Task, Control: x.RequestID, Accepted: true, Seq: 1, State: events.StateUndoing}, nil
	}
	w.applyOrders(t)
	w.within.indexed = time.Millisecond // nothing indexes the submission
	s, d := w.console(t, nil), readDocument(t)
	id, of := w.some(t, events.StateError).ID, w.some(t, events.StateError).Workflow
	for _, route := range routes {
		if route.streams() {
			continue
		}
		body := ""
		switch route.request {
		case reflect.TypeFor[submitRequest]():
			body = `{"id":"new-1","workflow":"order","input":{}}`
		case reflect.TypeFor[signalRequest]():
			body = `{"data":{"yes":true},"by":"alice"}`
		case reflect.TypeFor[forkRequest]():
			body = fmt.Sprintf(`{"at":1,"definition":"{workflow: %s, version: 9, complete_within: 1h, steps: {a: {wait: 1m}}}"}`, of)
		case reflect.TypeFor[validateRequest](), reflect.TypeFor[dryRunRequest]():
			body = `{"definition":"{workflow: order, version: 9, complete_within: 1h, steps: {a: {wait: 1m}}}"}`
		case reflect.TypeFor[applyRequest]():
			body = `{"definition":"{workflow: order, version: 9, complete_within: 1h, steps: {a: {wait: 1m}}}","reason":"a test"}`
		case reflect.TypeFor[applyScheduleRequest]():
			body = `{"definition":"schedule: nightly\nevery: 1h\nsubmit: {workflow: order}","reason":"a test"}`
		case reflect.TypeFor[applyIntakeRequest]():
			body = `{"definition":"intake: shop\ntopic: shop.orders\nsubmit: {workflow: order, id: '${ value.id }'}","reason":"a test"}`
		case reflect.TypeFor[backfillRequest]():
			body = `{"reason":"a test","from":"2026-11-01T00:00:00Z","to":"2026-11-01T03:00:00Z"}`
		case reflect.TypeFor[redriveRequest]():
			body = `{"reasons":["unknown_workflow"]}`
		case reflect.TypeFor[createBatchRequest]():
			body = fmt.Sprintf(`{"id":%q,"command":"resubmit","filter":"state:held","reason":"a test"}`, id)
		case reflect.TypeFor[commandRequest[consoleapi.ReleaseCommand]]():
			body = `{"reason":"a test","step":"charge","as":"undone"}`
		case reflect.TypeFor[commandRequest[consoleapi.MigrateCommand]]():
			body = `{"reason":"a test","version":2,"dry_run":true}`
		default:
			body = `{"reason":"a test"}`
		}
		r := ask(t, s, route.method, pathOf(&route, id), body)
		if r.status >= http.StatusBadRequest {
			t.Errorf("%s %s: %d %s", route.method, route.path, r.status, r.body)
		}
		d.fits(t, route.method, route.path, r)
	}
}

// pathOf returns a path of a route, for a task or for the workflow order/1. It has the parameters that are required.
func pathOf(r *route, task string) string {
	path := strings.NewReplacer("{id}", url.PathEscape(task), "{name}", "order", "{version}", "1", "{step}", "reserve").Replace(r.path)
	switch r.id {
	case "diffWorkflow":
		path += "?to=2"
	case "getSystemAsOf":
		path += "?at=1h"
	}
	return path
}

// The document has exactly the parameters that a route accepts.
func TestOpenAPIHasTheParameters(t *testing.T) {
	w := newRecording(t)
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
	w := newRecording(t)
	s := w.console(t, nil)
	id, checked := w.some(t, "processed").ID, 0
	d := readDocument(t)
	for route, methods := range d.Paths {
		if methods["get"] == nil {
			continue
		}
		i := slices.IndexFunc(methods["get"].Parameters, func(p openAPIParameter) bool { return p.Name == "min_offset" })
		if i < 0 || strings.HasSuffix(route, "/events") { // TestStream and TestTaskStream cover streams
			continue
		}
		pattern := regexp.MustCompile(methods["get"].Parameters[i].Schema.Pattern)
		path := strings.NewReplacer("{id}", id, "{name}", "order", "{version}", "1", "{step}", "reserve").Replace(route) + "?min_offset="
		for _, text := range []string{consoleapi.LogEnd, "1", "1:1", "0:1,1:2", "", "-1", "1:", "End", "end,0:1", "latest"} {
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
		if !pattern.MatchString(consoleapi.LogEnd) {
			t.Errorf("%s: the pattern %s has no %q", route, pattern, consoleapi.LogEnd)
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
	if status, is := strings.CutPrefix(response.Ref, "#/components/responses/"); is {
		response = d.Components.Responses[status]
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
	if err := d.validate(content.Schema, r.body); err != nil {
		t.Errorf("%s %s: %v\n%s", method, path, err, r.body)
	}
}

// validate returns why a text isn't as a schema of the document says; nil: it is.
func (d *document) validate(s *jsonschema.Schema, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resolved[s] == nil {
		r, err := d.resolve(s)
		if err != nil {
			return err
		}
		d.resolved[s] = r
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	return d.resolved[s].Validate(v)
}

// resolve makes a schema ready for use, with the components that it needs as its definitions.
func (d *document) resolve(s *jsonschema.Schema) (*jsonschema.Resolved, error) {
	of := &jsonschema.Schema{AllOf: []*jsonschema.Schema{s}, Defs: map[string]*jsonschema.Schema{}}
	for {
		text, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		known := len(of.Defs)
		for _, name := range componentRef.FindAllSubmatch(text, -1) {
			of.Defs[string(name[1])] = d.Components.Schemas[string(name[1])]
		}
		if len(of.Defs) > known {
			continue
		}
		of = &jsonschema.Schema{}
		if err := json.Unmarshal(componentRef.ReplaceAll(text, []byte(`"#/$$defs/$1"`)), of); err != nil {
			return nil, err
		}
		return of.Resolve(nil)
	}
}

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/console"
)

// apiDocument is what the reference pages show of the OpenAPI document.
type apiDocument struct {
	Paths      map[string]map[string]apiOperation
	Components struct {
		Responses map[string]struct{ Description string }
		Schemas   map[string]apiSchema
	}
}

type apiOperation struct {
	Summary     string
	Role        string `json:"x-role"`
	Parameters  []struct{ Name, In, Description string }
	RequestBody struct{ Content map[string]apiContent }
	Responses   map[string]struct {
		Description string
		Content     map[string]apiContent
	}
}

type apiContent struct{ Schema apiSchema }

type apiSchema struct {
	Description string
	Ref         string `json:"$ref"`
	Type        any
	Format      string
	Enum        []string
	Items       *apiSchema
	Values      json.RawMessage `json:"additionalProperties"`
	AnyOf       []apiSchema
	Properties  map[string]apiSchema
	Required    []string
}

func readAPI(t *testing.T) (d apiDocument) {
	t.Helper()
	text, err := console.OpenAPI()
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestReferenceHTTP: the tables of http-api.md, and http-api-types.md, are those of the OpenAPI document.
func TestReferenceHTTP(t *testing.T) {
	d := readAPI(t)
	var operations, parameters []string
	statuses := map[string][]string{}
	of := map[string][]string{} // the paths of a parameter, by its name and description
	for path, methods := range d.Paths {
		for method, o := range methods {
			name := fmt.Sprintf("`%s %s`", strings.ToUpper(method), strings.TrimPrefix(path, "/api/v1"))
			answer := ""
			for status, r := range o.Responses {
				for kind, content := range r.Content {
					if answer = "`" + kind + "`"; kind == "application/json" {
						answer = typeName(&content.Schema, "http-api-types.md")
					}
				}
				if r.Description != "" && status != "200" && !slices.Contains(statuses[status], r.Description) {
					statuses[status] = append(statuses[status], r.Description)
				}
			}
			body := "-"
			for _, content := range o.RequestBody.Content {
				body = typeName(&content.Schema, "http-api-types.md")
			}
			var names []string
			for _, p := range o.Parameters {
				if p.In != "path" {
					names = append(names, "`"+p.Name+"`")
				}
				if row := "`" + p.Name + "` | " + fieldText(p.Description); p.In != "path" {
					of[row] = append(of[row], "`"+strings.TrimPrefix(path, "/api/v1")+"`")
				}
			}
			operations = append(operations, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", name, o.Summary, cmp.Or(strings.Join(names, ", "), "-"), body, answer, o.Role))
		}
	}
	for row, paths := range of {
		slices.Sort(paths)
		parameters = append(parameters, fmt.Sprintf("| %s | %s |\n", row, strings.Join(paths, ", ")))
	}
	slices.SortFunc(operations, func(a, b string) int { return strings.Compare(pathOf(a), pathOf(b)) })
	slices.Sort(parameters)
	generatedPart(t, "http-api.md", "operations", "| request | does | parameters | body | answer | role |\n|---|---|---|---|---|---|\n"+strings.Join(operations, ""))
	generatedPart(t, "http-api.md", "parameters", "| parameter | means | of |\n|---|---|---|\n"+strings.Join(parameters, ""))
	for status, r := range d.Components.Responses {
		statuses[status] = []string{r.Description}
	}
	var rows strings.Builder
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(statuses[status])
		fmt.Fprintf(&rows, "| %s %s | %s |\n", status, http.StatusText(code), fieldText(strings.Join(statuses[status], " ")))
	}
	generatedPart(t, "http-api.md", "statuses", "| status | when |\n|---|---|\n"+rows.String())
	reference(t, "http-api-types.md", typesPage(&d))
}

// pathOf sorts operations by path, then method.
func pathOf(row string) string {
	method, path, _ := strings.Cut(strings.TrimPrefix(row, "| `"), " ")
	path, _, _ = strings.Cut(path, "`")
	return path + " " + method
}

func typesPage(d *apiDocument) string {
	var b strings.Builder
	b.WriteString(generatedNote + "# HTTP API: types\n\nThe bodies and answers of the [HTTP API](http-api.md). Fields with a question mark can be absent.\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, fieldText(s.Description))
		if len(s.Enum) > 0 {
			fmt.Fprintf(&b, "\nOne of `%s`.\n", strings.Join(s.Enum, "`, `"))
			continue
		}
		b.WriteString("\n| field | type | means |\n|---|---|---|\n")
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[field]
			mark := "?"
			if slices.Contains(s.Required, field) {
				mark = ""
			}
			fmt.Fprintf(&b, "| `%s%s` | %s | %s |\n", field, mark, typeName(&p, ""), fieldText(p.Description))
		}
	}
	return b.String()
}

// fieldName matches names of fields and topics in a text.
var fieldName = regexp.MustCompile("`[^`]*`|[a-z]+(_[a-z]+)+:?|\\bwaybill\\.[a-z]+")

func fieldText(s string) string {
	return fieldName.ReplaceAllStringFunc(markdownText(s), func(found string) string {
		if strings.HasPrefix(found, "`") || strings.HasSuffix(found, ":") { // a term of a filter
			return found
		}
		return "`" + found + "`"
	})
}

// typeName names a type for people. page has the types.
func typeName(s *apiSchema, page string) string {
	if name, is := strings.CutPrefix(s.Ref, "#/components/schemas/"); is {
		return fmt.Sprintf("[%s](%s#%s)", name, page, strings.ToLower(name))
	}
	if len(s.AnyOf) > 0 {
		return typeName(&s.AnyOf[0], page) + " or null"
	}
	if len(s.Enum) > 0 {
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	}
	if s.Items != nil {
		return "list of " + typeName(s.Items, page)
	}
	var values apiSchema
	if json.Unmarshal(s.Values, &values) == nil && values.Type != nil {
		return "object of " + typeName(&values, page) + "s"
	}
	text := ""
	switch kind := s.Type.(type) {
	case nil:
		return "any JSON"
	case string:
		text = kind
	case []any: // with null
		text = fmt.Sprintf("%v or null", kind[1])
	}
	if s.Format == "date-time" {
		text = strings.Replace(text, "string", "instant", 1)
	}
	return text
}

package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The parts of an OpenAPI 3.1 document that the console's has.
type (
	openAPIDocument struct {
		OpenAPI    string                           `json:"openapi"`
		Info       openAPIInfo                      `json:"info"`
		Security   []map[string][]string            `json:"security"`
		Paths      map[string]map[string]*operation `json:"paths"`
		Components components                       `json:"components"`
	}
	openAPIInfo struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	operation struct {
		ID          string                      `json:"operationId"`
		Summary     string                      `json:"summary"`
		Role        string                      `json:"x-role"`
		Parameters  []openAPIParameter          `json:"parameters,omitempty"`
		RequestBody *requestBody                `json:"requestBody,omitempty"`
		Responses   map[string]*openAPIResponse `json:"responses"`
	}
	openAPIParameter struct {
		Name        string             `json:"name"`
		In          string             `json:"in"`
		Required    bool               `json:"required,omitempty"`
		Description string             `json:"description"`
		Schema      *jsonschema.Schema `json:"schema"`
	}
	requestBody struct {
		Required bool                 `json:"required"`
		Content  map[string]mediaType `json:"content"`
	}
	openAPIResponse struct {
		Ref         string               `json:"$ref,omitempty"`
		Description string               `json:"description,omitempty"`
		Content     map[string]mediaType `json:"content,omitempty"`
	}
	mediaType struct {
		Schema *jsonschema.Schema `json:"schema"`
	}
	components struct {
		SecuritySchemes map[string]securityScheme     `json:"securitySchemes"`
		Responses       map[string]*openAPIResponse   `json:"responses"` // problems, by status
		Schemas         map[string]*jsonschema.Schema `json:"schemas"`
	}
	securityScheme struct {
		Type        string `json:"type"`
		Scheme      string `json:"scheme"`
		Description string `json:"description"`
	}
)

const apiDescription = "Tasks, workflows and partitions of a namespace, computed from its log. Without tokens a console listens on loopback only. " +
	"Unknown query parameters and fields are rejected. Every answer names its system in the headers Waybill-Cluster and Waybill-Namespace. " +
	"If a request has these headers, a console of another system rejects it."

// apiDocument describes routes. It is made of their declarations, and of the types that these name.
var apiDocument = sync.OnceValue(func() *openAPIDocument { return describe(routes) })

// OpenAPI returns the OpenAPI document of the API.
func OpenAPI() ([]byte, error) { return json.Marshal(apiDocument()) }

// describe returns the document of an API.
func describe(routes []route) *openAPIDocument {
	s := newSchemas()
	d := &openAPIDocument{OpenAPI: "3.1.0", Info: openAPIInfo{"Waybill", "1", apiDescription},
		Security: []map[string][]string{{}, {"bearer": {}}}, Paths: map[string]map[string]*operation{}}
	for i := range routes {
		r := &routes[i]
		if d.Paths[r.path] == nil {
			d.Paths[r.path] = map[string]*operation{}
		}
		d.Paths[r.path][strings.ToLower(r.method)] = r.describe(s)
	}
	d.Components = components{
		SecuritySchemes: map[string]securityScheme{"bearer": {"http", "bearer", "The role of a token is viewer (reads), signaller (also sends signals), submitter (also submits), operator (also sends commands and applies definitions) or undo_processed (also undoes processed tasks)."}},
		Responses:       describeProblems(s), Schemas: s.components()}
	return d
}

// allProblems are the statuses of problems that every route can have.
var allProblems = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}

func (r *route) describe(s *schemas) *operation {
	o := &operation{ID: r.id, Summary: r.summary, Role: r.role.String(), Responses: map[string]*openAPIResponse{}}
	for _, p := range parametersOf(r.request) {
		o.Parameters = append(o.Parameters, openAPIParameter{p.name, p.in, p.in == "path", p.text, s.of(p.kind)})
	}
	if body := bodyOf(r.request); body != nil {
		o.RequestBody = &requestBody{true, map[string]mediaType{"application/json": {s.of(body)}}}
	}
	content := map[string]mediaType{}
	switch r.answer {
	case reflect.TypeFor[eventStream]():
		content["text/event-stream"] = mediaType{&jsonschema.Schema{Type: "string"}}
		s.of(reflect.TypeFor[events.Line]())
		s.of(reflect.TypeFor[consoleapi.Unreadable]())
	case reflect.TypeFor[jsonLines]():
		content["application/jsonl"] = mediaType{&jsonschema.Schema{Type: "string"}}
	default:
		content["application/json"] = mediaType{s.of(r.answer)}
	}
	statuses := r.statuses
	if statuses == nil {
		statuses = []answerStatus{{http.StatusOK, http.StatusText(http.StatusOK)}}
	}
	for _, answer := range statuses {
		response := &openAPIResponse{Description: answer.meaning, Content: content}
		if answer.code == http.StatusNoContent {
			response.Content = nil
		}
		o.Responses[strconv.Itoa(answer.code)] = response
	}
	for _, status := range slices.Concat(allProblems, r.problems) {
		o.Responses[strconv.Itoa(status)] = &openAPIResponse{Ref: "#/components/responses/" + strconv.Itoa(status)}
	}
	return o
}

// describeProblems returns the responses with a problem, by status.
func describeProblems(s *schemas) map[string]*openAPIResponse {
	responses := map[string]*openAPIResponse{}
	for _, kind := range problemKinds {
		status := strconv.Itoa(kind.status)
		r := responses[status]
		if r == nil {
			r = &openAPIResponse{Content: map[string]mediaType{"application/problem+json": {s.of(reflect.TypeFor[consoleapi.Problem]())}}}
			responses[status] = r
		} else {
			r.Description += " "
		}
		r.Description += "`" + kind.name + "`: " + kind.when
	}
	return responses
}

// submissionSchema is the schema of a submission, which other systems also write to waybill.tasks.
func submissionSchema() *jsonschema.Schema {
	text, err := fs.ReadFile(events.Schemas(), "waybill.task.submitted.v1.schema.json")
	s := &jsonschema.Schema{}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		panic(fmt.Sprintf("console: the schema of submissions: %v", err)) // it is in the binary
	}
	s.ID, s.Schema, s.Title = "", "", ""
	return s
}

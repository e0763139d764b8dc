package console

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// route is an operation of the API: how it is served, and what the OpenAPI document says of it. Its declaration in
// routes is the only one.
type route struct {
	method, path string
	id           string // the operationId: what generators of clients name the operation by
	role         Role   // required role
	summary      string
	request      reflect.Type // a struct: see request.go
	answer       reflect.Type // of a successful request
	statuses     []answerStatus
	problems     []int // statuses of problems, besides those that all routes have
	serve        func(*call) (any, error)
}

// answerStatus is a status of a successful answer.
type answerStatus struct {
	code    int
	meaning string
}

const api = consoleapi.Prefix

// getRoute declares a route that reads. In has the parameters as fields. Out is the answer: a value that becomes JSON,
// jsonLines, or eventStream.
func getRoute[In, Out any](id, path, summary string, handle func(*call, *In) (Out, error)) route {
	return declare(id, http.MethodGet, path, Viewer, summary, handle)
}

// postRoute declares a route that writes. In also has the body, as its field Body.
func postRoute[In, Out any](id, path string, role Role, summary string, handle func(*call, *In) (Out, error)) route {
	return declare(id, http.MethodPost, path, role, summary, handle).
		fails(http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
}

func declare[In, Out any](id, method, path string, role Role, summary string, handle func(*call, *In) (Out, error)) route {
	r := route{id: id, method: method, path: api + path, role: role, summary: summary, request: reflect.TypeFor[In](), answer: reflect.TypeFor[Out]()}
	if strings.Contains(path, "{id}") || strings.Contains(path, "{version}") {
		r.problems = []int{http.StatusNotFound}
	}
	r.serve = func(c *call) (any, error) {
		in := new(In)
		if err := c.decode(reflect.ValueOf(in).Elem()); err != nil {
			return nil, err
		}
		return handle(c, in)
	}
	return r
}

// succeeds adds a status of successful answers. Without it they have status 200.
func (r route) succeeds(code int, meaning string) route {
	r.statuses = append(r.statuses, answerStatus{code, meaning})
	return r
}

// fails adds statuses of problems.
func (r route) fails(statuses ...int) route {
	r.problems = append(r.problems, statuses...)
	return r
}

// streams reports whether the answer doesn't end by itself.
func (r *route) streams() bool { return r.answer == reflect.TypeFor[eventStream]() }

// Answers that aren't JSON.
type (
	// eventStream is an answer in Server-Sent Events. The handler has sent it.
	eventStream struct{}
	// jsonLines is an answer in JSON Lines.
	jsonLines []byte
)

// handler returns the HTTP handler of a route.
func (c *Console) handler(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := c.authenticate(r)
		if err == nil && who.role < route.role {
			err = c.roleError(who, route.role)
		}
		if err == nil && route.streams() && r.Method == http.MethodHead {
			err = badMethod("%s is a stream without end: use GET", consoleapi.Printable(r.URL.Path))
		}
		if err == nil && r.Method == http.MethodPost {
			err = checkJSON(r)
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if !route.streams() {
			ctx, cancel := context.WithTimeout(r.Context(), c.timeouts.answer)
			defer cancel()
			r = r.WithContext(ctx)
		}
		asked := &call{Console: c, w: w, r: r, who: who, status: http.StatusOK}
		defer asked.releaseSlots()
		answer, err := route.serve(asked)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		c.write(w, asked.status, answer)
	})
}

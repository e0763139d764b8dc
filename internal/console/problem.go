package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// The kinds of problem, by the last part of their type.
var (
	badRequest        = problemOf(http.StatusBadRequest, "bad_request", "Invalid request")
	unauthorized      = problemOf(http.StatusUnauthorized, "unauthorized", "Authentication required")
	forbidden         = problemOf(http.StatusForbidden, "forbidden", "Not permitted")
	notFound          = problemOf(http.StatusNotFound, "not_found", "Not found")
	badMethod         = problemOf(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed")
	refused           = problemOf(http.StatusConflict, "refused", "Refused by the task's state")
	readOnly          = problemOf(http.StatusConflict, "for_reading", "An imported history is read-only")
	tooLarge          = problemOf(http.StatusRequestEntityTooLarge, "too_large", "The body is too large")
	notJSON           = problemOf(http.StatusUnsupportedMediaType, "not_json", "The body must be JSON")
	wrongHost         = problemOf(http.StatusMisdirectedRequest, "misdirected", "Not a host of this console")
	otherSystem       = problemOf(http.StatusMisdirectedRequest, "other_system", "Meant for another system")
	tooMany           = problemOf(http.StatusTooManyRequests, "too_many_failures", "Too many requests with an invalid token")
	unprocessable     = problemOf(http.StatusUnprocessableEntity, "unusable", "Invalid submission or command")
	unreadableProblem = problemOf(http.StatusInternalServerError, "unreadable", "The task's history can't be read")
	internal          = problemOf(http.StatusInternalServerError, "internal", "Internal error")
	unavailable       = problemOf(http.StatusServiceUnavailable, "unavailable", "Unavailable")
	incomplete        = problemOf(http.StatusServiceUnavailable, "incomplete", "The answer would be incomplete")
	noAnswer          = problemOf(http.StatusGatewayTimeout, "no_answer", "No scheduler answered")
)

// problemTypes is the prefix of the types.
const problemTypes = "urn:waybill:problem:"

// problemOf defines a kind of problem. It returns a constructor that takes the detail.
func problemOf(status int, name, title string) func(format string, args ...any) *Problem {
	return func(format string, args ...any) *Problem {
		return &Problem{Type: problemTypes + name, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}
	}
}

// writeProblem answers a request with a problem.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	said := *p
	said.Instance = r.URL.EscapedPath()
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int(failuresWithin.Seconds())))
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="waybill"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(said) // the client may have disconnected
}

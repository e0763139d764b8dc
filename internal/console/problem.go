package console

import (
	"encoding/json"
	"fmt"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"net/http"
	"strconv"
)

// The kinds of problem, by the last part of their type. The last text says when they occur.
var (
	badRequest        = problemOf(http.StatusBadRequest, "bad_request", "Invalid request", "A parameter or the body can't be understood.")
	unauthorized      = problemOf(http.StatusUnauthorized, "unauthorized", "Authentication required", "The request has no token, or an invalid one.")
	forbidden         = problemOf(http.StatusForbidden, "forbidden", "Not permitted", "The token's role or the console's settings don't permit the request, or a web page of another origin sent it.")
	notFound          = problemOf(http.StatusNotFound, "not_found", "Not found", "There is no such task, event or workflow.")
	badMethod         = problemOf(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed", "The path doesn't accept this method.")
	refused           = problemOf(http.StatusConflict, "refused", "Refused", "The state of the task, batch or schedule doesn't allow it, or another one has this id.")
	versionExists     = problemOf(http.StatusConflict, "version_exists", "The version exists with another body", "The version of the workflow exists with another body. The detail says which version is free.")
	tooLarge          = problemOf(http.StatusRequestEntityTooLarge, "too_large", "The body is too large", "The body is too large.")
	notJSON           = problemOf(http.StatusUnsupportedMediaType, "not_json", "The body must be JSON", "The request has another Content-Type than application/json.")
	wrongHost         = problemOf(http.StatusMisdirectedRequest, "misdirected", "Not a host of this console", "The request names a host that this console doesn't serve, or comes through a proxy that it doesn't expect.")
	otherSystem       = problemOf(http.StatusMisdirectedRequest, "other_system", "Meant for another system", "The request is meant for another cluster or namespace.")
	tooMany           = problemOf(http.StatusTooManyRequests, "too_many_failures", "Too many requests with an invalid token", "The address sent too many invalid tokens.")
	unprocessable     = problemOf(http.StatusUnprocessableEntity, "unusable", "Invalid submission or command", "The body is valid JSON, but not a valid submission or command.")
	tooMuch           = problemOf(http.StatusUnprocessableEntity, "too_much", "More than a console computes", "The answer needs more than a console computes at once: the detail says what to do instead.")
	unreadableProblem = problemOf(http.StatusInternalServerError, "unreadable", "The task's history can't be read", "An event of the task can't be read.")
	internal          = problemOf(http.StatusInternalServerError, "internal", "Internal error", "The console failed.")
	unavailable       = problemOf(http.StatusServiceUnavailable, "unavailable", "Unavailable", "Brokers don't answer, a limit of the console is reached, or the answer takes too long. Try again.")
	incomplete        = problemOf(http.StatusServiceUnavailable, "incomplete", "The answer would be incomplete", "The console hasn't read far enough: the member incomplete says why. Try again.")
	noAnswer          = problemOf(http.StatusGatewayTimeout, "no_answer", "No scheduler answered", "No scheduler answered in time. The command stays in the log.")
)

// problemKind describes a kind of problem.
type problemKind struct {
	status     int
	name, when string
}

// problemKinds are all kinds, in the order of their status.
var problemKinds []problemKind

// problemOf defines a kind of problem. It returns a constructor that takes the detail.
func problemOf(status int, name, title, when string) func(format string, args ...any) *consoleapi.Problem {
	problemKinds = append(problemKinds, problemKind{status, name, when})
	return func(format string, args ...any) *consoleapi.Problem {
		return &consoleapi.Problem{Type: consoleapi.ProblemTypes + name, Title: title, Status: status, Detail: consoleapi.Visible(fmt.Sprintf(format, args...))}
	}
}

// writeProblem answers a request with a problem.
func writeProblem(w http.ResponseWriter, r *http.Request, p *consoleapi.Problem) {
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

package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Problem is an error according to RFC 9457.
type Problem struct {
	Type       string       `json:"type" jsonschema:"The kind of problem, such as urn:waybill:problem:not_found."`
	Title      string       `json:"title" jsonschema:"The kind of problem, for people."`
	Status     int          `json:"status" jsonschema:"The HTTP status."`
	Detail     string       `json:"detail" jsonschema:"What is wrong, and what to do."`
	Instance   string       `json:"instance,omitempty" jsonschema:"The path of the request."`
	Incomplete []Incomplete `json:"incomplete,omitempty" jsonschema:"What the answer would lack, if the type is urn:waybill:problem:incomplete."`

	retryAfter int // seconds; 0: none
	challenge  bool
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// noTaskAdvice is added for HTTP clients if a task doesn't exist.
const noTaskAdvice = "; " + api + "/tasks lists those that are, " + api + "/deadletters what was refused"

// NoTask reports whether the problem is that the task doesn't exist. what is the detail without noTaskAdvice,
// since tools give their own.
func (p *Problem) NoTask() (what string, is bool) { return strings.CutSuffix(p.Detail, noTaskAdvice) }

// The kinds of problem, by the last part of their type. The last text says when they occur.
var (
	badRequest        = problemOf(http.StatusBadRequest, "bad_request", "Invalid request", "A parameter or the body can't be understood.")
	unauthorized      = problemOf(http.StatusUnauthorized, "unauthorized", "Authentication required", "The request has no token, or an invalid one.")
	forbidden         = problemOf(http.StatusForbidden, "forbidden", "Not permitted", "The token's role or the console's settings don't permit the request, or a web page of another origin sent it.")
	notFound          = problemOf(http.StatusNotFound, "not_found", "Not found", "There is no such task.")
	badMethod         = problemOf(http.StatusMethodNotAllowed, "method_not_allowed", "Method not allowed", "The path doesn't accept this method.")
	refused           = problemOf(http.StatusConflict, "refused", "Refused by the task's state", "The task's state doesn't allow the command, or another submission has this id.")
	readOnly          = problemOf(http.StatusConflict, "for_reading", "An imported history is read-only", "The namespace was imported, and is read-only.")
	tooLarge          = problemOf(http.StatusRequestEntityTooLarge, "too_large", "The body is too large", "The body is too large.")
	notJSON           = problemOf(http.StatusUnsupportedMediaType, "not_json", "The body must be JSON", "The request has another Content-Type than application/json.")
	wrongHost         = problemOf(http.StatusMisdirectedRequest, "misdirected", "Not a host of this console", "The request names a host that this console doesn't serve, or comes through a proxy that it doesn't expect.")
	otherSystem       = problemOf(http.StatusMisdirectedRequest, "other_system", "Meant for another system", "The request is meant for another cluster or namespace.")
	tooMany           = problemOf(http.StatusTooManyRequests, "too_many_failures", "Too many requests with an invalid token", "The address sent too many invalid tokens.")
	unprocessable     = problemOf(http.StatusUnprocessableEntity, "unusable", "Invalid submission or command", "The body is valid JSON, but not a valid submission or command.")
	unreadableProblem = problemOf(http.StatusInternalServerError, "unreadable", "The task's history can't be read", "An event of the task can't be read.")
	internal          = problemOf(http.StatusInternalServerError, "internal", "Internal error", "The console failed.")
	unavailable       = problemOf(http.StatusServiceUnavailable, "unavailable", "Unavailable", "Brokers don't answer, a limit of the console is reached, or the answer takes too long. Try again.")
	incomplete        = problemOf(http.StatusServiceUnavailable, "incomplete", "The answer would be incomplete", "The console hasn't read far enough: the member incomplete says why. Try again.")
	noAnswer          = problemOf(http.StatusGatewayTimeout, "no_answer", "No scheduler answered", "No scheduler answered in time. The command stays in the log.")
)

// problemTypes is the prefix of the types.
const problemTypes = "urn:waybill:problem:"

// problemKind describes a kind of problem.
type problemKind struct {
	status     int
	name, when string
}

// problemKinds are all kinds, in the order of their status.
var problemKinds []problemKind

// problemOf defines a kind of problem. It returns a constructor that takes the detail.
func problemOf(status int, name, title, when string) func(format string, args ...any) *Problem {
	problemKinds = append(problemKinds, problemKind{status, name, when})
	return func(format string, args ...any) *Problem {
		p := &Problem{Type: problemTypes + name, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}
		if status == http.StatusServiceUnavailable {
			p.retryAfter = 1
		}
		if status == http.StatusTooManyRequests {
			p.retryAfter = int(failuresWithin.Seconds())
		}
		p.challenge = status == http.StatusUnauthorized
		return p
	}
}

func (p *Problem) write(w http.ResponseWriter, r *http.Request) {
	said := *p
	said.Instance = r.URL.EscapedPath()
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.retryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(p.retryAfter))
	}
	if p.challenge {
		h.Set("WWW-Authenticate", `Bearer realm="waybill"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(said) // the client may have disconnected
}

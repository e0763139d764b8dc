package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Problem is an error according to RFC 9457.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance,omitempty"`
	// Incomplete is what the answer would lack, if that is the problem.
	Incomplete []Incomplete `json:"incomplete,omitempty"`
	// Waiting is the submission of a task that isn't there yet.
	Waiting *Waiting `json:"waiting,omitempty"`

	retryAfter int // seconds; 0: none
	challenge  bool
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// noTaskAdvice is added for HTTP clients if a task doesn't exist.
const noTaskAdvice = "; " + api + "/tasks lists those that are, " + api + "/deadletters what was refused"

// NoTask reports whether the problem is that the task doesn't exist. what is the detail without noTaskAdvice,
// since tools give their own.
func (p *Problem) NoTask() (what string, is bool) { return strings.CutSuffix(p.Detail, noTaskAdvice) }

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

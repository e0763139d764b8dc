package consoleapi

import "strings"

// Problem is an error according to RFC 9457. A Client returns it as an error.
type Problem struct {
	Type       string       `json:"type" jsonschema:"The kind of problem, such as urn:waybill:problem:not_found."`
	Title      string       `json:"title" jsonschema:"The kind of problem, for people."`
	Status     int          `json:"status" jsonschema:"The HTTP status."`
	Detail     string       `json:"detail" jsonschema:"What is wrong, and what to do."`
	Instance   string       `json:"instance,omitempty" jsonschema:"The path of the request."`
	Incomplete []Incomplete `json:"incomplete,omitempty" jsonschema:"What the answer would lack, if the type is urn:waybill:problem:incomplete."`
	Waiting    bool         `json:"waiting,omitempty" jsonschema:"The task doesn't exist yet, because no scheduler has consumed its submission."`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// ProblemTypes is the prefix of the types of problems.
const ProblemTypes = "urn:waybill:problem:"

// UnreadableProblem is the type of a problem with a task that has no event that can be used.
const UnreadableProblem = ProblemTypes + "unreadable"

// NoTaskAdvice ends the detail of a problem for HTTP clients if a task doesn't exist.
const NoTaskAdvice = "; " + Prefix + "/tasks lists those that are, " + Prefix + "/deadletters what was refused"

// NoTask reports whether the problem is that the task doesn't exist. what is the detail without NoTaskAdvice,
// since tools give their own.
func (p *Problem) NoTask() (what string, is bool) { return strings.CutSuffix(p.Detail, NoTaskAdvice) }

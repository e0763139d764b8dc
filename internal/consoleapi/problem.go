package consoleapi

import "strings"

// Problem is an error according to RFC 9457. A Client returns it as an error.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance,omitempty"`
	// Incomplete is what the answer would lack, if that is the problem.
	Incomplete []Incomplete `json:"incomplete,omitempty"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// NoTaskAdvice ends the detail of a problem for HTTP clients if a task doesn't exist.
const NoTaskAdvice = "; " + Prefix + "/tasks lists those that are, " + Prefix + "/deadletters what was refused"

// NoTask reports whether the problem is that the task doesn't exist. what is the detail without NoTaskAdvice,
// since tools give their own.
func (p *Problem) NoTask() (what string, is bool) { return strings.CutSuffix(p.Detail, NoTaskAdvice) }

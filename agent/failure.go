package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// The codes of errors that this package makes. Handlers choose their own.
const (
	CodeFailed      = "failed"       // an error that says no more
	CodePanic       = "panic"        // the handler panicked
	CodeBadInput    = "bad_input"    // the input isn't what the operation takes
	CodeBadOutput   = "bad_output"   // the output isn't JSON
	CodeCircuitOpen = "circuit_open" // the downstream was not called: it is known to be failing
)

// The bounds of an error object, in bytes. What is longer is cut.
const (
	codeBytesMax    = 128
	messageBytesMax = 4 << 10
	detailsBytesMax = 16 << 10
)

// Failure is an error that says what Waybill may do about it. Handlers
// usually make it by Rejected, Transient, RetryAfter and NoEffect; other errors
// may wrap one (%w).
type Failure struct {
	Code     string
	Message  string          // empty: that of Err
	Details  json.RawMessage // one JSON value, or empty
	Rejected bool            // must not be tried again; the call changed nothing
	NoEffect bool            // the call changed nothing; else that is unknown
	// Transient: try again within complete-by, no sooner than After. It is
	// replied as failed once the tries or the time are used up, and the next attempt comes no sooner than After.
	Transient bool
	After     time.Duration
	// Neutral: says nothing of the downstream's health; its circuit doesn't
	// count it.
	Neutral bool
	Err     error // what led to it, or nil
}

// Error is the message.
func (f *Failure) Error() string {
	switch {
	case f.Message != "":
		return f.Message
	case f.Err != nil:
		return f.Err.Error()
	}
	return f.Code
}

// Unwrap returns what led to the failure.
func (f *Failure) Unwrap() error { return f.Err }

// Rejected is the error of a request that must not be tried again, and that
// changed nothing and never will: should it come again, it must be rejected again.
// The step is in error by it.
func Rejected(code, message string) error {
	return &Failure{Code: code, Message: message, Rejected: true}
}

// NoEffect says that the call which failed by err changed nothing, so that
// there is nothing to undo. Should the same request, by its ID, come again, it
// must change nothing either. NoEffect(nil) is nil.
func NoEffect(err error) error {
	return annotate(err, func(f *Failure) { f.NoEffect = true })
}

// Transient says that err is worth another try within complete-by, after a
// backoff. Transient(nil) is nil.
func Transient(err error) error {
	return annotate(err, func(f *Failure) { f.Transient = true })
}

// RetryAfter is Transient, no sooner than after d, also if that is past complete-by: the next attempt at the step waits
// so long. With NoEffect the attempt then doesn't count as one of max_attempts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	return annotate(err, func(f *Failure) { f.Transient, f.After = true, d })
}

func annotate(err error, change func(*Failure)) error {
	if err == nil {
		return nil
	}
	f := failureOf(err)
	change(f)
	return f
}

// failureOf is what is known of an error: a copy of the Failure that it is or
// wraps, under its own text, or a plain failure.
func failureOf(err error) *Failure {
	f := &Failure{Code: CodeFailed}
	var inner *Failure
	if errors.As(err, &inner) {
		*f = *inner
	}
	f.Message, f.Err = err.Error(), err
	if f.Code == "" {
		f.Code = CodeFailed
	}
	return f
}

// body is the error object of a reply, within its bounds. Details that would
// take it past them are left out: a reply that can't be read tells nothing.
func (f *Failure) errorObject() json.RawMessage {
	e := events.Error{Code: truncate(f.Code, codeBytesMax), Message: truncate(f.Error(), messageBytesMax)}
	if len(f.Details) <= detailsBytesMax && events.ValidJSON(f.Details) {
		e.Details = f.Details
		if b := encode(&e); events.ValidJSON(b) {
			return b
		}
		e.Details = nil // the object around them is one level too many
	}
	return encode(&e)
}

func encode(e *events.Error) json.RawMessage {
	b, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("agent: encode error object of %q: %v", e.Code, err)) // ValidJSON is stricter than Marshal
	}
	return b
}

// cut shortens s to at most n bytes of UTF-8.
func truncate(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// result is how one call of the handler ended: output, or fail.
type result struct {
	output json.RawMessage
	fail   *Failure
}

// resultOf makes the result of what a handler returned. Output that can't be
// replied is a failure whose effect is unknown: the work was done.
func resultOf(output any, err error) result {
	if err != nil {
		return result{fail: failureOf(err)}
	}
	b, err := encodeOutput(output)
	switch {
	case err != nil:
		return result{fail: &Failure{Code: CodeBadOutput, Message: "output: " + err.Error(), Neutral: true}}
	case len(b) > events.MaxReplyBytes:
		return result{fail: &Failure{Code: events.CodeTooLarge, Neutral: true,
			Message: fmt.Sprintf("output: %d bytes; a reply takes at most %d", len(b), events.MaxReplyBytes)}}
	}
	if err := events.CheckJSON(b); err != nil {
		return result{fail: &Failure{Code: CodeBadOutput, Message: "output: " + err.Error(), Neutral: true}}
	}
	return result{output: b}
}

// encodeOutput is json.Marshal. JSON in which that would change nothing is copied.
func encodeOutput(output any) ([]byte, error) {
	raw, ok := output.(json.RawMessage)
	if ok && !bytes.ContainsAny(raw, " \t\r\n<>&") && bytes.IndexByte(raw, lineSeparator[0]) < 0 && events.ValidJSON(raw) {
		return bytes.Clone(raw), nil
	}
	return json.Marshal(output)
}

// lineSeparator is escaped by json.Marshal, and so is the paragraph separator after it.
const lineSeparator = "\u2028"

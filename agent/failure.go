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

// The error codes of this package. Handlers choose their own.
const (
	CodeFailed      = "failed"       // any error without a code
	CodePanic       = "panic"        // the handler panicked
	CodeBadInput    = "bad_input"    // the input, or the value of the request, can't be decoded
	CodeBadOutput   = "bad_output"   // the output isn't JSON
	CodePending     = "pending"      // the work went on (Pending) when the attempt had to be answered
	CodeCircuitOpen = "circuit_open" // the downstream was not called, because it has been failing
)

// The bounds of the parts of an error object, in bytes before they are encoded. Longer ones are cut. The whole object is
// bounded by events.MaxErrorBytes, encoded: see errorObject.
const (
	codeBytesMax    = 128
	messageBytesMax = 4 << 10
)

// Failure is an error that says how Waybill handles it. Handlers usually get one from Rejected, Transient,
// RetryAfter or NoEffect. Other errors may wrap one (%w).
type Failure struct {
	Code     string
	Message  string          // empty: that of Err
	Details  json.RawMessage // one JSON value, or empty
	Rejected bool            // must not be tried again; the call had no effect
	NoEffect bool            // the call had no effect; false: that is unknown
	// Transient: try again before complete-by, after After at least. Once the tries or the time are used
	// up it is replied as failed, and the next attempt starts after After at least.
	Transient bool
	After     time.Duration
	// Neutral: says nothing about the downstream's health, so its circuit doesn't count it.
	Neutral bool
	Err     error // the cause, or nil
}

// Error returns the message, or that of Err, or the code.
func (f *Failure) Error() string {
	switch {
	case f == nil:
		return CodeFailed
	case f.Message != "":
		return f.Message
	case f.Err != nil:
		return f.Err.Error()
	}
	return f.Code
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error {
	if f == nil { // Go passes a nil *Failure as an error
		return nil
	}
	return f.Err
}

// Rejected returns the error of a request that must not be tried again and had no effect. If the request
// is delivered again, it must be rejected again. The step ends in error.
func Rejected(code, message string) error {
	return &Failure{Code: code, Message: message, Rejected: true}
}

// NoEffect says that the failed call had no effect, so that there is nothing to undo. If the same request
// is delivered again, by its ID, it must have no effect either. NoEffect(nil) is nil.
func NoEffect(err error) error {
	return annotate(err, func(f *Failure) { f.NoEffect = true })
}

// Transient says that the call may be tried again before complete-by, after a backoff. Transient(nil) is
// nil.
func Transient(err error) error {
	return annotate(err, func(f *Failure) { f.Transient = true })
}

// RetryAfter is Transient with a minimum wait of d. If d passes complete-by, the next attempt at the step waits until
// then; with NoEffect, this attempt then doesn't count towards max_attempts. RetryAfter(nil, d) is nil.
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

// failureOf returns a copy of the Failure that err is or wraps, with err's text, or a new Failure.
func failureOf(err error) *Failure {
	f := &Failure{Code: CodeFailed}
	var inner *Failure
	if errors.As(err, &inner) && inner == nil {
		f.Message = "the handler returned a nil *Failure, which is an error without a value"
		return f
	}
	if inner != nil {
		*f = *inner
	}
	f.Message, f.Err = err.Error(), err
	if f.Code == "" {
		f.Code = CodeFailed
	}
	return f
}

// errorObject encodes the error object of a reply within events.MaxErrorBytes. If it is larger, the details are left
// out. If that isn't enough, the message is shortened: escapes can make it six times as long. The code is kept, because
// workflows catch and retry by it. Details that a scheduler could not decode are left out, too.
func (f *Failure) errorObject() json.RawMessage {
	e := events.Error{Code: truncate(f.Code, codeBytesMax), Message: truncate(f.Error(), messageBytesMax)}
	if len(f.Details) <= events.MaxErrorBytes && events.ValidJSON(f.Details) {
		e.Details = f.Details
		if b := encode(&e); len(b) <= events.MaxErrorBytes && events.ValidJSON(b) { // the object nests them one level deeper
			return b
		}
		e.Details = nil
	}
	b := encode(&e)
	for len(b) > events.MaxErrorBytes {
		e.Message = truncate(e.Message, len(e.Message)/2)
		b = encode(&e)
	}
	return b
}

func encode(e *events.Error) json.RawMessage {
	b, err := events.EncodeJSON(e)
	if err != nil {
		panic(fmt.Sprintf("agent: encode error object of %q: %v", e.Code, err)) // ValidJSON is stricter than Marshal
	}
	return b
}

// truncate shortens s to at most n bytes of UTF-8.
func truncate(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// result is that of one call of the handler: output, or fail or pending if not nil.
type result struct {
	output  json.RawMessage
	fail    *Failure
	pending *PendingError
}

// resultOf converts what a handler returned for a run of kind k. An output that can't be replied is a failure with unknown
// effect, because the work was done.
func resultOf(k events.Kind, output any, err error) result {
	if err != nil {
		p, is := errors.AsType[*PendingError](err)
		if !is {
			return result{fail: failureOf(err)}
		}
		if p == nil {
			return result{fail: &Failure{Code: CodeFailed, Message: "the handler returned a nil *PendingError, which is an error without a value"}}
		}
		return result{pending: pendingOf(p.Value, p.After)}
	}
	b, err := encodeOutput(output)
	switch {
	case err != nil:
		return result{fail: &Failure{Code: CodeBadOutput, Message: "output: " + err.Error(), Neutral: true}}
	case len(b) > events.MaxReplyBytes:
		return result{fail: &Failure{Code: events.CodeTooLarge, Neutral: true,
			Message: fmt.Sprintf("output: %d bytes; a reply takes at most %d", len(b), events.MaxReplyBytes)}}
	}
	if err := events.CheckReplyJSON(k, b); err != nil {
		return result{fail: &Failure{Code: CodeBadOutput, Message: "output: " + err.Error(), Neutral: true}}
	}
	return result{output: b}
}

// encodeOutput is events.EncodeJSON. It copies raw JSON that EncodeJSON would not change.
func encodeOutput(output any) (json.RawMessage, error) {
	if raw, ok := output.(json.RawMessage); ok && !bytes.ContainsAny(raw, " \t\r\n") && events.ValidJSON(raw) {
		return bytes.Clone(raw), nil
	}
	return events.EncodeJSON(output)
}

package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// retryAfterMax bounds Retry-After. No attempt lasts that long.
const retryAfterMax = 365 * 24 * time.Hour

// response is the response of a service.
type response struct {
	status  int
	header  http.Header
	body    []byte // at most one byte more than the limit
	readErr error  // the body ended too early
	now     time.Time
}

// interpret converts a response into an output or a Failure. It is pure.
func (a *Agent) interpret(r agent.Request, w response) (any, error) {
	tooLarge := int64(len(w.body)) > a.cfg.MaxResponseBytes
	if w.status == http.StatusAccepted {
		return nil, a.stillWorking(r, w)
	}
	if w.status >= 200 && w.status < 300 {
		switch {
		case tooLarge: // another call would get the same response
			return nil, &agent.Failure{Code: CodeResponseTooLarge, Neutral: true,
				Message: fmt.Sprintf("%s answered %d with more than %d bytes", r.Operation, w.status, a.cfg.MaxResponseBytes)}
		case w.readErr != nil:
			return nil, &agent.Failure{Code: CodeNoAnswer, Transient: true,
				Err: fmt.Errorf("%s answered %d, and the body ended too early: %w", r.Operation, w.status, w.readErr)}
		}
		return outputOf(r, w)
	}
	if tooLarge || w.readErr != nil {
		w.body = nil // the status is enough
	}
	f := &agent.Failure{
		Code:    "http_" + strconv.Itoa(w.status),
		Message: fmt.Sprintf("%s answered %d %s", r.Operation, w.status, http.StatusText(w.status)),
	}
	addErrorBody(f, w)
	switch {
	case w.status == http.StatusTooEarly || w.status == http.StatusTooManyRequests:
		f.Transient, f.NoEffect = true, true
		f.Neutral = w.status == http.StatusTooEarly
	case w.status == http.StatusRequestTimeout || w.status == http.StatusConflict:
		f.Transient, f.Neutral = true, true // about this request, not the service's health
	case w.status >= 500:
		f.Transient = true
	case w.status >= 400:
		f.Rejected = true
	case w.status >= 300:
		// Redirects aren't followed. A 303 often means that the work is done. So the effect is unknown, and the service
		// isn't called again.
		f.Neutral = true
	default: // 1xx as a final answer
		f.Message = fmt.Sprintf("%s answered %d, which is not a final status", r.Operation, w.status)
	}
	if f.Transient {
		f.After, _ = retryAfter(w.header, w.now)
	}
	return nil, f
}

// outputOf converts the body of a 2xx. The work is done, so a body that can't be decoded is a failure with unknown
// effect. Another call would get the same response, and an undo must reach the service.
func outputOf(r agent.Request, w response) (any, error) {
	b, err := decode(w.header, w.body)
	if err == nil {
		err = b.outputError()
	}
	if err != nil {
		return nil, &agent.Failure{Code: CodeBadResponse, Neutral: true, Message: fmt.Sprintf("%s answered %d with a body that can't be read: %v", r.Operation, w.status, err)}
	}
	text := bytes.TrimSpace(b.text)
	switch {
	case len(text) == 0:
		return nil, nil
	case json.Valid(text): // JSON that is ambiguous or too deep is rejected by package agent, with its reason
		return json.RawMessage(text), nil
	}
	return map[string]string{"body": string(text)}, nil
}

// addErrorBody adds the body of an error to its Failure. The whole body becomes the details. If it is an object, its
// code replaces that of the Failure, and its message is appended to the Failure's.
func addErrorBody(f *agent.Failure, w response) {
	b, err := decode(w.header, w.body)
	if err != nil {
		f.Message += " with a body that can't be read: " + err.Error()
		return
	}
	body := bytes.TrimSpace(b.text)
	if len(body) == 0 {
		return
	}
	if !events.ValidJSON(body) {
		f.Details, _ = events.EncodeJSON(string(body)) // a string always encodes
		return
	}
	f.Details = body
	var e struct{ Code, Message any }
	if json.Unmarshal(body, &e) != nil {
		return // JSON, but not an object
	}
	if code, ok := e.Code.(string); ok && code != "" {
		f.Code = code
	}
	if message, ok := e.Message.(string); ok && message != "" {
		f.Message += ": " + message
	}
}

// retryAfter decodes Retry-After (RFC 9110, section 10.2.3): seconds, or a date. A date is relative to the response's
// Date, so that the service's clock counts. Without a Date it is relative to now. False: there is none, or it is
// malformed; the backoff, or pollEvery, decides then.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(retryAfterMax/time.Second) {
			return retryAfterMax, true
		}
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), retryAfterMax), true
}

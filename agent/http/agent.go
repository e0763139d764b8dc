package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// Agent is a handler that calls a URL. Safe for concurrent use.
type Agent struct {
	cfg     Config
	host    string
	headers *headerFile
	client  *http.Client
}

var (
	_ agent.Handler      = (*Agent)(nil)
	_ agent.Downstreamer = (*Agent)(nil)
)

// The codes of errors that this agent makes. One that the service answered is
// "http_<status>", unless its body names another.
const (
	CodeUnreachable      = "unreachable"        // no connection: nothing was sent
	CodeNoAnswer         = "no_answer"          // the connection failed, or time ran out
	CodeResponseTooLarge = "response_too_large" // the answer passed its bound
	CodeBadResponse      = "bad_response"       // the work is done, and the answer can't be read
	CodeHeaderFile       = "header_file"        // the header file can't be used now
	CodeBadOperation     = "bad_operation"      // no path segment can hold it
)

// Downstream is the operation at the host: a service that fails at one may be well at the others.
func (a *Agent) Downstream(r agent.Request) string { return a.host + "/" + r.Operation }

// Handle posts the request and says what the answer means.
func (a *Agent) Handle(ctx context.Context, r agent.Request) (any, error) {
	if a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.cfg.Timeout)
		defer cancel()
	}
	// Without a connection nothing has happened. A connection says the
	// opposite, however the call ends.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := a.request(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, a.callFailed(err, connected.Load())
	}
	body, err := readBody(ctx, resp, a.cfg.MaxResponseBytes+1)
	return a.interpret(r, response{
		status: resp.StatusCode, header: resp.Header, body: body, readErr: err, now: time.Now(),
	})
}

// readBody reads at most so many bytes of an answer's body, and no longer than ctx lasts. The body of a 1xx is the
// connection itself, for as long as the service keeps it (101, Switching Protocols): none of it is read.
func readBody(ctx context.Context, resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK {
		return nil, nil
	}
	// net/http ends the bodies that it makes itself with the context; this ends any other.
	stop := context.AfterFunc(ctx, func() { resp.Body.Close() })
	defer stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return body, err
}

// request makes the call. Its error is a Failure without effect.
func (a *Agent) request(ctx context.Context, r agent.Request) (*http.Request, error) {
	target, err := expand(a.cfg.URL, r.Operation)
	if err != nil {
		return nil, agent.Rejected(CodeBadOperation, err.Error())
	}
	extra, err := a.headers.read()
	if err != nil {
		return nil, &agent.Failure{Code: CodeHeaderFile, NoEffect: true, Transient: true, Neutral: true, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(r.Input))
	if err != nil {
		return nil, agent.Rejected(CodeBadOperation, "operation "+strconv.Quote(r.Operation)+" makes no URL")
	}
	// net/http sends a request with an Idempotency-Key again by itself when it
	// can rewind the body: a second connection that is refused would then hide
	// what the first one may have done.
	req.GetBody = nil
	for name, values := range extra {
		req.Header[name] = values
	}
	set := func(name, value string) { req.Header.Set(name, fieldValue(value)) }
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "waybill")
	}
	set("Idempotency-Key", r.IdempotencyKey)
	set("X-Waybill-Request", r.ID)
	set("X-Waybill-Operation", r.Operation)
	set("X-Waybill-Complete-By", r.CompleteBy.UTC().Format(events.TimeLayout))
	if end, ok := ctx.Deadline(); ok {
		set("X-Waybill-Timeout-Ms", strconv.FormatInt(max(time.Until(end).Milliseconds(), 0), 10))
	}
	if r.Traceparent != "" {
		set("traceparent", r.Traceparent)
	}
	return req, nil
}

// expand puts an operation into a URL, within its path segment.
func expand(template, operation string) (string, error) {
	target := strings.ReplaceAll(template, operationPlaceholder, url.PathEscape(operation))
	u, err := url.Parse(target)
	if err != nil {
		return "", fmt.Errorf("operation %q makes no URL", operation)
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		// Servers and proxies resolve these, also where they are escaped.
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", fmt.Errorf("operation %q would leave its place in the URL", operation)
		}
	}
	return target, nil
}

// unanswered says what it means that no answer came.
func (a *Agent) callFailed(err error, connected bool) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the URL, which may hold secrets, stays out of the log
	}
	f := &agent.Failure{Code: CodeNoAnswer, Transient: true, Err: fmt.Errorf("POST to %s: %w", a.host, err)}
	if !connected {
		f.Code, f.NoEffect = CodeUnreachable, true
	}
	return f
}

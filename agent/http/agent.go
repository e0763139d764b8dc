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

// Agent is an agent.Handler that calls a URL. It is safe for concurrent use.
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

// The error codes of this agent. An error that the service returned has the code "http_<status>", unless its body has a
// code.
const (
	CodeUnreachable      = "unreachable"        // no connection: the request was not sent
	CodeNoAnswer         = "no_answer"          // the connection broke, or the call timed out
	CodeResponseTooLarge = "response_too_large" // more than Config.MaxResponseBytes
	CodeBadResponse      = "bad_response"       // a 2xx with a body that can't be decoded: the work is done
	CodeHeaderFile       = "header_file"        // the header file can't be read or is invalid
	CodeBadOperation     = "bad_operation"      // the operation can't be a path segment
)

// Downstream returns the host and the operation. A service may fail for one operation and work for others.
func (a *Agent) Downstream(r agent.Request) string { return a.host + "/" + r.Operation }

// Handle posts the request and converts the response by the package's table.
func (a *Agent) Handle(ctx context.Context, r agent.Request) (any, error) {
	if a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.cfg.Timeout)
		defer cancel()
	}
	// A call without a connection had no effect. A call with a connection may have had one, whatever its result.
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

// readBody reads at most maxBytes of a body, until ctx is done. It doesn't read the body of a 1xx. That is the
// connection itself, for as long as the service keeps it open (101, Switching Protocols).
func readBody(ctx context.Context, resp *http.Response, maxBytes int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK {
		return nil, nil
	}
	// net/http ends reads of its own bodies when the context is done, but not of others.
	stop := context.AfterFunc(ctx, func() { resp.Body.Close() })
	defer stop()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes))
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return body, err
}

// request builds the HTTP request. Its error is a Failure without effect.
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
		return nil, agent.Rejected(CodeBadOperation, "operation "+strconv.Quote(r.Operation)+" can't be put into the URL")
	}
	// Without GetBody, net/http can't repeat the request on its own, as it does if there is an Idempotency-Key. If the
	// second connection were refused, that would hide a possible effect of the first.
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
	if r.Heartbeat > 0 {
		set("X-Waybill-Heartbeat-Ms", strconv.FormatInt(r.Heartbeat.Milliseconds(), 10))
	}
	if v := fieldValue(string(r.Progress)); v != "" && len(v) <= progressHeaderMax {
		req.Header.Set("X-Waybill-Progress", v)
	}
	return req, nil
}

// expand replaces the placeholder of a URL template by an operation. The operation stays within one path segment.
func expand(template, operation string) (string, error) {
	target := strings.ReplaceAll(template, operationPlaceholder, url.PathEscape(operation))
	u, err := url.Parse(target)
	if err != nil {
		return "", fmt.Errorf("operation %q can't be put into the URL", operation)
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		// Servers and proxies resolve "." and "..", even if they are escaped.
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", fmt.Errorf("operation %q would change the URL's path", operation)
		}
	}
	return target, nil
}

// callFailed converts the error of a call that got no response.
func (a *Agent) callFailed(err error, connected bool) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // drop the URL: it may contain secrets
	}
	f := &agent.Failure{Code: CodeNoAnswer, Transient: true, Err: fmt.Errorf("POST to %s: %w", a.host, err)}
	if !connected {
		f.Code, f.NoEffect = CodeUnreachable, true
	}
	return f
}

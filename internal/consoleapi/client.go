package consoleapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// DefaultTimeout bounds one request, from its start to the end of the answer.
	DefaultTimeout = 30 * time.Second
	// DefaultReconnectFor is how long FollowTask tries to reconnect.
	DefaultReconnectFor = 20 * time.Second
	// MaxAnswerBytes bounds an answer.
	MaxAnswerBytes = 256 << 20
	// PageSizeMax is the most items that a page of a list has.
	PageSizeMax = 1000
)

// Config says which console a Client queries. Only URL is required.
type Config struct {
	// URL is the console's address, as http://127.0.0.1:8080.
	URL string
	// Token is the bearer token. It is sent to URL only: redirects aren't followed.
	Token string
	// TLS configures https; nil: the system's certificate authorities.
	TLS *tls.Config
	// UserAgent identifies the program in the console's log; empty: Go's.
	UserAgent string
	// System is what the console must serve, as far as it is known.
	System System
	// SystemRequired refuses a console that doesn't say which system it serves.
	SystemRequired bool
	// Timeout bounds one request; 0: DefaultTimeout.
	Timeout time.Duration
	// ReconnectFor bounds how long FollowTask reconnects to a console that doesn't answer; 0: DefaultReconnectFor.
	ReconnectFor time.Duration
	// Explain, if set, replaces each error that a Client returns, except that of a context. It can say what the
	// program's user should do.
	Explain func(error) error
	// Transport, if set, sends the requests.
	Transport http.RoundTripper
}

// Client queries a console. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
}

// New returns a Client, or an error if the URL isn't that of a console. It sends no request.
func New(cfg Config) (*Client, error) {
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the URL of a console (http://127.0.0.1:8080)", cfg.URL)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.ReconnectFor = cmp.Or(cfg.ReconnectFor, DefaultReconnectFor)
	if cfg.Explain == nil {
		cfg.Explain = func(err error) error { return err }
	}
	transport := cfg.Transport
	if transport == nil {
		transport = sharedTransport
		if cfg.TLS != nil {
			own := sharedTransport.Clone()
			own.TLSClientConfig = cfg.TLS
			transport = own
		}
	}
	return &Client{cfg: cfg, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// sharedTransport bypasses the proxies of the environment for loopback.
var sharedTransport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if ip := net.ParseIP(r.URL.Hostname()); ip != nil && ip.IsLoopback() || strings.EqualFold(r.URL.Hostname(), "localhost") {
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
	return t
}()

// Expect sets Config.System. It may be called before the first request.
func (c *Client) Expect(system System) { c.cfg.System = system }

// URL returns the console's address.
func (c *Client) URL() string { return c.cfg.URL }

// Close closes idle connections. The Client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Find returns the system of the service at the client's URL, zero if it names none. It asks for path, and sends
// no token.
func (c *Client) Find(ctx context.Context, path string) (System, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.URL+path, nil)
	if err != nil {
		return System{}, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return System{}, err
	}
	return SystemOf(resp.Header), resp.Body.Close()
}

// UnreachableError says that a console gave no usable answer.
type UnreachableError struct {
	URL string
	// Fault says what the console did, as "doesn't answer".
	Fault string
	Err   error // of the connection; nil: it answered
}

func (e *UnreachableError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the console at %s %s: %v", e.URL, e.Fault, e.Err)
	}
	return fmt.Sprintf("the console at %s %s", e.URL, e.Fault)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// SystemError says that a console serves another system than the expected one.
type SystemError struct {
	URL           string
	Serves, Meant System // Serves is zero if the console doesn't say
}

func (e *SystemError) Error() string {
	if e.Serves == (System{}) {
		return fmt.Sprintf("the service at %s doesn't say which system it belongs to", e.URL)
	}
	return fmt.Sprintf("the console at %s serves %s, not %s", e.URL, e.Serves, e.Meant)
}

// Transient reports whether an error may pass without action: the console was unreachable, or has a problem of its
// own.
func Transient(err error) bool {
	p, is := errors.AsType[*Problem](err)
	return !is || p.Status >= http.StatusInternalServerError
}

// Get requests a path below Prefix, and decodes the JSON answer.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.Read(ctx, path, query, func(body io.Reader) error { return json.NewDecoder(body).Decode(into) })
}

// Read requests a path below Prefix, and passes the body of the answer to fn.
func (c *Client) Read(ctx context.Context, path string, query url.Values, fn func(io.Reader) error) error {
	within, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.outcome(ctx, c.read(within, path, query, fn))
}

// outcome is the error of a request as the caller gets it.
func (c *Client) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return c.cfg.Explain(err)
}

func (c *Client) read(ctx context.Context, path string, query url.Values, fn func(io.Reader) error) error {
	resp, err := c.send(ctx, path, query, nil)
	return c.decode(resp, err, fn)
}

// Post sends a body to a path below Prefix, and decodes the JSON answer.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	within, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	text, err := events.EncodeJSON(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(within, http.MethodPost, c.cfg.URL+Prefix+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.do(r)
	return c.outcome(ctx, c.decode(resp, err, func(body io.Reader) error { return json.NewDecoder(body).Decode(into) }))
}

// decode passes the body of a successful answer to fn.
func (c *Client) decode(resp *http.Response, err error, fn func(io.Reader) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read: an error on close loses nothing
	if resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusAccepted {
		return c.problem(resp)
	}
	if err := fn(io.LimitReader(resp.Body, MaxAnswerBytes)); err != nil {
		return fmt.Errorf("the answer of %s (%s) can't be read: %w; is it a console?", c.cfg.URL, Printable(cmp.Or(resp.Header.Get("Content-Type"), "nothing")), err)
	}
	return nil
}

// send sends a request. The caller reads and closes the body.
func (c *Client) send(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	target := c.cfg.URL + Prefix + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	return c.do(r)
}

// do sends a request with what identifies this client.
func (c *Client) do(r *http.Request) (*http.Response, error) {
	if c.cfg.UserAgent != "" {
		r.Header.Set("User-Agent", c.cfg.UserAgent)
	}
	c.cfg.System.SetHeaders(r.Header)
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, &UnreachableError{c.cfg.URL, "doesn't answer", err}
	}
	if err := c.checkSystem(SystemOf(resp.Header)); err != nil {
		_ = resp.Body.Close() // the answer is discarded
		return nil, err
	}
	return resp, nil
}

// checkSystem refuses an answer of another system. A console that doesn't name its system is accepted unless
// Config.SystemRequired: it may be of an older release.
func (c *Client) checkSystem(serves System) error {
	if serves.Differs(c.cfg.System) || serves == (System{}) && c.cfg.SystemRequired {
		return &SystemError{c.cfg.URL, serves, c.cfg.System}
	}
	return nil
}

// problem reads an error answer.
func (c *Client) problem(resp *http.Response) error {
	p := &Problem{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, MaxAnswerBytes)).Decode(p); err != nil || p.Title == "" {
		return fmt.Errorf("%s is not the address of a console (status %d): name that of `waybill console` or `waybill up`", c.cfg.URL, resp.StatusCode)
	}
	p.Status = resp.StatusCode
	return fmt.Errorf("%s: %w", c.cfg.URL, p)
}

// AtLogEnd asks for an answer as of the log's end at the time of the request, or later.
func AtLogEnd() url.Values { return url.Values{"min_offset": {LogEnd}} }

// NextPage sets the token of the next page. A repeated token is an error: the same page would be requested forever.
func (c *Client) NextPage(q url.Values, token string) error {
	if token != "" && token == q.Get("page_token") {
		return c.cfg.Explain(&UnreachableError{URL: c.cfg.URL, Fault: "repeats the same page"})
	}
	q.Set("page_token", token)
	return nil
}

// Task returns a task as of the log's end.
func (c *Client) Task(ctx context.Context, id string) (t Task, err error) {
	err = c.Get(ctx, TaskPath(id), AtLogEnd(), &t)
	return t, err
}

// Timeline returns the events of a task as of the log's end.
func (c *Client) Timeline(ctx context.Context, id string) (t Timeline, err error) {
	err = c.Get(ctx, TaskPath(id)+"/timeline", AtLogEnd(), &t)
	return t, err
}

// Export passes the events of a task as of the log's end to fn, in the format of `waybill export`.
func (c *Client) Export(ctx context.Context, id string, fn func(io.Reader) error) error {
	return c.Read(ctx, TaskPath(id)+"/export", AtLogEnd(), fn)
}

// Tasks passes the pages of a list of tasks to fn, newest first and as of the log's end, until fn has had max tasks
// (0: all) or returns an error. more reports whether there are further tasks.
func (c *Client) Tasks(ctx context.Context, f *Filter, max int, fn func(*TaskPage) error) (more bool, err error) {
	q := AtLogEnd()
	if filter := f.String(); filter != "" {
		q.Set("filter", filter)
	}
	for got := 0; ; {
		size := PageSizeMax
		if max > 0 {
			size = min(size, max-got)
		}
		q.Set("page_size", strconv.Itoa(size))
		var page TaskPage
		if err := c.Get(ctx, "/tasks", q, &page); err != nil {
			return false, err
		}
		if err := fn(&page); err != nil {
			return false, err
		}
		got += len(page.Tasks)
		if err := c.NextPage(q, page.NextPageToken); err != nil {
			return false, err
		}
		q.Del("min_offset")
		if more = page.NextPageToken != ""; !more || max > 0 && got >= max {
			return more, nil
		}
	}
}

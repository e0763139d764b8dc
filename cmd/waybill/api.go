package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
)

const (
	apiAuto = "auto"
	apiOff  = "off"
	// apiWithin bounds one question to a console.
	apiWithin   = 30 * time.Second
	apiMaxBytes = 256 << 20
)

// apiFlags say which console a tool asks.
type apiFlags struct{ url, tokenFile string }

func (a *apiFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "api", apiAuto, "URL of a console to ask; auto: one of the cluster, if it is on this machine or there is a token, else the log; off: the log")
	f.StringVar(&a.tokenFile, "api-token-file", "", "file with the bearer token for the console")
}

// apiClient asks a console.
type apiClient struct {
	base  string
	token string
	found bool // rather than named: the log answers where it doesn't
}

// client is the console to ask; nil: none, so the log. l is what auto looks in.
func (a *apiFlags) client(ctx context.Context, l *logbook) (*apiClient, error) {
	c := &apiClient{base: strings.TrimSuffix(a.url, "/")}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, exit(exitUsage, "--api-token-file: %w", err)
		}
		c.token = strings.TrimSpace(string(token))
	}
	switch a.url {
	case apiOff:
		return nil, nil
	case apiAuto:
		c.found, c.base = true, findConsole(ctx, l, c.token != "")
		if c.base == "" {
			return nil, nil
		}
		return c, nil
	}
	if u, err := url.Parse(a.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("--api %q: the URL of a console (http://%s), auto or off", a.url, defaultConsole)
	}
	return c, nil
}

// findConsole is a console that has announced itself; empty: there is none to ask.
func findConsole(ctx context.Context, l *logbook, elsewhere bool) string {
	group, err := l.admin.DescribeGroup(ctx, l.cfg.Namespace.AuditGroup())
	if err != nil {
		return "" // without a right to look at groups there is the log
	}
	for _, m := range group.Members {
		at := console.Announced(m.ClientID)
		if u, err := url.Parse(at); err == nil && at != "" && (elsewhere || isLoopback(net.JoinHostPort(u.Hostname(), "0"))) {
			return at
		}
	}
	return ""
}

// get asks for a path under /api/v1, and gives take the body of the answer.
func (c *apiClient) get(ctx context.Context, path string, query url.Values, take func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	target := c.base + "/api/v1" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return exit(exitUnreachable, "the console at %s doesn't answer: %w; `waybill console` starts one, --api off reads the log", c.base, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body := io.LimitReader(resp.Body, apiMaxBytes)
	if resp.StatusCode == http.StatusOK {
		return take(body)
	}
	return c.refused(resp.StatusCode, body)
}

// apiRefusal is a console's problem.
type apiRefusal struct {
	console.Problem
	status int
}

func (e *apiRefusal) Error() string { return e.Title + ": " + e.Detail }

func (c *apiClient) refused(status int, body io.Reader) error {
	e := &apiRefusal{status: status}
	if err := json.NewDecoder(body).Decode(&e.Problem); err != nil || e.Title == "" {
		return fmt.Errorf("what answers at %s is no console (status %d)", c.base, status)
	}
	code := exitOther
	switch status {
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusConflict:
		code = exitRefused
	case http.StatusBadRequest:
		code = exitUsage
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = exitUnreachable
	}
	return exit(code, "%s: %w", c.base, e)
}

// decode takes an answer in JSON.
func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// fallBack reports whether the log is to be read instead, and says so. A console that
// was named by the user isn't passed over.
func (c *apiClient) fallBack(note io.Writer, err error) bool {
	var refusal *apiRefusal
	if !c.found || errors.As(err, &refusal) && refusal.status == http.StatusNotFound {
		return false
	}
	fmt.Fprintf(note, "waybill: reading the log: %s\n", printable(err.Error()))
	return true
}

// taskPath is the path of a task.
func taskPath(id, rest string) string { return "/tasks/" + url.PathEscape(id) + rest }

// upToNow asks for what the log holds now, or more.
func (l *logbook) upToNow(ctx context.Context, id string) (url.Values, error) {
	ends, err := l.ends(ctx, l.cfg.Namespace.Events())
	if err != nil {
		return nil, err
	}
	return url.Values{"min_offset": {strconv.FormatInt(ends[l.partition(id)], 10)}}, nil
}

// upToNowAll is that of a list.
func (l *logbook) upToNowAll(ctx context.Context) (string, error) {
	ends, err := l.ends(ctx, l.cfg.Namespace.Events())
	if err != nil {
		return "", err
	}
	parts := make([]string, 0, len(ends))
	for p, end := range ends {
		parts = append(parts, fmt.Sprintf("%d:%d", p, end))
	}
	return strings.Join(parts, ","), nil
}

// fetch asks for one task's view.
func (c *apiClient) fetch(ctx context.Context, l *logbook, id string) (v events.TaskView, err error) {
	q, err := l.upToNow(ctx, id)
	if err == nil {
		err = c.get(ctx, taskPath(id, ""), q, decode(&v))
	}
	return v, err
}

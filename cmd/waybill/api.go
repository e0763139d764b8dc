package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
)

const (
	apiAuto = "auto"
	apiOff  = "off"
	// apiTimeout bounds one request to a console.
	apiTimeout  = 30 * time.Second
	apiMaxBytes = 256 << 20
)

// apiFlags select the console that a tool queries.
type apiFlags struct {
	url, tokenFile string
}

func (a *apiFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "api", apiAuto, "URL of a console to query instead of the brokers; auto: http://"+defaultConsole+" if it belongs to this cluster, without the token, else the log; off: the log")
	f.StringVar(&a.tokenFile, "api-token-file", "", "file that holds the bearer token for the console that --api names; it is sent to no other")
}

// apiClient sends requests to one console.
type apiClient struct {
	base       string
	token      string
	discovered bool           // found rather than named: if it can't answer, the log is read
	system     console.System // the expected system; empty fields are unknown
	http       *http.Client   // nil: apiHTTP
	local      *localConsole  // the console in this process; nil: it is another one
}

// namedConsole returns the console that --api names, or nil. With nil the caller looks for a local console or
// reads the log.
func (a *apiFlags) namedConsole() (*apiClient, error) {
	c := &apiClient{base: strings.TrimSuffix(a.url, "/")}
	if a.tokenFile != "" {
		token, err := readSecret("api-token-file", a.tokenFile)
		if err != nil {
			return nil, err
		}
		c.token = strings.TrimSpace(string(token))
	}
	if a.url == apiAuto || a.url == apiOff {
		if a.tokenFile != "" && a.url == apiAuto {
			return nil, usage("--api-token-file needs --api URL: a token is sent only to an address that you name")
		}
		return nil, nil
	}
	if u, err := url.Parse(a.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("--api %q: the URL of a console (http://%s), auto or off", a.url, defaultConsole)
	}
	return c, nil
}

// findLocalConsole returns the console of the same cluster on this machine, or nil. It is used if --api names
// none.
func (a *apiFlags) findLocalConsole(ctx context.Context, l *logbook) *apiClient {
	if a.url != apiAuto {
		return nil
	}
	cluster, err := l.admin.ClusterID(ctx)
	if err != nil {
		return nil // without the cluster id, consoles of other systems can't be recognized
	}
	of := console.System{ClusterID: cluster, Namespace: l.cfg.Namespace}
	base := findConsole(ctx, defaultConsole, of)
	if base == "" {
		return nil
	}
	return &apiClient{base: base, discovered: true, system: of}
}

// queryFlags select what answers a query.
type queryFlags struct {
	api     apiFlags
	dataDir string
	file    string
}

func (q *queryFlags) flags(cmd *cobra.Command) {
	q.api.flags(cmd)
	cmd.Flags().StringVar(&q.dataDir, "data-dir", "", "without a console: keep the index in this directory, so that the next query reads only new events (default: a temporary directory)")
	commandLineOnly(cmd.Flags(), "data-dir") // the environment's may be that of a role
}

func (q *queryFlags) fileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.file, "file", "", fileUsage)
}

// query answers by a console: by the one that --api names, else by one on this machine, else by one in this process,
// which indexes the log. The last one also answers if a console that was found can't (shouldReadLog). indexed says
// what it indexes. With --file it indexes the file.
func (q *queryFlags) query(cmd *cobra.Command, t *tool, indexed func(partitions int32) indexOptions, ask func(*apiClient) error) error {
	c, err := q.api.namedConsole()
	switch {
	case err != nil:
		return err
	case c != nil && q.file != "":
		return usage("--file and --api can't be combined")
	case q.file != "" && q.dataDir != "":
		return usage("--file and --data-dir can't be combined")
	case c != nil:
		t.expectSystem(cmd, c)
		return ask(c)
	case q.file != "":
		s, err := openFileSource(q.file, cmd.InOrStdin(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer s.close()
		return askLocalConsole(cmd.Context(), s, indexed, "", ask)
	}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if c := q.api.findLocalConsole(cmd.Context(), l); c != nil {
		if err := ask(c); err == nil || !c.shouldReadLog(l.note, err) {
			return err
		}
	}
	return askLocalConsole(cmd.Context(), logSource{l}, indexed, q.dataDir, ask)
}

// What a query needs of the index.
func noIndex(int32) indexOptions { return indexOptions{} }

func indexAll(partitions int32) (o indexOptions) {
	for p := range partitions {
		o.partitions = append(o.partitions, p)
	}
	return o
}

func indexTask(id string) func(int32) indexOptions {
	return func(partitions int32) indexOptions {
		return indexOptions{partitions: []int32{events.Partition([]byte(id), partitions)}}
	}
}

// refuseConsole returns an error if --api names a console, for a command that no console can answer.
func (a *apiFlags) refuseConsole(what string) error {
	if c, err := a.namedConsole(); err != nil || c == nil {
		return err
	}
	return usage("%s reads the log, not a console: omit --api, or use --api off", what)
}

// get requests a path under /api/v1, and passes the body of the response to take.
func (c *apiClient) get(ctx context.Context, path string, query url.Values, take func(io.Reader) error) error {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return orInterrupted(ctx, c.getWithin(within, path, query, take))
}

func (c *apiClient) getWithin(ctx context.Context, path string, query url.Values, take func(io.Reader) error) error {
	resp, err := c.send(ctx, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read: an error on close loses nothing
	body := io.LimitReader(resp.Body, apiMaxBytes)
	if resp.StatusCode != http.StatusOK {
		return c.readRefusal(resp.StatusCode, body)
	}
	if err := take(body); err != nil {
		return fmt.Errorf("the answer of %s (%s) can't be read: %w; is it a console?", c.base, printable(cmp.Or(resp.Header.Get("Content-Type"), "nothing")), err)
	}
	return nil
}

// nextPage sets the page token of the next request. A repeated token is an error: the same page would be requested
// forever.
func (c *apiClient) nextPage(q url.Values, next string) error {
	if next != "" && next == q.Get("page_token") {
		return exit(exitUnreachable, "the console at %s repeats the same page; --api off reads the log", c.base)
	}
	q.Set("page_token", next)
	return nil
}

// apiHTTP is the client for consoles. Requests to loopback bypass the proxies of the environment. Redirects
// aren't followed: the token is for the address that the user named.
var apiHTTP = &http.Client{
	Transport: func() http.RoundTripper {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if loopbackURL(r.URL.String()) {
				return nil, nil
			}
			return http.ProxyFromEnvironment(r)
		}
		return t
	}(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send sends a request. The caller reads and closes the body.
func (c *apiClient) send(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	target := c.base + "/api/v1" + path
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
	c.system.SetHeaders(r.Header)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := cmp.Or(c.http, apiHTTP).Do(r)
	if err != nil {
		return nil, exit(exitUnreachable, "the console at %s doesn't answer: %w; `waybill console` starts one, --api off reads the log", c.base, err)
	}
	if err := c.checkSystem(resp.Header); err != nil {
		_ = resp.Body.Close() // the response is discarded
		return nil, err
	}
	return resp, nil
}

// apiRefusal is an error response of a console (application/problem+json).
type apiRefusal struct {
	console.Problem
	status int
	source indexSource // of the console in this process; nil: it was another
}

func (e *apiRefusal) Error() string {
	switch what, is := e.NoTask(); {
	case is && e.source != nil:
		return what + e.source.missing(what)
	case is:
		return what + "; " + whereToLook(what)
	}
	return e.Title + ": " + e.Detail
}

func (c *apiClient) readRefusal(status int, body io.Reader) error {
	e := &apiRefusal{status: status}
	if err := json.NewDecoder(body).Decode(&e.Problem); err != nil || e.Title == "" {
		return fmt.Errorf("%s is not a console (status %d)", c.base, status)
	}
	code := exitOther
	switch status {
	case http.StatusUnauthorized:
		if c.token == "" {
			e.Detail = "none was sent; --api " + c.base + " --api-token-file FILE sends the one in FILE"
		}
	case http.StatusNotFound:
		code = exitNotFound
	case http.StatusConflict:
		code = exitRefused
	case http.StatusBadRequest:
		code = exitUsage
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = exitUnreachable
	}
	if c.local != nil {
		e.source = c.local.source
		return exit(code, "%w", e)
	}
	return exit(code, "%s: %w", c.base, e)
}

// decode returns a function that decodes a JSON response.
func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// incompletePartitions lists partitions for which a console's list is incomplete.
type incompletePartitions []console.Incomplete

// add adds those of a page. If the console was found rather than named, it returns an error, so that the log is
// read.
func (l *incompletePartitions) add(c *apiClient, more []console.Incomplete) error {
	*l = append(*l, more...)
	if c.discovered {
		return l.partialError()
	}
	return nil
}

// partialError returns an error if the list is incomplete, else nil.
func (l *incompletePartitions) partialError() error {
	if len(*l) == 0 {
		return nil
	}
	of := map[string][]int32{}
	for _, i := range *l {
		if !slices.Contains(of[i.Why], i.Partition) {
			of[i.Why] = append(of[i.Why], i.Partition)
		}
	}
	text := ""
	for _, why := range []struct{ is, says string }{{console.NoLeader, "no broker leads partitions %v"}, {console.Restoring, "the console still restores partitions %v"}} {
		if ps := of[why.is]; len(ps) > 0 {
			slices.Sort(ps)
			text += "; " + fmt.Sprintf(why.says, ps)
		}
	}
	return exit(exitUnreachable, "the answer is incomplete%s; `waybill doctor` says what is wrong", text)
}

// shouldReadLog reports whether the log is to be read after err, and prints a note unless there simply was no
// console. It is false for a console that the user named.
func (c *apiClient) shouldReadLog(note io.Writer, err error) bool {
	var refusal *apiRefusal
	if !c.discovered || errors.Is(err, context.Canceled) || errors.As(err, &refusal) && refusal.status == http.StatusNotFound {
		return false
	}
	fmt.Fprintf(note, "waybill: reading the log: %s\n", printable(err.Error()))
	return true
}

// taskPath returns the path of a task's resource, with a suffix.
func taskPath(id, rest string) string { return console.TaskPath(id) + rest }

// atLogEnd asks for an answer as of the log's current end or later. A console in this process has just read it.
func (c *apiClient) atLogEnd() url.Values {
	if c.local != nil && !c.local.follow {
		return url.Values{}
	}
	return url.Values{"min_offset": {"end"}}
}

// consoleTask is a console's view of a task.
type consoleTask struct {
	events.TaskView
	Unreadable *console.Unreadable `json:"unreadable"` // the first unreadable record; nil: the task is complete
}

// warnConsoleTasks prints which tasks are shown incompletely, and why.
func warnConsoleTasks(note io.Writer, tasks ...consoleTask) {
	unreadable := map[string]error{}
	for i := range tasks {
		if p := tasks[i].Unreadable; p != nil {
			unreadable[tasks[i].ID] = fmt.Errorf("offset %s of partition %d of the events: %s", p.Offset, p.Partition, p.Error)
		}
	}
	warnUnreadable(note, unreadable, func(string) bool { return true })
}

// task requests the view of one task.
func (c *apiClient) task(ctx context.Context, id string) (v consoleTask, err error) {
	err = c.get(ctx, taskPath(id, ""), c.atLogEnd(), decode(&v))
	return v, err
}

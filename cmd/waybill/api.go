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
	// apiTimeout bounds one question to a console.
	apiTimeout  = 30 * time.Second
	apiMaxBytes = 256 << 20
)

// apiFlags say which console a tool asks.
type apiFlags struct {
	url, tokenFile string
}

func (a *apiFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "api", apiAuto, "URL of a console to query instead of the brokers; auto: http://"+defaultConsole+" if it belongs to this cluster, without the token, else the log; off: the log")
	f.StringVar(&a.tokenFile, "api-token-file", "", "file that holds the bearer token for the console that --api names; it is sent to no other")
}

// apiClient asks a console.
type apiClient struct {
	base       string
	token      string
	discovered bool           // rather than named: the log answers where it doesn't
	system     console.System // that it should be of; what is empty isn't known
}

// named is the console that the user named; nil: none, and one may be found, or the log
// is read.
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
			return nil, usage("--api-token-file needs --api URL: a token is sent only to an address that you name, not to one that was found")
		}
		return nil, nil
	}
	if u, err := url.Parse(a.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("--api %q: the URL of a console (http://%s), auto or off", a.url, defaultConsole)
	}
	return c, nil
}

// found is the console of the cluster on this machine, where none was named; nil: none, so the
// log.
func (a *apiFlags) findLocalConsole(ctx context.Context, l *logbook) *apiClient {
	if a.url != apiAuto {
		return nil
	}
	cluster, err := l.admin.ClusterID(ctx)
	if err != nil {
		return nil // what answers couldn't be known
	}
	of := console.System{ClusterID: cluster, Namespace: l.cfg.Namespace}
	base := findConsole(ctx, defaultConsole, of)
	if base == "" {
		return nil
	}
	return &apiClient{base: base, discovered: true, system: of}
}

// consoleOrLog has ask ask a console: the one that is named, whose word is the last, else
// one that is found. Where there is none, or it can't answer (shouldReadLog), read reads the log.
func (t *tool) consoleOrLog(cmd *cobra.Command, a *apiFlags, ask func(*apiClient) error, read func(*logbook) error) error {
	c, err := a.namedConsole()
	if err != nil {
		return err
	}
	if c != nil {
		t.expectSystem(cmd, c)
		return ask(c)
	}
	l, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer l.close()
	if c := a.findLocalConsole(cmd.Context(), l); c != nil {
		if err := ask(c); err == nil || !c.shouldReadLog(l.note, err) {
			return err
		}
	}
	return read(l)
}

// refuseConsole refuses a named console for what no console answers.
func (a *apiFlags) refuseConsole(what string) error {
	if c, err := a.namedConsole(); err != nil || c == nil {
		return err
	}
	return usage("%s reads the log, not a console: leave --api away, or say --api off", what)
}

// get asks for a path under /api/v1, and gives take the body of the answer.
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
	defer func() { _ = resp.Body.Close() }() // it was only read
	body := io.LimitReader(resp.Body, apiMaxBytes)
	if resp.StatusCode != http.StatusOK {
		return c.readRefusal(resp.StatusCode, body)
	}
	if err := take(body); err != nil {
		return fmt.Errorf("the answer of %s (%s) can't be read: %w; is it a console?", c.base, printable(cmp.Or(resp.Header.Get("Content-Type"), "nothing")), err)
	}
	return nil
}

// nextPage is the token of the page that follows; an error: the console would give the same page for ever.
func (c *apiClient) nextPage(q url.Values, next string) error {
	if next != "" && next == q.Get("page_token") {
		return exit(exitUnreachable, "the console at %s repeats the same page; --api off reads the log", c.base)
	}
	q.Set("page_token", next)
	return nil
}

// apiHTTP asks consoles. What goes to loopback goes through no proxy, whatever the environment names. A redirect isn't
// followed: the token is for the address that was named.
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

// ask sends a question; whoever asks reads the answer, and closes it.
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
	c.system.Mark(r.Header)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := apiHTTP.Do(r)
	if err != nil {
		return nil, exit(exitUnreachable, "the console at %s doesn't answer: %w; `waybill console` starts one, --api off reads the log", c.base, err)
	}
	if err := c.checkSystem(resp.Header); err != nil {
		_ = resp.Body.Close() // nothing of it counts
		return nil, err
	}
	return resp, nil
}

// apiRefusal is a console's problem.
type apiRefusal struct {
	console.Problem
	status int
}

func (e *apiRefusal) Error() string {
	if what, is := e.NoTask(); is {
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
	return exit(code, "%s: %w", c.base, e)
}

// decode takes an answer in JSON.
func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// errPartialAnswer says that a console has a part only of what was asked for, and the log all.
var errPartialAnswer = errors.New("the console has a part of it only")

// lacks are the partitions that a list of a console lacks something of.
type incompletePartitions []console.Incomplete

// add records those of a page. They are an error of a console that was found, for then the log may tell.
func (l *incompletePartitions) add(c *apiClient, more []console.Incomplete) error {
	*l = append(*l, more...)
	if c.discovered {
		return l.partialError()
	}
	return nil
}

// partial is the error of a list that lacks something; nil: it is whole.
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

// shouldReadLog reports whether the log is to be read instead, and says so, where it isn't a
// matter of course. A console that was named by the user isn't passed over.
func (c *apiClient) shouldReadLog(note io.Writer, err error) bool {
	var refusal *apiRefusal
	if !c.discovered || errors.Is(err, context.Canceled) || errors.As(err, &refusal) && refusal.status == http.StatusNotFound {
		return false
	}
	if errors.Is(err, errPartialAnswer) {
		return true
	}
	fmt.Fprintf(note, "waybill: reading the log: %s\n", printable(err.Error()))
	return true
}

// taskPath is the path of a task, and what follows it.
func taskPath(id, rest string) string { return console.TaskPath(id) + rest }

// atLogEnd asks for what the log holds when the console is asked, or more.
func atLogEnd() url.Values { return url.Values{"min_offset": {"end"}} }

// consoleTask is a task as a console shows it.
type consoleTask struct {
	events.TaskView
	Poison *console.Poison `json:"poison"` // the record before which it is shown; nil: it is shown whole
}

// warnAsked says of tasks that aren't shown whole what can't be.
func warnConsoleTasks(note io.Writer, tasks ...consoleTask) {
	poison := map[string]error{}
	for i := range tasks {
		if p := tasks[i].Poison; p != nil {
			poison[tasks[i].ID] = fmt.Errorf("offset %s of partition %d of the events: %s", p.Offset, p.Partition, p.Error)
		}
	}
	warnUnreadable(note, poison, func(string) bool { return true })
}

// task asks for one task's view.
func (c *apiClient) task(ctx context.Context, id string) (v consoleTask, err error) {
	err = c.get(ctx, taskPath(id, ""), atLogEnd(), decode(&v))
	return v, err
}

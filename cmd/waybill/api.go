package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

const (
	apiAuto = "auto"
	apiOff  = "off"
)

// apiFlags select the console that a tool queries.
type apiFlags struct {
	url, tokenFile string
}

func (a *apiFlags) flags(cmd *cobra.Command) { markConnection(cmd, a.define) }

func (a *apiFlags) define(f *pflag.FlagSet) {
	f.StringVar(&a.url, "api", apiAuto, "URL of a console to query instead of the brokers; auto: http://"+defaultConsole+", without a token, if that console belongs to this cluster, else the log is read; off: the log is read")
	f.StringVar(&a.tokenFile, "api-token-file", "", "file that holds the bearer token for the console that --api names; it is sent to no other")
}

// apiClient queries one console. Its errors say what the user can do, and have an exit code.
type apiClient struct {
	*consoleapi.Client
	discovered bool          // found rather than named: if it can't answer, the log is read
	local      *localConsole // the console in this process; nil: it is another one
}

// newAPIClient returns a client of the console that cfg names.
func newAPIClient(cfg consoleapi.Config, discovered bool) (*apiClient, error) {
	tokenSent := cfg.Token != ""
	cfg.UserAgent = "waybill/" + version
	cfg.ReconnectFor = stallTimeout
	cfg.SystemRequired = discovered
	cfg.Explain = func(err error) error {
		return explainConsoleError(err, strings.TrimSuffix(cfg.URL, "/"), discovered, tokenSent)
	}
	c, err := consoleapi.New(cfg)
	if err != nil {
		return nil, err
	}
	return &apiClient{Client: c, discovered: discovered}, nil
}

// namedConsole returns the console that --api names, or nil. With nil the caller looks for a local console or
// reads the log.
func (a *apiFlags) namedConsole() (*apiClient, error) {
	cfg := consoleapi.Config{URL: a.url}
	if a.tokenFile != "" {
		token, err := readSecret("api-token-file", a.tokenFile)
		if err != nil {
			return nil, err
		}
		cfg.Token = strings.TrimSpace(string(token))
	}
	if a.url == apiAuto || a.url == apiOff {
		if a.tokenFile != "" && a.url == apiAuto {
			return nil, usage("--api-token-file needs --api URL: a token is sent only to an address that you name")
		}
		return nil, nil
	}
	c, err := newAPIClient(cfg, false)
	if err != nil {
		return nil, usage("--api %q: must be the URL of a console (http://%s), auto or off", a.url, defaultConsole)
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
	of := consoleapi.System{ClusterID: cluster, Namespace: l.cfg.Namespace}
	base := findConsole(ctx, defaultConsole, of)
	if base == "" {
		return nil
	}
	c, err := newAPIClient(consoleapi.Config{URL: base, System: of}, true)
	if err != nil {
		return nil // not a URL
	}
	return c
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
		return usage("--file reads a file, not a console: omit --api and WAYBILL_API, or use --api off")
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
		if err := ask(c); err == nil || !c.shouldReadLog(cmd.Context(), l.note, err) {
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
	return usage("%s reads the log, not a console: omit --api and WAYBILL_API, or use --api off", what)
}

// missingTaskError is a console's problem that a task doesn't exist, with advice for users of the command line.
type missingTaskError struct {
	*consoleapi.Problem
	text string
}

func (e *missingTaskError) Error() string { return e.text }
func (e *missingTaskError) Unwrap() error { return e.Problem }

// explainConsoleError gives the error of a request to a console an exit code, and says what to do.
func explainConsoleError(err error, url string, discovered, tokenSent bool) error {
	if e, is := errors.AsType[*consoleapi.SystemError](err); is {
		return explainSystemError(e, discovered)
	}
	if e, is := errors.AsType[*consoleapi.UnreachableError](err); is {
		if e.Err != nil {
			return exit(exitUnreachable, "%w; `waybill console` starts one, --api off reads the log", err)
		}
		return exit(exitUnreachable, "%w; --api off reads the log", err)
	}
	p, is := errors.AsType[*consoleapi.Problem](err)
	if !is {
		return err
	}
	if what, missing := p.NoTask(); missing {
		return exit(exitNotFound, "%w", &missingTaskError{p, url + ": " + what + "; " + whereToLook(what)})
	}
	if p.Status == http.StatusUnauthorized && !tokenSent {
		p.Detail = "none was sent; --api " + url + " --api-token-file FILE sends the one in FILE"
		return fmt.Errorf("%s: %w", url, p)
	}
	return withExitCode(p.Status, err)
}

// withExitCode gives the error of a console the exit code for its status.
func withExitCode(status int, err error) error {
	switch status {
	case http.StatusNotFound:
		return exit(exitNotFound, "%w", err)
	case http.StatusConflict:
		return exit(exitRefused, "%w", err)
	case http.StatusBadRequest:
		return exit(exitUsage, "%w", err)
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return exit(exitUnreachable, "%w", err)
	}
	return err
}

// incompletePartitions lists partitions for which a console's list is incomplete.
type incompletePartitions []consoleapi.Incomplete

// add adds those of a page. If the console was found rather than named, it returns an error, so that the log is
// read.
func (l *incompletePartitions) add(c *apiClient, more []consoleapi.Incomplete) error {
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
	for _, why := range []struct{ is, says string }{{consoleapi.NoLeader, "no broker that leads partitions %v answers"}, {consoleapi.Restoring, "the console still restores partitions %v"},
		{consoleapi.Behind, "the console hasn't read partitions %v to the end"}} {
		if ps := of[why.is]; len(ps) > 0 {
			slices.Sort(ps)
			text += "; " + fmt.Sprintf(why.says, ps)
		}
	}
	return exit(exitUnreachable, "the answer is incomplete%s; `waybill doctor` says what is wrong", text)
}

// shouldReadLog reports whether the log is to be read after err, and prints a note unless there simply was no
// console. It is false for a console that the user named, after the end of the command's ctx, and for a request that is
// itself at fault: the log has the same answer.
func (c *apiClient) shouldReadLog(ctx context.Context, note io.Writer, err error) bool {
	if p, problem := errors.AsType[*consoleapi.Problem](err); problem {
		switch p.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict:
			return false
		}
	}
	if !c.discovered || ctx.Err() != nil {
		return false
	}
	fmt.Fprintf(note, "waybill: reading the log: %s\n", printable(err.Error()))
	return true
}

// warnConsoleTasks prints which tasks are shown incompletely, and why.
func warnConsoleTasks(note io.Writer, tasks ...consoleapi.Task) {
	unreadable := map[string]error{}
	for i := range tasks {
		if p := tasks[i].Unreadable; p != nil {
			unreadable[tasks[i].ID] = fmt.Errorf("offset %s of partition %d of the events: %s", p.Offset, p.Partition, p.Error)
		}
	}
	warnUnreadable(note, unreadable, func(string) bool { return true })
}

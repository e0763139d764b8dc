package waybill

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// Console says how to reach a console (`waybill console`), which answers queries from its index of all tasks.
type Console struct {
	// URL is its address, as "http://127.0.0.1:8080"; empty: there is no console.
	URL string
	// Token is a bearer token with the role viewer, for a console that requires one. It is sent to URL only:
	// redirects aren't followed.
	Token string
	// TLS configures https; nil: the system's certificate authorities.
	TLS *tls.Config
}

// client returns a client of the console, or nil if there is none.
func (c Console) client() (*consoleapi.Client, error) {
	if c.URL == "" {
		if c.Token != "" || c.TLS != nil {
			return nil, errors.New("a Token or TLS is set, but URL is empty")
		}
		return nil, nil
	}
	return consoleapi.New(consoleapi.Config{URL: c.URL, Token: c.Token, TLS: c.TLS, UserAgent: DefaultClientID})
}

// ErrNoConsole is wrapped by errors of calls that need Config.Console.
var ErrNoConsole = errors.New("Config.Console has no URL")

// ErrConsoleUnreachable is wrapped by errors of calls that the console didn't answer.
var ErrConsoleUnreachable = errors.New("the console is unreachable")

// Query selects tasks. Empty fields select all.
type Query struct {
	States   []State // one of them
	Workflow string
	Version  int               // with Workflow; 0: all versions
	Labels   map[string]string // at most 4
	StepHeld string            // this step is held
	Agent    string            // an attempt of a step is at this agent
	Since    time.Time         // submitted at this instant or later
	// DueWithin selects open tasks whose complete-by is within this time, or past.
	DueWithin time.Duration
}

func (q Query) filter() *consoleapi.Filter {
	f := &consoleapi.Filter{Workflow: q.Workflow, Labels: q.Labels, StepInError: q.StepHeld, Agent: q.Agent, Since: q.Since, DueWithin: q.DueWithin}
	for _, s := range q.States {
		f.States = append(f.States, string(s))
	}
	if q.Version != 0 {
		f.Workflow += "/" + strconv.Itoa(q.Version)
	}
	return f
}

// Summary is a task in a list. Get returns the whole task.
type Summary = events.SummaryView

// Event is an event of a task. Its type is as in "waybill.task.received.v1", or "unreadable" for a record that
// isn't an event.
type Event = events.Line

// errStopped ends a list whose receiver wants no more.
var errStopped = errors.New("no more is wanted")

// List returns the tasks that a query selects, the newest first. It asks the console for pages of them, so a loop
// that ends early is cheap. It isn't a snapshot: a task whose state changes meanwhile is listed by its state as of
// its page.
//
// After an error there are no more tasks. The error wraps ErrNoConsole without Config.Console, and
// ErrConsoleUnreachable if the console doesn't answer. If the console can't read some partitions at the moment,
// the last error says that the list is incomplete.
func (c *Client) List(ctx context.Context, q Query) iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		var incomplete []consoleapi.Incomplete
		err := c.ask(ctx, func(ctx context.Context) error {
			_, err := c.console.Tasks(ctx, q.filter(), 0, func(page *consoleapi.TaskPage) error {
				incomplete = append(incomplete, page.Incomplete...)
				for _, t := range page.Tasks {
					if !yield(t, nil) {
						return errStopped
					}
				}
				return nil
			})
			return err
		})
		if err == nil && len(incomplete) > 0 {
			err = fmt.Errorf("the list is incomplete: %s", incomplete[0])
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Summary{}, fmt.Errorf("waybill: list: %w", err))
		}
	}
}

// Timeline returns the events of a task as of the call, in the order of the log. The error wraps ErrNotFound if no
// task has this id, and ErrNoConsole without Config.Console. If some records are unreadable, it returns the others
// with an error.
func (c *Client) Timeline(ctx context.Context, id string) ([]Event, error) {
	var t consoleapi.Timeline
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		t, err = c.console.Timeline(ctx, id)
		if err == nil && len(t.Unreadable) > 0 {
			err = fmt.Errorf("unreadable records: %d, the first at offset %s of partition %d: %s", len(t.Unreadable), t.Unreadable[0].Offset, t.Unreadable[0].Partition, t.Unreadable[0].Error)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("waybill: timeline of task %q: %w", id, err)
	}
	return t.Lines, err
}

// Follow returns the events of a task from its first one, and further ones as they arrive, until the task has ended.
// A task that is held has not ended. The console has a limit of streams, 16 for a token: to wait for many tasks, use
// Wait.
//
// After an error there are no more events. Errors are those of Timeline; the console may be unreachable for 20 s.
func (c *Client) Follow(ctx context.Context, id string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.ask(ctx, func(ctx context.Context) error {
			return c.console.FollowTask(ctx, id, -1, func(e consoleapi.TaskEvent) (bool, error) { return !yield(e.Line, nil), nil })
		})
		if err != nil {
			yield(Event{}, fmt.Errorf("waybill: follow task %q: %w", id, err))
		}
	}
}

// ask calls fn, which asks the console.
func (c *Client) ask(ctx context.Context, fn func(context.Context) error) error {
	if c.console == nil {
		return ErrNoConsole
	}
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	err := fn(ctx)
	p, problem := errors.AsType[*consoleapi.Problem](err)
	switch {
	case err != nil && c.closing.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case problem && p.Status == http.StatusNotFound:
		return fmt.Errorf("%w in namespace %q", ErrNotFound, c.cfg.Namespace)
	}
	return consoleError(err)
}

// consoleError wraps ErrConsoleUnreachable around an error of a console that doesn't answer.
func consoleError(err error) error {
	if _, is := errors.AsType[*consoleapi.UnreachableError](err); is {
		return fmt.Errorf("%w: %w", ErrConsoleUnreachable, err)
	}
	return err
}

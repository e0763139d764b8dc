package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// waitingInterval is the pause between requests for a task whose submission no scheduler has consumed yet.
const waitingInterval = 200 * time.Millisecond

// taskWait waits for the end of a task. A console sends its events.
type taskWait struct {
	console *apiClient
	id      string
}

// wait returns the task once it has ended, is held, or can't be read.
func (w *taskWait) wait(ctx context.Context) (v consoleapi.Task, err error) {
	if v, err = w.await(ctx); err != nil {
		return v, err
	}
	for v.Unreadable == nil && !v.State.Terminal() && v.State != events.StateError {
		next, err := strconv.ParseInt(v.AsOf.Offset, 10, 64)
		if err != nil {
			return v, err
		}
		last := next - 1
		err = w.console.FollowTask(ctx, w.id, last, func(e consoleapi.TaskEvent) (bool, error) {
			last, err = strconv.ParseInt(e.Offset, 10, 64)
			return endsWait(e.Type), err
		})
		if err != nil {
			return v, err
		}
		v = consoleapi.Task{}
		if err := w.console.Get(ctx, consoleapi.TaskPath(w.id), url.Values{"min_offset": {strconv.FormatInt(last+1, 10)}}, &v); err != nil {
			return v, err
		}
	}
	return v, nil
}

// endsWait reports whether a task has ended or is held by an event, or can't be read from it on.
func endsWait(eventType string) bool {
	switch shortType(eventType) {
	case "task.processed", "task.undone", "task.cancelled", "task.held", "unreadable":
		return true
	}
	return false
}

// await returns the task, once a scheduler has consumed its submission.
func (w *taskWait) await(ctx context.Context) (consoleapi.Task, error) {
	for {
		v, err := w.console.Task(ctx, w.id)
		p, missing := noSuchTask(err)
		switch {
		case !missing:
			return v, err
		case !p.Waiting:
			return w.consumed(ctx, err)
		}
		if backoff.Sleep(ctx, waitingInterval) != nil {
			return v, ctx.Err()
		}
	}
}

// consumed returns a task that wasn't found, and whose submission doesn't wait. It may have been consumed since, or
// refused.
func (w *taskWait) consumed(ctx context.Context, missing error) (consoleapi.Task, error) {
	refused, err := w.console.refusal(ctx, w.id)
	if err != nil {
		return consoleapi.Task{}, err
	}
	v, err := w.console.Task(ctx, w.id)
	switch _, again := noSuchTask(err); {
	case !again:
		return v, err
	case refused != "":
		w.console.discovered = false // the answer is complete
		return v, exit(exitRefused, "the submission of %q was refused: %s", w.id, refused)
	}
	return v, missing
}

// noSuchTask returns a console's problem if it is that there is no such task.
func noSuchTask(err error) (*consoleapi.Problem, bool) {
	p, is := errors.AsType[*consoleapi.Problem](err)
	return p, is && p.Status == http.StatusNotFound
}

// refusal returns why the newest submission of a task was refused; empty: none was.
func (c *apiClient) refusal(ctx context.Context, id string) (string, error) {
	q := url.Values{"since": {time.UnixMilli(0).UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(noticePageSize)}}
	for {
		var page consoleapi.DeadletterPage
		if err := c.Get(ctx, "/deadletters", q, &page); err != nil {
			return "", err
		}
		for _, d := range page.Deadletters {
			if d.Key == id && strings.Contains(d.Origin, events.Tasks.String()+"/") {
				return d.Reason + ": " + d.Detail, nil
			}
		}
		if page.NextPageToken == "" {
			return "", nil
		}
		if err := c.NextPage(q, page.NextPageToken); err != nil {
			return "", err
		}
	}
}

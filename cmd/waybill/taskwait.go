package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// waitingInterval is the pause between requests for a task whose submission no scheduler has consumed yet.
const waitingInterval = 200 * time.Millisecond

// taskWait waits for the end of a task. A console sends its events.
type taskWait struct {
	console *apiClient
	id      string
	note    io.Writer
}

// wait returns the task once it has ended, is held, or can't be read.
func (w *taskWait) wait(ctx context.Context) (v consoleTask, err error) {
	if v, err = w.await(ctx); err != nil {
		return v, err
	}
	for v.Unreadable == nil && !v.State.Terminal() && v.State != events.StateError {
		next, err := strconv.ParseInt(v.AsOf.Offset, 10, 64)
		if err != nil {
			return v, err
		}
		h := &consoleHistory{console: w.console, note: w.note, last: next - 1}
		ended := false
		err = h.follow(ctx, w.id, func(line timelineLine) error {
			ended = endsWait(line.Type)
			return nil
		}, func() bool { return ended })
		if err != nil {
			return v, err
		}
		q := w.console.atLogEnd()
		if h.last >= next {
			q.Set("min_offset", strconv.FormatInt(h.last+1, 10))
		}
		if err := w.console.get(ctx, taskPath(w.id, ""), q, decode(&v)); err != nil {
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
func (w *taskWait) await(ctx context.Context) (consoleTask, error) {
	for {
		v, err := w.console.task(ctx, w.id)
		var refusal *apiRefusal
		if !errors.As(err, &refusal) || refusal.status != http.StatusNotFound {
			return v, err
		}
		if refusal.Waiting == nil {
			return w.consumed(ctx, err)
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(waitingInterval):
		}
	}
}

// consumed returns a task that wasn't found, and whose submission doesn't wait. It may have been consumed since, or
// refused.
func (w *taskWait) consumed(ctx context.Context, missing error) (consoleTask, error) {
	refused, err := w.console.refusal(ctx, w.id)
	if err != nil {
		return consoleTask{}, err
	}
	v, err := w.console.task(ctx, w.id)
	var again *apiRefusal
	switch {
	case !errors.As(err, &again) || again.status != http.StatusNotFound:
		return v, err
	case refused != "":
		return v, exit(exitRefused, "the submission of %q was refused: %s", w.id, refused)
	}
	return v, missing
}

// refusal returns why the newest submission of a task was refused; empty: none was.
func (c *apiClient) refusal(ctx context.Context, id string) (string, error) {
	q := url.Values{"since": {time.UnixMilli(0).UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(noticePageSize)}}
	for {
		var page deadletterPage
		if err := c.get(ctx, "/deadletters", q, decode(&page)); err != nil {
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
		if err := c.nextPage(q, page.NextPageToken); err != nil {
			return "", err
		}
	}
}

package logclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

const (
	// concurrentLookupsMax bounds the concurrent lookups of a Waiter.
	concurrentLookupsMax = 8
	// lookupRetryPause is the pause after a lookup that failed.
	lookupRetryPause = time.Second
)

// Lookup returns a task as of the log's end at the time of the call, or later; nil: no task has the id. With
// withDigest it also returns the digest of the task's order.
type Lookup func(ctx context.Context, id string, withDigest bool) (t *events.TaskView, digest string, err error)

// errUnreadable is wrapped by errors about a task of which the console can't read all events.
var errUnreadable = errors.New("one of its events is unreadable")

// ConsoleLookup looks tasks up at a console.
func ConsoleLookup(c *consoleapi.Client) Lookup {
	return func(ctx context.Context, id string, withDigest bool) (*events.TaskView, string, error) {
		t, err := c.Task(ctx, id)
		switch p, is := errors.AsType[*consoleapi.Problem](err); {
		case is && p.Status == http.StatusNotFound:
			return nil, "", nil
		case err != nil:
			return nil, "", err
		case t.Unreadable != nil:
			return nil, "", fmt.Errorf("%w: offset %s of partition %d: %s; run `waybill verify`", errUnreadable, t.Unreadable.Offset, t.Unreadable.Partition, t.Unreadable.Error)
		case !withDigest:
			return &t.TaskView, "", nil
		}
		digest, err := orderDigest(ctx, c, id)
		return &t.TaskView, digest, err
	}
}

// orderDigest returns the digest of a task's order, which its first event has.
func orderDigest(ctx context.Context, c *consoleapi.Client, id string) (string, error) {
	timeline, err := c.Timeline(ctx, id)
	if err != nil {
		return "", err
	}
	var received struct {
		Digest string `json:"digest"`
	}
	if len(timeline.Lines) > 0 {
		err = json.Unmarshal(timeline.Lines[0].Data, &received)
	}
	if err != nil || received.Digest == "" {
		return "", fmt.Errorf("the first event of task %q has no digest of its order: %w", id, err)
	}
	return received.Digest, nil
}

// lookupState is what lookups for a pendingWait have found.
type lookupState struct {
	done         bool             // the task was looked up
	task         *events.TaskView // nil: there was none
	digest       string           // of its order; empty: unknown
	asOf         time.Time        // task is as of this instant or later
	running      bool
	err          error     // of the last lookup; nil: it succeeded
	failingSince time.Time // zero: the last lookup succeeded
	next         time.Time // no lookup before
}

// lookupDue reports whether a task whose first event wasn't read must be looked up. missing says so for one that
// wasn't looked up yet.
func (t *trackedTask) lookupDue(now time.Time, missing bool) bool {
	l := &t.pending.lookup
	switch {
	case l.running || now.Before(l.next):
		return false
	case l.done:
		// A state that a call joined after is looked up again if it may have changed.
		return t.endMissed || l.task != nil && mayChange(l.task.State) && !l.asOf.After(t.lastJoined)
	}
	return missing
}

// startLookup looks a task up for the calls that wait for it.
func (w *Waiter) startLookup(t *trackedTask, started time.Time) {
	v, withDigest := t.pending, t.submittedDigest != ""
	v.lookup.running, t.endMissed = true, false
	w.jobs.Go(func() {
		w.lookupSlots <- struct{}{}
		defer func() { <-w.lookupSlots }()
		found, digest, err := w.lookup(w.ctx, t.id, withDigest)
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.pending != v {
			return // no call waits any more
		}
		v.lookup.running = false
		if err != nil {
			w.lookupFailed(t, err)
			return
		}
		v.lookup = lookupState{done: true, task: found, digest: digest, asOf: started}
		t.startMissing = t.startMissing || found != nil
		w.resolve(t, w.partitions[t.partition].asOf)
		w.wakeReader()
	})
}

// lookupFailed records an error. The calls that wait fail if it doesn't pass by itself, or has lasted for
// silenceMax.
func (w *Waiter) lookupFailed(t *trackedTask, err error) {
	l, now := &t.pending.lookup, time.Now()
	l.err, l.next, t.endMissed = err, now.Add(lookupRetryPause), true
	if l.failingSince.IsZero() {
		l.failingSince = now
	}
	if consoleapi.Transient(err) && !errors.Is(err, errUnreadable) && now.Sub(l.failingSince) <= w.silenceMax {
		return
	}
	t.pending.err = err
	w.finish(t)
}

// result returns what a lookup says about the calls that wait for a task, if it is over.
func (l *lookupState) result(t *trackedTask) (task events.TaskView, over bool, err error) {
	switch {
	case l.task == nil || t.task != nil:
		return task, false, nil
	case l.digest != "" && t.submittedDigest != "" && l.digest != t.submittedDigest:
		return task, true, conflictError(t.id, l.task.State)
	case isResult(l.task.State, l.asOf.After(t.lastJoined)):
		return *l.task, true, nil
	}
	return task, false, nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/logclient"
	"github.com/waybill-run/waybill/internal/text"
)

// submissionWaiter waits for the tasks of submissions.
type submissionWaiter struct {
	log        *logclient.Waiter
	tasks      map[string]*awaitedTask
	unreadable map[string]error // tasks with an event that can't be read
}

// awaitedTask is what is known of a task whose end is awaited. Its state is empty if no event was read.
type awaitedTask struct {
	state   events.TaskState
	output  json.RawMessage
	err     *events.Error
	refused string // reason of the refusal; empty: not refused
	done    bool
}

// newSubmissionWaiter returns a waiter that starts before the submissions, so that it misses no event. A partition
// without a leader is read from its start.
func newSubmissionWaiter(ctx context.Context, l *logbook, submissions int) (*submissionWaiter, error) {
	log := &logclient.KafkaLog{Namespace: l.cfg.Namespace, Admin: l.admin, Reader: l.reader, SilenceMax: stallTimeout}
	ends, err := log.EndOffsets(ctx, l.cfg.Namespace.Events())
	if err != nil {
		return nil, l.connectionLost(err)
	}
	w := logclient.NewWaiter(l.cfg.Namespace, l.partitions, ends, log, logclient.Options{SilenceMax: stallTimeout, Tracked: submissions})
	return &submissionWaiter{log: w, tasks: map[string]*awaitedTask{}, unreadable: map[string]error{}}, nil
}

// wait waits until each task has ended or is held, or its submission was refused. It calls progress with the number
// of these tasks. If ctx ends, it returns ctx's error, and the known states can still be printed.
func (w *submissionWaiter) wait(ctx context.Context, subs []*logclient.Submission, progress func(done int)) error {
	var ids []string
	for _, s := range subs {
		if w.tasks[s.ID] == nil {
			w.tasks[s.ID] = &awaitedTask{}
			ids = append(ids, s.ID)
		}
	}
	var failed error
	done := 0
	err := w.log.WaitAll(ctx, ids, func(id string, t events.TaskView, err error) {
		a := w.tasks[id]
		a.state, a.err = t.State, t.Error
		if t.State == events.StateProcessed || string(t.Output) != "null" { // a view has null for no output
			a.output = t.Output
		}
		refused, isRefused := errors.AsType[*logclient.RefusedError](err)
		_, isUnreadable := errors.AsType[*logclient.UnreadableError](err)
		switch {
		case isRefused:
			a.refused = refused.Reason
		case isUnreadable:
			w.unreadable[id] = err
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			failed = err
			return
		}
		a.done = true
		done++
		progress(done)
	})
	if err != nil {
		return err
	}
	return failed
}

// open returns the number of tasks that are still awaited.
func (w *submissionWaiter) open() (n int) {
	for _, a := range w.tasks {
		if !a.done {
			n++
		}
	}
	return n
}

// print prints the acknowledged submissions, and with a waiter the states of their tasks.
func (o *submitOptions) print(out io.Writer, subs []*logclient.Submission, w *submissionWaiter) error {
	list := make([]submitted, 0, len(subs))
	for _, s := range subs {
		if !s.Acknowledged {
			continue
		}
		row := submitted{ID: s.ID, Partition: s.Record.Partition, Offset: strconv.FormatInt(s.Record.Offset, 10)}
		if w != nil {
			a := w.tasks[s.ID]
			if row.Refused = a.refused; a.refused == "" {
				row.State, row.Output, row.Error = a.state, a.output, a.err
			}
		}
		list = append(list, row)
	}
	head := "ID PARTITION OFFSET"
	if w != nil {
		head += " ENDED WHY"
	}
	return printList(&o.output, out, head, list, func(s submitted) []string {
		row := []string{idText(s.ID), strconv.Itoa(int(s.Partition)), s.Offset}
		switch {
		case w == nil:
		case s.Refused != "":
			row = append(row, "refused", s.Refused)
		case w.tasks[s.ID].done:
			row = append(row, dash(stateText(s.State)), errorText(s.Error))
		default:
			row = append(row, "not yet", stateText(s.State))
		}
		return row
	})
}

func (o *submitOptions) waitFor(ctx context.Context, cmd *cobra.Command, l *logbook, w *submissionWaiter, subs []*logclient.Submission) error {
	bar := newProgress(l.note, "waiting")
	err := w.wait(ctx, subs, func(done int) { bar.set(int64(done), int64(len(w.tasks))) })
	bar.end()
	if perr := o.print(cmd.OutOrStdout(), subs, w); perr != nil {
		return perr
	}
	warnUnreadable(cmd.ErrOrStderr(), w.unreadable, func(id string) bool { return w.tasks[id].state != "" })
	switch {
	case err != nil && ctx.Err() != nil && cmd.Context().Err() == nil:
		return exit(exitTimeout, "%d of %s %s not ended within %s, and will continue: `waybill task wait ID`, or submit the same again with --wait", w.open(), text.Count(len(w.tasks), "task"), text.Verb(w.open(), "has", "have"), o.timeout)
	case err != nil:
		return err
	}
	return w.exitError()
}

// exitError returns the error, with its exit code, for the states of all awaited tasks.
func (w *submissionWaiter) exitError() error {
	var refused, failed, undone int
	held := "" // the first of the held tasks, by their ids
	for id, a := range w.tasks {
		switch {
		case a.refused != "":
			refused++
		case w.unreadable[id] != nil || stateExitCode(a.state) == exitError:
			if failed++; held == "" || id < held {
				held = id
			}
		case stateExitCode(a.state) == exitUndone:
			undone++
		}
	}
	n := len(w.tasks)
	switch {
	case refused > 0:
		return exit(exitRefused, "%d of %s refused; `waybill deadletters` lists them", refused, text.Count(n, "submission"))
	case failed > 0:
		return exit(exitError, "%d of %s held; `waybill task why %s` says why; then resubmit, undo or release", failed, text.Count(n, "task"), printable(held))
	case undone > 0 && n == 1:
		for id, a := range w.tasks {
			return taskExitError(id, a.state)
		}
	case undone > 0:
		return exit(exitUndone, "%d of %s undone or cancelled", undone, text.Count(n, "task"))
	}
	return nil
}

// taskExitError returns the error, with its exit code, for the state of one task; nil: it is processed.
func taskExitError(id string, s events.TaskState) error {
	if code := stateExitCode(s); code != exitOK {
		return exit(code, "task %q: %s", id, stateText(s))
	}
	return nil
}

// stateExitCode returns the exit code for a task's state.
func stateExitCode(s events.TaskState) int {
	switch s {
	case events.StateError:
		return exitError
	case events.StateUndone, events.StateCancelled:
		return exitUndone
	default:
		return exitOK
	}
}

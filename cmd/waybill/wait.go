package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// historyAfter is how long a task may be silent after its submission before a waiter reads its history: a
// repeated identical submission writes no event.
const historyAfter = 2 * time.Second

// awaitedTask is a task whose end is awaited.
type awaitedTask struct {
	digest  string // digest of the submission; empty: any
	refused string // reason of the refusal; empty: not refused
	done    bool
}

// waiter follows the log until each task has ended or is held, or its submission was refused.
type waiter struct {
	log     *logbook
	fold    *taskFold
	want    map[string]*awaitedTask
	origins map[string]string // of a submission, "topic/partition/offset" -> its id
	open    int               // tasks that are still awaited
	events  *tail
	dead    *tail
	strange map[int32]bool  // partitions to read from the start: a task there began before the waiter
	touched map[string]bool // tasks with new events since finishEnded
}

func newWaiter(l *logbook) *waiter {
	return &waiter{log: l, fold: newTaskFold(), want: map[string]*awaitedTask{}, origins: map[string]string{},
		strange: map[int32]bool{}, touched: map[string]bool{}}
}

// add adds a submission to wait for.
func (w *waiter) add(id, digest, origin string) {
	w.origins[origin] = id
	if w.want[id] == nil {
		w.want[id] = &awaitedTask{digest: digest}
		w.open++
	}
}

// run waits until every task is done or ctx ends. Then it returns ctx's error, and the known states can still
// be printed.
func (w *waiter) run(ctx context.Context) error {
	bar := newProgress(w.log.note, "waiting")
	defer bar.end()
	total, began := w.open, time.Now()
	looked := map[int32]bool{}
	return w.log.pollUntil(ctx, func() (bool, error) {
		news, err := w.poll(ctx)
		if err != nil {
			return news, err
		}
		if !news && time.Since(began) > historyAfter {
			w.markSilentPartitions()
		}
		for p := range w.strange {
			delete(w.strange, p)
			if looked[p] {
				continue
			}
			if err := w.readHistory(ctx, p); err != nil {
				return news, err
			}
			looked[p] = true
		}
		bar.set(int64(total-w.open), int64(total))
		return news, nil
	}, func() bool { return w.open == 0 })
}

// markSilentPartitions marks the partitions of tasks without any event so far.
func (w *waiter) markSilentPartitions() {
	for id, a := range w.want {
		if !a.done && w.fold.tasks[id] == nil {
			w.strange[w.log.partition(id)] = true
		}
	}
}

func (w *waiter) poll(ctx context.Context) (news bool, err error) {
	news, err = w.events.poll(ctx, w.foldEvent)
	if err != nil || w.dead == nil {
		w.finishEnded()
		return news, err
	}
	refusals, err := w.dead.poll(ctx, w.recordRefusal)
	w.finishEnded()
	return news || refusals, err
}

// foldEvent folds an event of an awaited task. If the task began before the waiter, its partition must be read
// from the start.
func (w *waiter) foldEvent(r *events.Record) {
	id := string(r.Key)
	a := w.want[id]
	if id == "" { // a claim of the partition
		w.fold.add(r, nil)
	}
	if a == nil || a.done {
		return
	}
	if w.fold.tasks[id] == nil && !firstEvent(r) {
		w.strange[r.Partition] = true
		return
	}
	w.fold.add(r, nil)
	w.touched[id] = true
}

func firstEvent(r *events.Record) bool {
	id, _ := r.Header(events.HeaderID)
	return strings.HasSuffix(id, "/1")
}

// recordRefusal records a dead letter if it is that of an awaited submission.
func (w *waiter) recordRefusal(r *events.Record) {
	origin, _ := r.Header(events.HeaderOrigin)
	id, ours := w.origins[origin]
	if !ours || w.want[id].done {
		return
	}
	reason, _ := r.Header(events.HeaderReason)
	detail, _ := r.Header(events.HeaderDetail)
	w.finish(id, fmt.Sprintf("%s: %s", reason, detail))
}

// finishEnded finishes the touched tasks that have ended or are held. It runs after a read rather than within,
// because a later event of the same read may resume a held task.
func (w *waiter) finishEnded() {
	for id := range w.touched {
		delete(w.touched, id)
		a, t := w.want[id], w.fold.tasks[id]
		switch {
		case a.done:
		case w.fold.unreadable[id] != nil:
			w.finish(id, "")
		case t == nil:
		case a.digest != "" && t.Digest != a.digest:
			w.finish(id, fmt.Sprintf("%s: task %q is there already, with another body", events.ReasonIDConflict, id))
		case t.State.Terminal() || t.State == events.StateError:
			w.finish(id, "")
		}
	}
}

func (w *waiter) finish(id, refused string) {
	a := w.want[id]
	a.done, a.refused = true, refused
	w.open--
}

// readHistory reads a partition of events from its start. Polling continues from the end of that read.
func (w *waiter) readHistory(ctx context.Context, p int32) error {
	mine := func(id string) bool {
		a := w.want[id]
		return a != nil && !a.done
	}
	for id := range w.want {
		if mine(id) && w.log.partition(id) == p {
			delete(w.fold.tasks, id)
			delete(w.fold.unreadable, id)
		}
	}
	in := kafka.Range{Partitions: []int32{p}, Corrupt: w.log.corruptionHandler(w.fold.onUnreadable(slices.DeleteFunc(slices.Collect(maps.Keys(w.want)), func(id string) bool { return !mine(id) })...))}
	places, err := w.log.read(ctx, w.log.cfg.Namespace.Events(), in, func(r *events.Record) error {
		w.fold.add(r, mine)
		return nil
	})
	if err != nil {
		return err
	}
	if w.events == nil {
		w.events = &tail{log: w.log, topic: w.log.cfg.Namespace.Events(), places: map[int32]readPosition{}, waitForLeaders: true}
	}
	w.events.places[p] = places[p]
	for id := range w.want {
		if mine(id) && w.log.partition(id) == p {
			w.touched[id] = true
		}
	}
	w.finishEnded()
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

package logclient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// WaitAll returns the result of each task: ends, holds, refusals, unreadable events, and orders of existing tasks. Tasks
// of the log's history are searched together.
func TestWaitAll(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(3)
		b.task("there").write(received("d"), started, finished)
		b.task("other").write(received("e"), started)
		time.Sleep(24 * time.Hour)
		w := b.openWaiter(t)
		w.trackedMax = 2 * trackedDefault
		var ids []string
		want := map[string]events.TaskState{}
		submit := func(id string, end events.TaskState) {
			ids, want[id] = append(ids, id), end
			w.submit(id, "d", int64(len(ids)), time.Now())
		}
		submit("there", events.StateProcessed)
		submit("other", "")
		submit("refused", "")
		b.deadletter(w, "refused", int64(len(ids)))
		submit("broken", events.StatePending)
		submit("held", events.StateError)
		for i := range trackedDefault + 100 { // more than a client remembers
			submit(fmt.Sprint(i), events.StateProcessed)
		}
		b.task("broken").write(received("d"), finished) // never started
		b.task("held").write(received("d"), started, held())
		go func() {
			for i := range trackedDefault + 100 {
				b.task(fmt.Sprint(i)).write(received("d"), started, finished)
			}
		}()
		b.noDelay = true
		failed := map[string]error{}
		err := w.WaitAll(withinAnHour(t), ids, func(id string, task events.TaskView, err error) {
			if failed[id] = err; task.State != want[id] {
				t.Errorf("%s: %s, %v; want %q", id, task.State, err, want[id])
			}
		})
		if err != nil || len(failed) != len(ids) {
			t.Errorf("%v, %d of %d results", err, len(failed), len(ids))
		}
		var refused *RefusedError
		var unreadable *UnreadableError
		if !errors.As(failed["other"], &refused) || !errors.As(failed["refused"], &refused) || !errors.As(failed["broken"], &unreadable) {
			t.Errorf("got %v, %v, %v", failed["other"], failed["refused"], failed["broken"])
		}
		for id, err := range failed {
			if err != nil && want[id] != "" && id != "broken" {
				t.Errorf("%s: %v", id, err)
			}
		}
		if w.waiting != 0 {
			t.Errorf("%d tasks are still waited for", w.waiting)
		}
	})
}

// If its context ends, WaitAll returns what is known. A silence limit ends waits earlier than the default.
func TestWaitAllEnds(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		w := b.openWaiter(t)
		w.silenceMax = 20 * time.Second
		ids := []string{"running", "unknown", "ended"}
		for _, id := range ids {
			w.submit(id, "", 0, time.Now())
		}
		b.task("running").write(received(""), started)
		b.task("ended").write(received(""), started, finished)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		states := map[string]events.TaskState{}
		err := w.WaitAll(short, ids, func(id string, task events.TaskView, err error) {
			if states[id] = task.State; (err == nil) != (id == "ended") {
				t.Errorf("%s: %v", id, err)
			}
		})
		if !errors.Is(err, context.DeadlineExceeded) || states["running"] != events.StateProcessing || states["unknown"] != "" || states["ended"] != events.StateProcessed {
			t.Errorf("got %v, %v", err, states)
		}
		away := errors.New("away")
		b.fault = func(string) error { return away }
		begun := time.Now()
		err = w.WaitAll(withinAnHour(t), ids[:2], func(_ string, _ events.TaskView, err error) {
			if !errors.Is(err, away) {
				t.Error(err)
			}
		})
		if took := time.Since(begun); err != nil || took < w.silenceMax || took > 2*w.silenceMax {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// ReadRange implements History. A record at or after to ends the read, as the caller may get later ones.
func (c *cluster) ReadRange(ctx context.Context, topic string, p int32, from, to int64, fn func([]events.Record) error) error {
	if c.readRange != nil {
		if err := c.readRange(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	log := c.logs[topic][p]
	c.mu.Unlock()
	for n := from; n < min(to, int64(len(log))); n += 7 { // in several calls
		if err := fn(log[n:min(n+7, int64(len(log)))]); err != nil {
			return fmt.Errorf("take the records: %w", err)
		}
	}
	return ctx.Err()
}

// OffsetsAt implements History. The log has no timestamps of its own: after is the end.
func (c *cluster) OffsetsAt(_ context.Context, topic string, p int32, _ time.Time) (start, after int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 0, int64(len(c.logs[topic][p])), nil
}

// refunded lists the events that follow life when a processed task with one step is undone.
var refunded = []string{"waybill.task.undoing.v1", "waybill.undo.started.v1", "waybill.undo.completed.v1", "waybill.task.undone.v1"}

// refundable applies a workflow whose step has an undo.
func (s *site) refundable() {
	s.t.Helper()
	d, err := workflow.New("r", 1).CompleteWithin(time.Minute).AttemptWithin(10 * time.Second).
		Step(workflow.Step{ID: "a", Agent: "inventory", Operation: "do", Undo: &workflow.Undo{Operation: "undo"}}).Build()
	if err != nil {
		s.t.Fatal(err)
	}
	s.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
}

func (s *site) processRefundable(w *worker, tasks ...string) {
	s.t.Helper()
	s.submit("r", tasks...)
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.lived(tasks...)
}

// undoProcessed writes the commands of an operator.
func (s *site) undoProcessed(tasks ...string) {
	for _, id := range tasks {
		x := &events.Control{Task: id, Command: events.UndoTask, Processed: true, By: events.By{Who: "op", RequestID: "refund " + id}}
		s.cluster.write(x.Record(ns, "test"))
	}
}

// answered returns the answers to commands: "ok", or the reason of a refusal.
func (s *site) answered() (all []string) {
	for _, r := range s.cluster.all(ns.Answers()) {
		a, err := events.DecodeAnswer(&r)
		if err != nil {
			s.t.Fatal(err)
		}
		if a.Accepted {
			a.Reason = "ok"
		}
		all = append(all, a.Task+": "+a.Reason)
	}
	return all
}

func (s *site) wasRefunded(tasks ...string) {
	s.t.Helper()
	for _, id := range tasks {
		if got := s.events(id); !slices.Equal(got, slices.Concat(life, refunded)) {
			s.t.Errorf("task %s: %v", id, got)
		}
	}
}

// TestProcessedTasksAreReadAgain undoes processed tasks that the store has in their short form only: from memory, from
// the disk, and after a restart. The state then equals a rebuild from the log.
func TestProcessedTasksAreReadAgain(t *testing.T) {
	s := newSite(t, 1)
	s.refundable()
	w := s.worker(s.cluster.join(0))
	s.processRefundable(w, "t-1", "t-2", "t-3", "t-4")
	s.undoProcessed("t-1", "t-2")
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.wasRefunded("t-1", "t-2")
	w.close(func() {})

	w = s.worker(s.cluster.join(0))
	s.undoProcessed("t-3", "t-1") // t-1 is undone
	s.drain(w)
	w.close(func() {})
	w = s.worker(s.cluster.join(0)) // while t-3 is undoing
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.wasRefunded("t-3")
	s.lived("t-4")
	if got, want := s.answered(), []string{"t-1: ok", "t-2: ok", "t-3: ok", "t-1: ok"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want) // the same request again
	}
	live := s.digest(w, 0)
	w.close(func() {})
	rebuilt := newSite(t, 1)
	rebuilt.cfg.History = s.cluster
	again := rebuilt.worker(s.cluster.join(0))
	rebuilt.until(again, "it is restored", func() bool { return again.partitions[0] != nil && again.partitions[0].ready() })
	if got := rebuilt.digest(again, 0); got != live {
		t.Errorf("digest %s, of a rebuild %s", live, got)
	}
}

// TestWorkGoesOnWhileAHistoryIsRead holds the read of a processed task. Other tasks of the partition are processed; only
// commands wait. A worker that takes over reads again.
func TestWorkGoesOnWhileAHistoryIsRead(t *testing.T) {
	s := newSite(t, 1)
	s.refundable()
	first := s.worker(s.cluster.join(0))
	s.processRefundable(first, "t-1")
	reading, hold := make(chan struct{}, 100), make(chan struct{})
	s.cluster.readRange = func(ctx context.Context) error {
		reading <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	s.undoProcessed("t-1")
	s.until(first, "the history is read", func() bool { return len(reading) > 0 })
	s.submit("w", "t-2")
	s.until(first, "t-2 has begun", func() bool { return len(s.asked("inventory")) >= 2 })
	s.cluster.write((&events.Control{Task: "t-2", Command: events.Cancel, Keep: true, By: events.By{RequestID: "stop"}}).Record(ns, "test"))
	s.complete("inventory")
	s.until(first, "t-2 is processed", func() bool { return slices.Equal(s.events("t-2"), life) })
	if got := s.answered(); len(got) > 0 {
		t.Errorf("answered while the history is read: %q", got)
	}
	first.close(func() {})

	close(hold)
	w := s.worker(s.cluster.join(0))
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.wasRefunded("t-1")
	if got := s.answered(); len(got) != 2 || got[0] != "t-1: ok" || !strings.Contains(got[1], "is processed") {
		t.Errorf("answers %q", got)
	}
}

// TestHistoryOutlivesOtherTransactions ends the read of a processed task while a submission is decided, and adds another
// submission to each poll. The command is decided with what was read, once its inbox is polled again.
func TestHistoryOutlivesOtherTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.refundable()
		log := s.cluster.join(0)
		w := s.worker(log)
		s.processRefundable(w, "t-1")
		const most = 50
		more := 0
		log.polledSome = func() {
			if more++; more < most {
				s.submit("w", fmt.Sprintf("more-%d", more))
			}
			synctest.Wait() // a read that has begun ends
		}
		s.undoProcessed("t-1")
		s.until(w, "the undo is decided", func() bool { return len(s.answered()) > 0 })
		if more >= most {
			t.Errorf("the command was decided after %d polls", more)
		}
		w.close(func() {})
	})
}

// TestRolledBackUndoOfAProcessedTask rolls back the transaction that undoes a processed task, while its agent has a
// concurrency limit. The undo is decided again.
func TestRolledBackUndoOfAProcessedTask(t *testing.T) {
	s := newSite(t, 1)
	s.refundable()
	w, log := s.observes()
	s.processRefundable(w, "t-1")
	aborts := 2
	log.end = func(func()) (bool, bool, error) {
		if aborts--; aborts < 0 {
			return false, false, nil
		}
		return false, true, nil
	}
	s.undoProcessed("t-1")
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.wasRefunded("t-1")
	if aborts > 0 {
		t.Errorf("%d transactions are still to be rolled back", aborts)
	}
}

// trimmed is a log whose first records were deleted.
type trimmed struct {
	History
	start int64
}

func (h trimmed) OffsetsAt(ctx context.Context, topic string, p int32, at time.Time) (start, after int64, err error) {
	_, after, err = h.History.OffsetsAt(ctx, topic, p, at)
	return h.start, after, err
}

// TestHistoryThatCannotBeRead checks that an undo is refused with the reason if the task's events are not all in the log,
// or if the cluster doesn't return them in time.
func TestHistoryThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.refundable()
		w := s.worker(s.cluster.join(0))
		s.processRefundable(w, "t-1")
		ended := *w.partitions[0].tasks.Task("t-1")
		next := w.partitions[0].tasks.Next()
		read := func(change func(*Config)) ReadTask {
			cfg := s.cfg
			change(&cfg)
			return cfg.readHistories(t.Context(), 0, next, []events.Task{ended})["t-1"]
		}
		if whole := read(func(*Config) {}); whole.Why != "" || whole.Task.Plan == nil || whole.Task.Seq != ended.Seq {
			t.Errorf("read %+v", whole)
		}
		if none := read(func(c *Config) { c.History = trimmed{s.cluster, 2} }); !strings.Contains(none.Why, "isn't whole") {
			t.Errorf("with deleted events: %+v", none)
		}
		ended.Prev = "another"
		if other := read(func(*Config) {}); !strings.Contains(other.Why, "isn't whole") {
			t.Errorf("of another history: %+v", other)
		}
		began := time.Now()
		s.cluster.readRange = func(context.Context) error { return errors.New("no leader") }
		if late := read(func(*Config) {}); !strings.Contains(late.Why, "within 30s: no leader") || time.Since(began) > historyReadWithin+historyRetryAfter {
			t.Errorf("after %s: %+v", time.Since(began), late)
		}
		if many := s.cfg.readHistories(t.Context(), 0, next, make([]events.Task, historiesMax+1)); len(many) == 0 {
			t.Error("nothing is said of too many")
		}
	})
}

// TestHistoryIsSoughtInWindows finds the first event of a task far before its end, and reads each window once.
func TestHistoryIsSoughtInWindows(t *testing.T) {
	s := newSite(t, 1)
	s.refundable()
	w := s.worker(s.cluster.join(0))
	s.submit("r", "old")
	s.drain(w)
	var filler []events.Record
	for range 3 * historyWindowMin {
		filler = append(filler, events.Record{Topic: ns.Events(), Key: []byte("other"), Value: []byte("{}")})
	}
	at := int64(len(s.cluster.all(ns.Events())))
	s.cluster.write(filler...)
	reads := 0
	s.cluster.readRange = func(context.Context) error { reads++; return nil }
	offset, found, err := s.cfg.findFirstEvent(t.Context(), 0, 0, at+int64(len(filler)), "old")
	if want := int64(1); err != nil || !found || offset != want || reads != 2 {
		t.Errorf("found %v at %d in %d reads, %v; it is at %d", found, offset, reads, err, want)
	}
	if _, found, err = s.cfg.findFirstEvent(t.Context(), 0, 2, at, "old"); found || err != nil {
		t.Errorf("found it where it isn't: %v, %v", found, err)
	}
}

// TestHistoryOfAnIDThatWasUsedBefore undoes a processed task whose id an earlier task had: the log has a first event for
// each of the two. The later one is undone.
func TestHistoryOfAnIDThatWasUsedBefore(t *testing.T) {
	s := newSite(t, 1)
	d, err := workflow.New("r", 1).CompleteWithin(time.Minute).AttemptWithin(10 * time.Second).DedupeFor(time.Minute).
		Step(workflow.Step{ID: "a", Agent: "inventory", Operation: "do", Undo: &workflow.Undo{Operation: "undo"}}).Build()
	if err != nil {
		t.Fatal(err)
	}
	s.catalog.Apply(&events.Record{Key: []byte(d.Key()), Value: d.JSON()})
	w := s.worker(s.cluster.join(0))
	s.processRefundable(w, "t-1")
	s.clock.pass(2 * time.Minute)
	forget := &events.Recovery{Action: events.ActionForget}
	s.cluster.write(forget.Record(ns, "test", 0))
	s.drain(w)
	s.submit("r", "t-1")
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.undoProcessed("t-1")
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	if got, want := s.events("t-1"), slices.Concat(life, life, refunded); !slices.Equal(got, want) {
		t.Errorf("%v, answered %q", got, s.answered())
	}
}

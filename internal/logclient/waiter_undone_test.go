package logclient

import (
	"errors"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestWaitAfterAProcessedTaskWasUndone checks that a call of Wait doesn't return a state that an operator has changed since
// an earlier call returned it, with a console to look tasks up and without one.
func TestWaitAfterAProcessedTaskWasUndone(t *testing.T) {
	for _, console := range []bool{false, true} {
		withVirtualClock(t, func(t *testing.T) {
			b := newFakeLog(1)
			w := NewWaiter(testNamespace, 1, map[int32]int64{}, b, Options{})
			if console {
				w = NewWaiter(testNamespace, 1, map[int32]int64{}, b, Options{Lookup: b.lookUp})
			}
			t.Cleanup(w.Close)
			task := b.task("o").write(received(""), started, finished)
			mustEnd(t, w, "o", events.StateProcessed)
			mustEnd(t, w, "o", events.StateProcessed)
			s := taskFold{}
			for _, r := range b.partitions[testNamespace.Events()][0] {
				s.apply(&r)
			}
			task.write(&events.TaskUndoing{Ending: events.StateUndone, Processed: s.task.Encode()}, &events.TaskUndone{})
			mustEnd(t, w, "o", events.StateUndone)
		})
	}
}

// TestRefusalInALeaderlessPartition checks that dead letters are read from the partition of the task, also if others of
// the topic have no leader, and again once it has one.
func TestRefusalInALeaderlessPartition(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(3)
		w := b.openWaiter(t)
		of := map[int32]string{} // a task of each partition
		for i := 'a'; len(of) < 3; i++ {
			of[w.partitionOf(string(i))] = string(i)
		}
		for p := range int32(3) {
			w.submit(of[p], "d", 16+int64(p), time.Now())
			b.deadletter(w, of[p], 16+int64(p))
		}
		refused := func(p int32) {
			t.Helper()
			var e *RefusedError
			if _, err := w.Wait(withinAnHour(t), of[p]); !errors.As(err, &e) {
				t.Errorf("partition %d: %v", p, err)
			}
		}
		refused(1)
		leaderless := func(ps map[int32]bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.leaderless = ps
		}
		leaderless(map[int32]bool{1: true})
		began := time.Now()
		refused(0)
		refused(2)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("refusals of partitions with a leader took %v", took)
		}
		leaderless(nil)
		refused(1)
	})
}

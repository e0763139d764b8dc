package logclient

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestWaitForAReusedID submits an order whose id schedulers have forgotten. A wait returns the end of its task, not that of the
// earlier one with the id, which the waiter has read.
func TestWaitForAReusedID(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.consumedByScheduler = map[int32]int64{0: 1}
		w := b.openWaiter(t)
		w.submit("a", "one", 0, time.Now())
		b.task("a").write(received("one"), started, forgottenIn(time.Hour))
		mustEnd(t, w, "a", events.StateProcessed)
		mustEnd(t, w, "a", events.StateProcessed) // within the hour, it is the only one

		time.Sleep(2 * time.Hour)
		mustEnd(t, w, "a", events.StateProcessed) // no other was submitted here, or by others
		w.submit("a", "two", 1, time.Now())
		go func() {
			time.Sleep(time.Minute)
			second := b.task("a").write(received("two"), started)
			b.consume(0, 2)
			time.Sleep(time.Minute)
			second.write(undoing(), undone())
		}()
		mustEnd(t, w, "a", events.StateUndone)
		if view, found, err := ReadTask(t.Context(), b, testNamespace, 1, "a"); err != nil || !found || view.State != events.StateUndone {
			t.Errorf("read from the log: %s, %v", view.State, err)
		}
	})
}

// TestWaitForARepeatedOrder submits an order again although its id hasn't been forgotten yet, after the instant from which it
// may be. The wait ends when schedulers have consumed it.
func TestWaitForARepeatedOrder(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.consumedByScheduler = map[int32]int64{0: 1}
		w := b.openWaiter(t)
		w.submit("a", "one", 0, time.Now())
		b.task("a").write(received("one"), started, forgottenIn(time.Hour))
		mustEnd(t, w, "a", events.StateProcessed)

		time.Sleep(2 * time.Hour)
		w.submit("a", "one", 1, time.Now())
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			b.consume(0, 2)
		}()
		mustEnd(t, w, "a", events.StateProcessed)
		if took := time.Since(began); took < time.Minute {
			t.Errorf("it ended after %v, before the order was consumed", took)
		}
	})
}

// forgottenIn ends a task whose id is kept for a time.
func forgottenIn(d time.Duration) events.Fact {
	return &events.TaskProcessed{Output: []byte(`1`), ForgetAt: time.Now().Add(d)}
}

// consume sets the offset that schedulers have consumed.
func (b *fakeLog) consume(p int32, to int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.consumedByScheduler[p] = to
}

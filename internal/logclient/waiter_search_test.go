package logclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Orders that no scheduler has consumed are not searched, for any number and duration of waits. Their partition is only
// read from its next offset.
func TestWaitSearchesNoUnconsumedOrders(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.task("old").write(received(""), started, finished)
		w := b.openWaiter(t)
		b.consumedByScheduler = map[int32]int64{0: 0}
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprint("new-", i))
			w.submit(ids[i], "d", int64(i), time.Now())
		}
		go func() {
			for i, id := range ids {
				time.Sleep(3 * time.Second)
				b.mu.Lock()
				b.consumedByScheduler[0] = int64(i + 1)
				b.mu.Unlock()
				time.Sleep(silentAfter / 2) // an event may arrive later than the offset commit of its order
				b.task(id).write(received("d"), started, finished)
			}
		}()
		for _, id := range ids {
			mustEnd(t, w, id, events.StateProcessed)
		}
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Events()) && strings.HasSuffix(read, " from 0") {
				t.Errorf("read the log from its start: %q", b.reads)
			}
		}
		// The order of an existing task was consumed without an event.
		w.submit("old", "", 19, time.Now())
		mustEnd(t, w, "old", events.StateProcessed)
	})
}

// If the consumed offsets can't be read, silent orders count as consumed. Searches for them take a bounded share of the
// time.
func TestWaitPausesBetweenSearches(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		for i := range 900 {
			b.task(fmt.Sprint("old-", i)).write(received("")) // at least 300 ms to read
		}
		w := b.openWaiter(t)
		b.fault = func(what string) error {
			if what == "consumed" {
				return errors.New("GROUP_AUTHORIZATION_FAILED")
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range 600 { // ten per second, and each waits for a while
			w.submit(fmt.Sprint("new-", i), "d", int64(i), time.Now())
			go func() { _, _ = w.Wait(ctx, fmt.Sprint("new-", i)) }()
			time.Sleep(100 * time.Millisecond)
		}
		searches := 0
		b.mu.Lock()
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Events()) && strings.HasSuffix(read, " from 0") {
				searches++
			}
		}
		b.mu.Unlock()
		if most := int(time.Minute / (10 * 300 * time.Millisecond)); searches == 0 || searches > most {
			t.Errorf("the log was read from its start %d times within a minute, want some, and %d at most", searches, most)
		}
	})
}

// A search reads back to the task's first event, not to the start of the log.
func TestSearchReadsBackToTheFirstEvent(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.noDelay = true
		b.task("ancient").write(received(""), started, finished)
		fill := func(to int64) { // a transaction marker has an offset too
			b.partitions[testNamespace.Events()][0] = append(b.partitions[testNamespace.Events()][0], events.Record{Topic: testNamespace.Events(), Offset: to, Time: time.Now()})
		}
		fill(3 << 20)
		old := b.task("old").write(received(""), started)
		fill(3<<20 + 3*searchFirst)
		young := b.task("young").write(received(""), started)
		fill(3<<20 + 3*searchFirst + 1000)
		w := b.openWaiter(t)
		young.write(finished)
		old.write(finished)
		for _, c := range []struct {
			id   string
			most int64 // offsets read at once
		}{{"young", searchFirst}, {"old", searchFirst * searchGrowth}} {
			b.reads = nil
			mustEnd(t, w, c.id, events.StateProcessed)
			for _, read := range b.reads {
				var from int64
				if _, err := fmt.Sscanf(strings.TrimPrefix(read, testNamespace.Events()+"/0 "), "from %d", &from); err != nil || from < 3<<20+3*searchFirst-c.most {
					t.Errorf("%s: %q, %v", c.id, b.reads, err)
				}
			}
		}
		mustEnd(t, w, "ancient", events.StateProcessed)
		if !slices.Contains(b.reads, testNamespace.Events()+"/0 from 0") {
			t.Errorf("%q", b.reads)
		}
	})
}

package logclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// A partition without a leader blocks waits for its tasks only.
func TestWaitWithoutALeaderOfAnotherPartition(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(2)
		w := b.openWaiter(t)
		ids := map[int32]string{}
		for i := 0; len(ids) < 2; i++ {
			ids[w.partitionOf(fmt.Sprint(i))] = fmt.Sprint(i)
		}
		b.mu.Lock()
		b.leaderless = map[int32]bool{1: true}
		b.mu.Unlock()
		for _, id := range ids {
			w.submit(id, "", 0, time.Now())
			b.task(id).write(received(""), started, finished)
		}
		var g sync.WaitGroup
		g.Go(func() {
			begun := time.Now()
			_, err := w.Wait(withinAnHour(t), ids[1])
			if took := time.Since(begun); !errors.Is(err, errEndUnknown) || took < BrokerSilenceMax || took > 2*BrokerSilenceMax {
				t.Errorf("after %v: %v", took, err)
			}
		})
		begun := time.Now()
		mustEnd(t, w, ids[0], events.StateProcessed)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a task of the other partition took %v", took)
		}
		g.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.Wait(short, ids[1]); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errEndUnknown) {
			t.Errorf("got %v", err)
		}
		b.mu.Lock()
		b.leaderless = nil
		b.mu.Unlock()
		mustEnd(t, w, ids[1], events.StateProcessed)
	})
}

// A read error an hour ago doesn't shorten how long errors are retried now.
func TestWaitIgnoresOldReadErrors(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.task("o").write(received(""), started, finished)
		w := b.openWaiter(t)
		away := errors.New("unavailable for a moment")
		var until atomic.Int64
		b.fault = func(what string) error {
			if what == "read" && time.Now().UnixNano() < until.Load() {
				return away
			}
			return nil
		}
		until.Store(time.Now().Add(BrokerSilenceMax / 2).UnixNano())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.Wait(short, "o"); !errors.Is(err, away) || !strings.Contains(err.Error(), "has not ended yet") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Hour)
		until.Store(time.Now().Add(BrokerSilenceMax / 2).UnixNano())
		mustEnd(t, w, "o", events.StateProcessed)
	})
}

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// eventTimes has the append times of the events of each partition, by the brokers' clocks, and the ended tasks. It
// reads only headers and keys, so it can read the log of any build.
type eventTimes struct {
	mu    sync.Mutex
	next  map[int32]int64 // the next offset of each partition
	at    map[int32][]time.Time
	ended map[string]bool
	more  chan struct{} // closed and replaced when something was read
}

// follow reads until ctx ends, and retries after errors of the brokers.
func (e *eventTimes) follow(ctx context.Context, cfg kafka.Config) {
	for ctx.Err() == nil {
		tail, err := logreader.OpenTail(cfg, cfg.Namespace.Events(), e.from())
		if err != nil {
			panic(err) // its configuration is wrong
		}
		for err == nil {
			var records []events.Record
			records, err = tail.Poll(ctx)
			e.addRecords(records)
		}
		tail.Close()
	}
}

func (e *eventTimes) from() map[int32]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	from := map[int32]int64{}
	for p, offset := range e.next {
		from[p] = offset
	}
	return from
}

func (e *eventTimes) addRecords(records []events.Record) {
	if len(records) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range records {
		r := &records[i]
		e.next[r.Partition] = r.Offset + 1
		e.at[r.Partition] = append(e.at[r.Partition], r.Time)
		switch kind, _ := r.Header("ce_type"); kind {
		case "waybill.task.processed.v1", "waybill.task.undone.v1", "waybill.task.cancelled.v1", "waybill.task.held.v1":
			e.ended[string(r.Key)] = true
		}
	}
	close(e.more)
	e.more = make(chan struct{})
}

// await waits until done returns true. done is called with the lock held.
func (e *eventTimes) await(t *testing.T, what string, within time.Duration, done func() bool) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		e.mu.Lock()
		is, more := done(), e.more
		e.mu.Unlock()
		if is {
			return
		}
		select {
		case <-more:
		case <-timer.C:
			t.Fatalf("%s: not within %s", what, within)
		}
	}
}

// allAfter reports whether each partition has an event later than t. It must be called with the lock held.
func (e *eventTimes) allAfter(t time.Time) bool {
	for _, times := range e.at {
		if len(times) == 0 || !times[len(times)-1].After(t) {
			return false
		}
	}
	return true
}

// window is a period in which something was done to the system.
type window struct {
	what     string
	from, to time.Time
}

// longestSilences returns for each partition the longest time without an event that overlaps the window, in ascending
// order. The time before the first event and after the last one counts too.
func (w window) longestSilences(at map[int32][]time.Time) []time.Duration {
	var all []time.Duration
	for _, times := range at {
		var longest time.Duration
		times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
		for i := 0; i <= len(times); i++ {
			before, after := w.from, w.to
			if i > 0 {
				before = times[i-1]
			}
			if i < len(times) {
				after = times[i]
			}
			if after.After(w.from) && before.Before(w.to) {
				longest = max(longest, after.Sub(before))
			}
		}
		all = append(all, longest)
	}
	slices.Sort(all)
	return all
}

// row returns the table row with the silences of the window.
func (w window) row(at map[int32][]time.Time, submitted, ended int) string {
	s := w.longestSilences(at)
	if len(s) == 0 {
		return fmt.Sprintf("%-44s no partition has an event", w.what)
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return fmt.Sprintf("%-44s %4d partitions, longest silence min %s, median %s, max %s; %5d tasks, %5d ended",
		w.what, len(s), ms(s[0]), ms(s[len(s)/2]), ms(s[len(s)-1]), submitted, ended)
}

// The silence of a partition is its longest time without an event that overlaps the window. It doesn't depend on the
// order in which events were read.
func TestSilences(t *testing.T) {
	start := time.UnixMilli(0)
	at := func(ms ...int) (times []time.Time) {
		for _, n := range ms {
			times = append(times, start.Add(time.Duration(n)*time.Millisecond))
		}
		return times
	}
	w := window{from: start.Add(1000 * time.Millisecond), to: start.Add(5000 * time.Millisecond)}
	got := w.longestSilences(map[int32][]time.Time{
		0: at(100, 900, 1200, 4900, 9000), // the silence ends within the window
		1: at(800, 1100, 2000, 3000, 4000, 6500),
		2: at(500, 100, 1500, 2500, 3500, 4500, 5500), // read in another order
		3: nil,                                        // silent throughout
		4: at(100),
	})
	want := []time.Duration{1000, 2500, 4000, 4100, 4900}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if !slices.Equal(got, want) {
		t.Errorf("silences %v, want %v", got, want)
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/verify"
)

// observer follows the events as anyone could, so that a test can wait for what
// happens. It goes on when the broker is killed and comes back. It is no
// witness: the verdict is checkLog's, over the log as kcat reads it.
type observer struct {
	mu     sync.Mutex
	states map[string]events.TaskState // of every task that was seen
	counts map[events.TaskState]int
	next   map[int32]int64
	log    *verify.Log
	err    error
	moved  chan struct{}
}

// observe begins to follow a system's events, until the end of the test.
func observe(t *testing.T, s *system) *observer {
	t.Helper()
	o := &observer{states: map[string]events.TaskState{}, counts: map[events.TaskState]int{}, next: map[int32]int64{},
		log: verify.NewLog(), moved: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	cfg := kafka.FollowerConfig{Config: s.config(), Group: string(s.ns) + "observer-" + uuid.NewString(),
		Topics: []string{s.ns.Events()}, Partitions: s.partitions, Start: o.start}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			err := o.follow(ctx, cfg)
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // the broker is dead
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return o
}

func (o *observer) start(_ context.Context, _ string, p int32) (int64, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next[p], true, nil
}

func (o *observer) follow(ctx context.Context, cfg kafka.FollowerConfig) error {
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	f, err := kafka.OpenFollower(opening, cfg)
	cancel()
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		records, err := f.Poll(ctx)
		if err != nil {
			return err
		}
		o.take(records)
	}
}

func (o *observer) take(records []events.Record) {
	if len(records) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range records {
		r := &records[i]
		if r.Offset < o.next[r.Partition] {
			continue // read again after a rebalance
		}
		o.next[r.Partition] = r.Offset + 1
		o.log.Add(r)
		if t := o.log.Task(string(r.Key)); t != nil && o.states[t.ID] != t.State {
			o.counts[o.states[t.ID]]--
			o.states[t.ID] = t.State
			o.counts[t.State]++
		}
	}
	close(o.moved)
	o.moved = make(chan struct{})
}

// ended is how many tasks have ended or are held.
func (o *observer) ended() int {
	n := o.counts[events.StateError]
	for s, k := range o.counts {
		if s.Terminal() {
			n += k
		}
	}
	return n
}

// await waits until done says so; done is called with the observer locked.
func (o *observer) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		ok, moved := done(), o.moved
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			o.mu.Lock()
			defer o.mu.Unlock()
			t.Fatalf("waited %s for %s; tasks by state: %v; reading: %v", patience, what, o.counts, o.err)
		}
	}
}

// awaitEnded waits until so many tasks have ended or are held, and returns how
// many had then.
func (o *observer) awaitEnded(t *testing.T, n int) (ended int) {
	t.Helper()
	o.await(t, fmt.Sprintf("%d tasks that have ended", n), func() bool {
		ended = o.ended()
		return ended >= n
	})
	return ended
}

// awaitState waits until a task is in a state.
func (o *observer) awaitState(t *testing.T, id string, state events.TaskState) {
	t.Helper()
	o.await(t, fmt.Sprintf("task %s in state %s", id, state), func() bool { return o.states[id] == state })
}

// checkLog reads the raw events with kcat and holds them against the promises:
// no ce_id twice, no gap in any task's seq, and all that the checkers know.
func checkLog(t *testing.T, s *system) *verify.Log {
	t.Helper()
	records := s.broker.ReadTopic(t, s.ns.Events())
	log, seen, last := verify.NewLog(), map[string]string{}, map[string]uint64{}
	for i := range records {
		r := &records[i]
		log.Add(r)
		id, _ := r.Header(events.HeaderID)
		if first, twice := seen[id]; twice {
			t.Errorf("ce_id %s twice: %s and %s", id, first, events.Origin(r))
		}
		seen[id] = events.Origin(r)
		if len(r.Key) == 0 {
			continue // of the partition: a claim
		}
		task := string(r.Key)
		seq, err := strconv.ParseUint(strings.TrimPrefix(id, task+"/"), 10, 64)
		if err != nil || seq != last[task]+1 {
			t.Errorf("%s: ce_id %s after seq %d of that task", events.Origin(r), id, last[task])
		}
		last[task] = seq
	}
	for _, f := range log.Faults {
		t.Error(f)
	}
	t.Logf("kcat read %d events of %d tasks", len(records), len(last))
	return log
}

// checkOrders holds how the orders ended, and what the services did, against
// what had to be.
func checkOrders(t *testing.T, log *verify.Log, ledger string, orders []demo.Order) {
	t.Helper()
	ids, states := make([]string, len(orders)), map[events.TaskState]int{}
	for i, o := range orders {
		ids[i] = o.ID
		switch task := log.Task(o.ID); {
		case task == nil:
			t.Errorf("order %s (%s) is not in the log", o.ID, o.Card)
		case task.State != o.Ends():
			t.Errorf("order %s (%s) is %s, must end %s: %v", o.ID, o.Card, task.State, o.Ends(), task.Error)
		default:
			states[task.State]++
		}
	}
	entries, err := demo.ReadLedger(ledger)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]int{}
	for _, e := range entries {
		if e.What == demo.Effect {
			if effects[e.Key]++; effects[e.Key] == 2 {
				t.Errorf("two effects for the key %s", e.Key)
			}
		}
	}
	for _, fault := range demo.Audit(entries, log.Task, ids) {
		t.Error(fault)
	}
	t.Logf("%d orders ended: %v; the ledger has %d lines, %d effects", len(orders), states, len(entries), len(effects))
}

// lines is how many lines a file has.
func lines(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

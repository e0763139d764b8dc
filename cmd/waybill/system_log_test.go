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
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/verify"
)

// observer follows the events and the inboxes, so that a test can wait for events, and has the records of inboxes,
// which are trimmed. It keeps following when the broker is killed and restarted. It doesn't decide a test: checkLog
// does, over the log as kcat reads it.
type observer struct {
	mu     sync.Mutex
	states map[string]events.TaskState // of every task that was seen, without children
	counts map[events.TaskState]int
	next   map[int32]int64
	log    *verify.Checker
	err    error
	moved  chan struct{}
	inputs *inboxes
}

// observe follows a system's events and inboxes until the end of the test.
func observe(t *testing.T, s *system) *observer {
	t.Helper()
	o := &observer{states: map[string]events.TaskState{}, counts: map[events.TaskState]int{}, next: map[int32]int64{},
		log: verify.New(verify.Options{Keep: true}), moved: make(chan struct{}), inputs: followInboxes(t, s)}
	follow(t, logreader.FollowerConfig{Config: s.config(), Group: string(s.ns) + "observer-" + uuid.NewString(),
		Topics: []string{s.ns.Events()}, Partitions: s.partitions, Start: o.start}, o.take, o.failed)
	return o
}

func (o *observer) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *observer) start(_ context.Context, _ string, p int32) (int64, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next[p], true, nil
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
		o.log.Event(r)
		if t := o.log.Task(string(r.Key)); t != nil && t.Parent == nil && o.states[t.ID] != t.State {
			o.counts[o.states[t.ID]]--
			o.states[t.ID] = t.State
			o.counts[t.State]++
		}
	}
	close(o.moved)
	o.moved = make(chan struct{})
}

// ended returns the number of tasks that have ended or are held. The caller holds o.mu.
func (o *observer) ended() int {
	n := o.counts[events.StateError]
	for s, k := range o.counts {
		if s.Terminal() {
			n += k
		}
	}
	return n
}

// begun returns the number of tasks that run, have ended or are held. On a busy machine some end before others begin. The
// caller holds o.mu.
func (o *observer) begun() int {
	return o.counts[events.StateProcessing] + o.counts[events.StateUndoing] + o.ended()
}

// await waits until done returns true. It calls done with o.mu locked.
func (o *observer) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(suite.Patience)
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
			t.Fatalf("waited %s for %s; tasks by state: %v; reading: %v", suite.Patience, what, o.counts, o.err)
		}
	}
}

// awaitEnded waits until n tasks have ended or are held, and returns the actual number.
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

// checkLog reads the raw events with kcat and checks them against the promises: no duplicate ce_id, no gap in a task's
// seq, and all that package verify checks, including the causes and the effects of events.
func checkLog(t *testing.T, s *system, said testimony) *verify.Checker {
	t.Helper()
	e := collect(t, s, func() []events.Record {
		records := s.broker.ReadTopic(t, s.ns.Events())
		checkNames(t, records, s.reusesIDs)
		return records
	}, said)
	e.verdict(t, said)
	return e.Checker
}

// checkNames checks ce_id and seq without decoding events. If ids are forgotten, an id may begin again with seq 1.
func checkNames(t *testing.T, records []events.Record, reusesIDs bool) {
	t.Helper()
	seen, last := map[string]string{}, map[string]uint64{}
	for i := range records {
		r := &records[i]
		id, _ := r.Header(events.HeaderID)
		if first, twice := seen[id]; twice && !reusesIDs {
			t.Errorf("ce_id %s twice: %s and %s", id, first, events.Origin(r))
		}
		seen[id] = events.Origin(r)
		if len(r.Key) == 0 {
			continue // a claim, which belongs to the partition
		}
		task := string(r.Key)
		seq, err := strconv.ParseUint(strings.TrimPrefix(id, task+"/"), 10, 64)
		if err != nil || seq != last[task]+1 && !(seq == 1 && reusesIDs) {
			t.Errorf("%s: ce_id %s after seq %d of that task", events.Origin(r), id, last[task])
		}
		last[task] = seq
	}
	t.Logf("kcat read %d events of %d tasks", len(records), len(last))
}

// idsOf returns the ids of orders.
func idsOf(orders []demo.Order) []string {
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	return ids
}

// checkOrders checks the log and the ledger, and compares how the orders ended with what is expected. The submission of
// every order was acknowledged.
func checkOrders(t *testing.T, s *system, inputs *inboxes, ledger string, orders []demo.Order) {
	t.Helper()
	log := checkLog(t, s, testimony{inputs, ledger, idsOf(orders)})
	states := map[events.TaskState]int{}
	for _, o := range orders {
		switch task := log.Task(o.ID); {
		case task == nil:
			t.Errorf("order %s (%s) is not in the log", o.ID, o.Card)
		case task.State != o.WantState():
			t.Errorf("order %s (%s) is %s, must end %s: %v", o.ID, o.Card, task.State, o.WantState(), task.Error)
		default:
			states[task.State]++
		}
	}
	t.Logf("%d orders ended: %v; the ledger has %d lines", len(orders), states, lines(t, ledger))
}

// lines returns the number of lines in a file.
func lines(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

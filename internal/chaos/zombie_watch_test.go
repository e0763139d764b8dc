package chaos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// fact is an event that the watch received.
type fact struct {
	*events.Event
	record  events.Record
	arrived time.Time // when it was received here, committed
	owner   string    // the owner of the partition by its last claim
}

// said is a record of another topic, with its source (ce_source).
type said struct {
	events.Record
	source  string
	arrived time.Time
}

// asked is a request with its position.
type asked struct {
	*events.Request
	record events.Record
}

// watch reads the committed records of a system, as any client could. Functions passed to it run with the lock held.
type watch struct {
	mu         sync.Mutex
	change     chan struct{}              // closed and replaced with each record
	next       map[string]map[int32]int64 // next offsets, by topic
	inputs     []events.Record            // of all inboxes, and requests
	facts      map[int32][]fact
	recoveries map[int32][]said
	replies    map[int32][]said
	requests   map[string]asked // by attemptOf
	ended      map[string]events.TaskState
	fault      error
}

func newWatch(t *testing.T, cfg kafka.Config) *watch {
	t.Helper()
	w := &watch{change: make(chan struct{}), next: map[string]map[int32]int64{}, facts: map[int32][]fact{}, recoveries: map[int32][]said{}, replies: map[int32][]said{},
		requests: map[string]asked{}, ended: map[string]events.TaskState{}}
	ns := cfg.Namespace
	ctx, cancel := context.WithCancel(context.Background())
	f, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: cfg, Group: string(ns) + "watch", Partitions: systemPartitions,
		Topics: append(ns.InboxTopics(), ns.Events(), ns.Requests(systemAgent)),
		Start:  w.start})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			records, err := f.Poll(ctx)
			if ctx.Err() != nil {
				return
			}
			w.take(ns, records, err)
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		f.Close()
	})
	return w
}

// start returns the next offset of a partition. On a busy machine the group may remove the watch. Records that it has
// already read may be trimmed when it rejoins.
func (w *watch) start(_ context.Context, topic string, p int32) (int64, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next[topic][p], true, nil
}

func (w *watch) take(ns events.Namespace, records []events.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i := range records {
		if err != nil {
			break
		}
		err = w.add(ns, records[i], now)
	}
	if err != nil && w.fault == nil {
		w.fault = err
	}
	close(w.change)
	w.change = make(chan struct{})
}

func (w *watch) add(ns events.Namespace, r events.Record, now time.Time) error {
	if w.next[r.Topic] == nil {
		w.next[r.Topic] = map[int32]int64{}
	}
	if r.Offset < w.next[r.Topic][r.Partition] {
		return nil // it was being processed when the partition was reassigned
	}
	w.next[r.Topic][r.Partition] = r.Offset + 1
	if r.Topic == ns.Events() {
		return w.addEvent(r, now)
	}
	w.inputs = append(w.inputs, r)
	source, _ := r.Header(events.HeaderSource)
	switch r.Topic {
	case ns.Inbox(events.Recoveries):
		w.recoveries[r.Partition] = append(w.recoveries[r.Partition], said{r, source, now})
	case ns.Inbox(events.Replies):
		w.replies[r.Partition] = append(w.replies[r.Partition], said{r, source, now})
	case ns.Requests(systemAgent):
		q, err := events.DecodeRequest(&r)
		if err != nil {
			return err
		}
		w.requests[events.RequestID(q.Task, q.Ref)] = asked{q, r}
	}
	return nil
}

func (w *watch) addEvent(r events.Record, now time.Time) error {
	e, err := events.DecodeEvent(&r)
	if err != nil {
		return err
	}
	f := fact{Event: e, record: r, arrived: now}
	if had := w.facts[r.Partition]; len(had) > 0 {
		f.owner = had[len(had)-1].owner
	}
	switch of := e.Fact.(type) {
	case *events.PartitionClaimed:
		f.owner = of.Owner
	case *events.TaskProcessed:
		w.ended[e.Task] = events.StateProcessed
	case *events.TaskUndone:
		w.ended[e.Task] = events.StateUndone
	case *events.TaskHeld:
		w.ended[e.Task] = events.StateError
	}
	w.facts[r.Partition] = append(w.facts[r.Partition], f)
	return nil
}

// await waits until cond returns true.
func (w *watch) await(t *testing.T, what string, within time.Duration, cond func() bool) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		w.mu.Lock()
		holds, change, fault, ended := cond(), w.change, w.fault, len(w.ended)
		w.mu.Unlock()
		if fault != nil {
			t.Fatalf("waiting for %s: the watch: %v", what, fault)
		}
		if holds {
			return
		}
		select {
		case <-change:
		case <-timer.C:
			t.Fatalf("not within %s: %s (%d tasks ended)", within, what, ended)
		}
	}
}

// attemptOf returns the id of the attempt that a reply belongs to; empty: none.
func attemptOf(r *events.Record) string {
	request, _ := r.Header(events.HeaderRequest)
	task, ref, _, err := events.ParseRequest(request)
	if err != nil {
		return ""
	}
	return events.RequestID(task, ref)
}

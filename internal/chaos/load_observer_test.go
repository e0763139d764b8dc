package chaos

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/demo"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/verify"
)

// observer follows events and inboxes, without the proxies, as any client could, and feeds the checkers. The other
// parts of the test read from it which tasks are held and whether all tasks are done.
type observer struct {
	cfg      kafka.Config
	services *demo.Services

	mu      sync.Mutex
	checker *verify.Checker
	next    map[place]int64
	gaps    int                         // number of ranges of inboxes that were trimmed before they were read
	states  map[string]events.TaskState // of every observed task
	counts  map[events.TaskState]int
	held    map[string]bool
	events  int
	refunds int // processed tasks that were undone
	err     error
	moved   chan struct{} // closed and replaced after each observation
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// observe follows events and inboxes until the end of the test, and checks them by the options.
func observe(t *testing.T, cfg kafka.Config, services *demo.Services, against verify.Options) *observer {
	t.Helper()
	o := &observer{cfg: cfg, services: services, checker: verify.New(against), next: map[place]int64{},
		states: map[string]events.TaskState{}, counts: map[events.TaskState]int{}, held: map[string]bool{}, moved: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	for name, topics := range map[string][]string{"events": {cfg.Namespace.Events()}, "inboxes": cfg.Namespace.InboxTopics()} {
		following.Go(func() {
			kafkatest.Follow(ctx, logreader.FollowerConfig{Config: cfg, Group: string(cfg.Namespace) + "observer-" + name, Topics: topics,
				Partitions: events.DefaultPartitions, Start: o.start}, o.applyRecords, o.failed)
		})
	}
	t.Cleanup(func() {
		stop()
		following.Wait()
	})
	return o
}

// failed records why a follower was restarted. It must resume at a new position if an inbox was trimmed meanwhile.
func (o *observer) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	var trimmed *logreader.OffsetRangeError
	if errors.As(err, &trimmed) {
		o.gaps++
		o.next[place{trimmed.Topic, trimmed.Partition}] = trimmed.Start
	}
}

func (o *observer) start(_ context.Context, topic string, p int32) (int64, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next[place{topic, p}], true, nil
}

func (o *observer) applyRecords(records []events.Record) {
	if len(records) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range records {
		r := &records[i]
		at := place{r.Topic, r.Partition}
		if r.Offset < o.next[at] {
			continue // already read, before a rebalance
		}
		o.next[at] = r.Offset + 1
		if r.Topic != o.cfg.Namespace.Events() {
			o.checker.Input(r)
			continue
		}
		o.events++
		if e := o.checker.Event(r); e != nil && e.Task != "" {
			o.evolved(e)
		}
	}
	close(o.moved)
	o.moved = make(chan struct{})
}

// evolved records the change by a task's event. It derives the task's state from the kind of the event alone, because
// the checker drops ended tasks.
func (o *observer) evolved(e *events.Event) {
	before := o.states[e.Task]
	state := before
	switch f := e.Fact.(type) {
	case *events.TaskReceived:
		state = events.StatePending
	case *events.TaskStarted:
		state = events.StateProcessing
	case *events.TaskProcessed:
		state = events.StateProcessed
	case *events.TaskUndoing:
		state = events.StateUndoing
		if before == events.StateProcessed {
			o.refunds++
		}
	case *events.TaskUndone:
		state = events.StateUndone
	case *events.TaskCancelled:
		state = events.StateCancelled
	case *events.TaskHeld:
		state = events.StateError
	case *events.TaskResumed:
		state = events.StateProcessing
	case *events.RunReleased:
		o.applyRelease(e.Task, f)
	}
	if t := o.checker.Task(e.Task); t != nil {
		state = t.State
	}
	o.counts[before]--
	o.counts[state]++
	o.states[e.Task] = state
	if state == events.StateError {
		o.held[e.Task] = true
	} else {
		delete(o.held, e.Task)
	}
}

// stateOf returns the state of a task; empty: it wasn't seen.
func (o *observer) stateOf(id string) events.TaskState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.states[id]
}

// applyRelease performs the effect that an operator declared done by releasing a step.
func (o *observer) applyRelease(id string, f *events.RunReleased) {
	t := o.checker.Task(id)
	if t == nil {
		return
	}
	i, ok := t.Plan.Step(f.Step)
	if !ok {
		return
	}
	s := t.Steps[i]
	c := demo.Call{Service: "operator", Operation: "settle", Key: s.Key}
	if f.As == events.StepUndone {
		c.Key, c.UndoKey = "settled/"+s.Key, s.Key
	}
	// A key that was undone meanwhile is refused, correctly.
	_, _ = o.services.Do(context.Background(), c)
}

// settled returns how many tasks have ended or are held.
func (o *observer) settled() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.counts[events.StateError]
	for s, k := range o.counts {
		if s.Terminal() {
			n += k
		}
	}
	return n
}

// open returns up to most ids of the given tasks that have neither ended nor are held.
func (o *observer) open(ids map[string]time.Time, most int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for id := range ids {
		if s := o.states[id]; !s.Terminal() && s != events.StateError {
			if all = append(all, id); len(all) == most {
				break
			}
		}
	}
	return all
}

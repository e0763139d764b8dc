package batchrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// site is a namespace without schedulers: a goroutine answers commands, unless it is silent.
type site struct {
	t     *testing.T
	cfg   kafka.Config
	admin *kafkaadmin.Admin
	send  *kafka.Producer

	silent   atomic.Bool
	mu       sync.Mutex
	commands map[string]map[string]int // by task and request id
}

func newSite(t *testing.T) *site {
	_, cfg := kafkatest.Fake(t)
	s := &site{t: t, cfg: cfg, admin: kafkatest.OpenAdmin(t, cfg), send: kafkatest.OpenProducer(t, cfg), commands: map[string]map[string]int{}}
	if _, err := s.admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	tail, err := logreader.OpenTail(cfg, cfg.Namespace.Inbox(events.Controls), map[int32]int64{0: 0, 1: 0})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var answering sync.WaitGroup
	answering.Go(func() { s.answer(ctx, tail) })
	t.Cleanup(func() {
		stop()
		answering.Wait()
		tail.Close()
	})
	return s
}

func (s *site) answer(ctx context.Context, tail *logreader.Tail) {
	for {
		rs, err := tail.Poll(ctx)
		if err != nil {
			return
		}
		for i := range rs {
			task, in, err := events.DecodeInput(events.Controls, &rs[i])
			if err != nil {
				s.t.Error(err)
				continue
			}
			x := in.(*events.Control)
			s.mu.Lock()
			if s.commands[task] == nil {
				s.commands[task] = map[string]int{}
			}
			s.commands[task][x.RequestID]++
			s.mu.Unlock()
			if s.silent.Load() {
				continue
			}
			a := events.Answer{Task: task, Control: x.RequestID, Accepted: true, Seq: 5, State: events.StateUndoing}
			s.send.SendAsync(ctx, a.Record(s.cfg.Namespace, "test"), func(events.Record, error) {})
		}
	}
}

// open starts a service of a process. end ends it.
func (s *site) open(change func(*Config)) (service *Service, end func()) {
	s.t.Helper()
	cfg := Config{Kafka: s.cfg, Admin: s.admin, Producer: s.send, Source: "test", Log: slog.New(slog.DiscardHandler), AnswerTimeout: time.Second,
		Look: func(_ context.Context, task string) (*events.TaskView, error) {
			return &events.TaskView{ID: task, State: events.StateUndone}, nil
		}}
	if change != nil {
		change(&cfg)
	}
	service = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = service.Run(ctx) }) // it returns none
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	s.t.Cleanup(end)
	if err := service.AwaitRead(kafkatest.Bounded(s.t)); err != nil {
		s.t.Fatal(err)
	}
	return service, end
}

// await waits until a batch is as it is wanted.
func (s *site) await(service *Service, id string, wanted func(*batch.View) bool) *batch.View {
	s.t.Helper()
	ctx := kafkatest.Bounded(s.t)
	for {
		changed := service.Changed()
		v, err := service.Find(id)
		if err == nil && v != nil && wanted(v) {
			return v
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.t.Fatalf("%+v, %v", v, err)
		}
	}
}

func (s *site) targets(n int) (targets []batch.Target) {
	for i := range n {
		targets = append(targets, batch.Target{Task: fmt.Sprintf("o-%d", i), Workflow: "order", Version: 1, State: events.StateError})
	}
	return targets
}

func (s *site) create(service *Service, o batch.Order, n int) *batch.View {
	s.t.Helper()
	o.Command, o.Claimed, o.Why = events.UndoTask, "olga", "a test"
	v, created, err := service.Create(s.t.Context(), o, s.targets(n))
	if err != nil || !created {
		s.t.Fatalf("%v, %v", created, err)
	}
	return v
}

// oneRequestID reports tasks that didn't get commands with one and the same request id.
func (s *site) oneRequestID(id string, n int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		task := fmt.Sprintf("o-%d", i)
		if ids := slices.Collect(maps.Keys(s.commands[task])); !slices.Equal(ids, []string{batch.RequestID(id, task)}) {
			s.t.Errorf("%s got commands with the ids %q", task, ids)
		}
	}
}

func hasEnded(v *batch.View) bool { return v.Ended != nil }

// TestAnotherProcessContinues: when the process that sends ends, another one sends the rest. Both know everything.
func TestAnotherProcessContinues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, end := s.open(nil)
	s.create(first, batch.Order{ID: "b-1", Rate: 100}, 300)
	s.await(first, "b-1", func(v *batch.View) bool { return v.Counts[batch.Waiting] < 250 })
	var accepted, open, mostWaiting atomic.Int64 // of the second process
	second, endSecond := s.open(func(c *Config) {
		c.Listener = Listener{
			Commanded: func(result batch.Status) {
				if result == batch.Accepted {
					accepted.Add(1)
				}
			},
			Open: func(batches, waiting int) {
				open.Store(int64(batches))
				mostWaiting.Store(max(mostWaiting.Load(), int64(waiting)))
			}}
	})
	if list, err := second.List(); err != nil || len(list) != 1 || !first.Sends() || second.Sends() {
		t.Errorf("%v, %v", list, err)
	}
	end()
	if v := s.await(second, "b-1", hasEnded); v.Ended.Why != "" || v.Counts[batch.Accepted]+v.Counts[batch.Passed] != 300 || v.Counts[batch.Passed] == 0 {
		t.Errorf("%+v", v)
	}
	if results, next, err := second.Results("b-1", 290, "", 100); err != nil || len(results) != 10 || next != -1 || results[0].RequestID != batch.RequestID("b-1", "o-290") {
		t.Errorf("%+v, %d, %v", results, next, err)
	}
	s.oneRequestID("b-1", 300)
	if endSecond(); open.Load() != 0 || accepted.Load() == 0 || mostWaiting.Load() == 0 {
		t.Errorf("the listener had %d accepted commands, at most %d waiting tasks, and at the end %d open batches", accepted.Load(), mostWaiting.Load(), open.Load())
	}
}

// TestNobodyAnswers: a batch waits for a scheduler and says so. Then it goes on with the same request ids. It can be stopped
// meanwhile.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.silent.Store(true)
	service, _ := s.open(nil)
	s.create(service, batch.Order{ID: "b-1"}, 3)
	s.await(service, "b-1", func(v *batch.View) bool { return v.Counts[batch.Unanswered] == 3 && v.Trouble != "" })
	s.silent.Store(false)
	if v := s.await(service, "b-1", hasEnded); v.Ended.Why != "" || v.Trouble != "" || v.Counts[batch.Accepted]+v.Counts[batch.Passed] != 3 {
		t.Errorf("%+v", v)
	}
	s.oneRequestID("b-1", 3)
	s.silent.Store(true)
	s.create(service, batch.Order{ID: "b-2"}, 3)
	if v, err := service.Stop(t.Context(), "b-2", batch.StopRequest{Claimed: "olga", Why: "enough"}); err != nil || v.Stop == nil {
		t.Errorf("%+v, %v", v, err)
	}
	if v := s.await(service, "b-2", hasEnded); v.Ended.Why != "olga stopped it: enough" {
		t.Errorf("%+v", v.Ended)
	}
	if _, err := service.Stop(t.Context(), "b-1", batch.StopRequest{Why: "late"}); !errors.Is(err, batch.ErrEnded) {
		t.Errorf("%v", err)
	}
}

// TestUnreadableCanary: a batch whose canary can't be read says so, until it can, although no task has another result
// meanwhile. If the canary's time is over first, the reason says so.
func TestUnreadableCanary(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var state atomic.Value // of all tasks; empty: they can't be read
	state.Store(events.TaskState(""))
	service, _ := s.open(func(c *Config) {
		c.Look = func(_ context.Context, task string) (*events.TaskView, error) {
			v := &events.TaskView{ID: task, State: state.Load().(events.TaskState)}
			if v.State == "" {
				return nil, errors.New("no leader")
			}
			return v, nil
		}
	})
	const unreadable = "the state of o-0 can't be read: no leader"
	s.create(service, batch.Order{ID: "b-1", Canary: 1, CanaryWithin: time.Minute.Milliseconds()}, 3)
	s.await(service, "b-1", func(v *batch.View) bool { return v.Trouble == unreadable+"; it is read again" })
	state.Store(events.StateUndoing)
	if v := s.await(service, "b-1", func(v *batch.View) bool { return v.Trouble == "" }); v.Ended != nil || v.Counts[batch.Accepted] != 1 {
		t.Errorf("%+v", v)
	}
	state.Store(events.StateUndone)
	if v := s.await(service, "b-1", hasEnded); v.Ended.Why != "" || v.Counts[batch.Passed] == 0 {
		t.Errorf("%+v", v)
	}
	state.Store(events.TaskState(""))
	s.create(service, batch.Order{ID: "b-2", Canary: 1, CanaryWithin: (1500 * time.Millisecond).Milliseconds()}, 3)
	if v := s.await(service, "b-2", hasEnded); !v.Ended.TimedOut || v.Ended.Why != "1 of 1 canaries haven't passed within 1.5s: "+unreadable || v.Counts[batch.Waiting] != 2 {
		t.Errorf("%+v, %+v", v, v.Ended)
	}
}

// TestIDsOfBatches: an order with the id of another one is refused, or is the same one. A process that sends for nobody sends
// nothing. The number of open batches is bounded.
func TestIDsOfBatches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	service, _ := s.open(func(c *Config) { c.Sends = func(string) bool { return false } })
	s.create(service, batch.Order{ID: "b-0"}, 1)
	same := batch.Order{ID: "b-0", Command: events.UndoTask, Why: "again"}
	if v, created, err := service.Create(t.Context(), same, s.targets(5)); err != nil || created || v.Tasks != 1 {
		t.Errorf("%+v, %v, %v", v, created, err)
	}
	if _, _, err := service.Create(t.Context(), batch.Order{ID: "b-0", Command: events.Cancel, Why: "x"}, s.targets(1)); !errors.Is(err, batch.ErrOther) {
		t.Errorf("%v", err)
	}
	for i := 1; i < batch.ActiveMax; i++ {
		s.create(service, batch.Order{ID: fmt.Sprint("b-", i)}, 1)
	}
	if _, _, err := service.Create(t.Context(), batch.Order{ID: "more", Command: events.Cancel, Why: "x"}, s.targets(1)); !errors.Is(err, batch.ErrTooMany) {
		t.Errorf("%v", err)
	}
	if v, err := service.Find("b-0"); err != nil || v.Counts[batch.Waiting] != 1 || len(s.commands) > 0 {
		t.Errorf("%+v, %v: %v", v, err, s.commands)
	}
}

// Sends reports whether this process sends the commands of batches.
func (s *Service) Sends() bool {
	s.topic.Lock()
	defer s.topic.Unlock()
	return s.sends
}

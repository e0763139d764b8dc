package schedulerun

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/topicowner"
)

// Config configures a Service.
type Config struct {
	Kafka    kafka.Config
	Admin    *kafkaadmin.Admin
	Producer *kafka.Producer
	// Source is the ce_source of records.
	Source string
	Log    *slog.Logger
	// Now is the brokers' time. nil: this process never decides.
	Now func() time.Time
	// Session is when the death of a process is noticed. Zero: the default.
	Session time.Duration
	// Decided is called for each decision of this process, with how late it is. May be nil.
	Decided func(decision any, late time.Duration)
}

// Service knows all schedules, and decides while its process has the partition. It is safe for concurrent use.
type Service struct {
	cfg     Config
	records schedule.Records
	topic   *topicowner.Topic // its lock guards state
	state   *schedule.State
	defined chan struct{} // closed when the definitions are read to their end
	once    sync.Once
	watch   *logreader.Definitions // set before defined is closed
}

// New returns a service. Run makes it work.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, records: schedule.Records{Namespace: cfg.Kafka.Namespace, Source: cfg.Source}, state: schedule.NewState(), defined: make(chan struct{})}
	ns := cfg.Kafka.Namespace
	topic := topicowner.Config{Kafka: cfg.Kafka, Admin: cfg.Admin, Producer: cfg.Producer, Log: cfg.Log, Topic: ns.Schedules(), Group: ns.SchedulesGroup(), What: "schedules",
		NotRead: schedule.ErrNotRead, Session: cfg.Session, Start: s.start, Reset: func() { s.state.ResetRecords() }, Apply: func(rs []events.Record) {
			for i := range rs {
				s.state.Apply(&rs[i])
			}
		}}
	if cfg.Now != nil {
		topic.Own = s.own
	}
	s.topic = topicowner.New(topic)
	return s
}

// Run follows the schedules, and starts their tasks while the group assigns the partition to this process. It returns when
// ctx ends, or if the definitions can't be followed any more.
func (s *Service) Run(ctx context.Context) error {
	watch, err := logreader.WatchDefinitions(ctx, s.cfg.Kafka, func(r events.Record) {
		s.topic.Lock()
		defer s.topic.Unlock()
		s.state.ApplyDefinition(&r)
		s.topic.Notify()
	})
	if err != nil {
		return err
	}
	defer watch.Close()
	s.watch = watch
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() {
		s.topic.Restarting(ctx, "read the definitions", func(ctx context.Context) error {
			if err := watch.ReadToEndNow(ctx); err != nil {
				return err
			}
			s.once.Do(func() { close(s.defined) })
			<-ctx.Done()
			return nil
		})
	})
	parts.Go(func() { _ = s.topic.Run(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-watch.Done():
		return watch.Err()
	}
}

// AwaitRead returns as soon as the definitions and the topic of schedules were read to their ends once.
func (s *Service) AwaitRead(ctx context.Context) error {
	select {
	case <-s.defined:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", schedule.ErrNotRead, ctx.Err())
	}
	return s.topic.AwaitRead(ctx)
}

// ready returns why the schedules aren't known; nil: they are. The caller holds the lock.
func (s *Service) ready() error {
	select {
	case <-s.defined:
		return s.topic.Ready()
	default:
		return schedule.ErrNotRead
	}
}

// List returns all schedules, by name.
func (s *Service) List() ([]schedule.Schedule, error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	list := []schedule.Schedule{}
	for _, k := range s.state.All() {
		list = append(list, k.View(false))
	}
	return list, nil
}

// Find returns a schedule. It returns schedule.ErrNotFound if there is none.
func (s *Service) Find(name string) (*schedule.Schedule, error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	k := s.state.Find(name)
	if k == nil {
		return nil, schedule.ErrNotFound
	}
	v := k.View(true)
	return &v, nil
}

// AwaitDefinitions returns as soon as this process knows the definitions that are written now.
func (s *Service) AwaitDefinitions(ctx context.Context) error {
	if err := s.AwaitRead(ctx); err != nil {
		return err
	}
	return s.watch.ReadToEndNow(ctx)
}

// Trigger asks for a task now. It returns the id of the request.
func (s *Service) Trigger(ctx context.Context, name string, by events.By) (request string, err error) {
	q := schedule.Request{ID: by.RequestID, By: by.Who, Claimed: by.Claimed, Why: by.Why}
	return s.ask(ctx, name, q, s.records.Trigger)
}

// Backfill asks for the tasks of the instants from one on, up to another one, which isn't one of them. They must be past by this
// machine's clock; the owner, which has the brokers' time, leaves out those that aren't.
func (s *Service) Backfill(ctx context.Context, name string, from, to time.Time, by events.By) (request string, instants int, err error) {
	s.topic.Lock()
	k := s.state.Find(name)
	if k != nil {
		instants, err = k.CheckBackfill(from, to, time.Now())
	}
	s.topic.Unlock()
	if err != nil {
		return "", 0, err
	}
	q := schedule.Request{ID: by.RequestID, From: from.UTC(), To: to.UTC(), By: by.Who, Claimed: by.Claimed, Why: by.Why}
	request, err = s.ask(ctx, name, q, s.records.Backfill)
	return request, instants, err
}

func (s *Service) ask(ctx context.Context, name string, q schedule.Request, record func(string, schedule.Request) (events.Record, error)) (string, error) {
	s.topic.Lock()
	err := s.ready()
	if err == nil {
		if k := s.state.Find(name); k == nil {
			err = schedule.ErrNotFound
		} else {
			err = k.CheckRequest()
		}
	}
	s.topic.Unlock()
	if err != nil {
		return "", err
	}
	if q.ID == "" {
		q.ID = uuid.NewString()
	}
	r, err := record(name, q)
	if err != nil {
		return "", err
	}
	return q.ID, s.topic.Write(ctx, r)
}

// AwaitRequest returns what became of a trigger as soon as it is decided.
func (s *Service) AwaitRequest(ctx context.Context, name, request string) (*schedule.ScheduleInstant, error) {
	for {
		changed := s.topic.Changed()
		v, err := s.Find(name)
		if err != nil {
			return nil, err
		}
		for i := range v.Recent {
			if v.Recent[i].Request == request {
				return &v.Recent[i], nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("the request is in the log, but no supervisor has handled it yet; is one running? %w", ctx.Err())
		}
	}
}

// Changed returns a channel that is closed at the next change.
func (s *Service) Changed() <-chan struct{} { return s.topic.Changed() }

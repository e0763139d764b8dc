package batchrun

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/topicowner"
)

const (
	// AnswerTimeout bounds the wait for a scheduler's answer to a command. Then the command is sent again.
	AnswerTimeout = 30 * time.Second
	// reportInterval is the longest time that a result waits to be reported.
	reportInterval = time.Second
	// looksMax bounds the concurrent looks at tasks, of a batch.
	looksMax = 8
	// writeTimeout bounds the wait for the acknowledgement of the targets of a batch.
	writeTimeout = 15 * time.Second
)

// Config configures a Service.
type Config struct {
	Kafka    kafka.Config
	Admin    *kafkaadmin.Admin
	Producer *kafka.Producer
	// Source is the ce_source of records.
	Source string
	Log    *slog.Logger
	// Look returns a task as of the end of the log.
	Look func(ctx context.Context, task string) (*events.TaskView, error)
	// Sends reports whether this process sends the commands of a batch while it has the partition; nil: of all.
	Sends func(id string) bool
	// ReadOnly: this process never sends.
	ReadOnly bool
	// Session is when the death of a process is noticed. Zero: the default.
	Session time.Duration
	// AnswerTimeout: zero: the constant.
	AnswerTimeout time.Duration
	Listener      Listener
}

// Listener is called by the process that sends. Its functions may be nil.
type Listener struct {
	// Commanded is called for each command with what became of it: accepted, refused or unanswered.
	Commanded func(batch.Status)
	// Open is called when batches change, with the number of those that haven't ended, and of their tasks that have no
	// command yet. When another process sends, it is called with zeros.
	Open func(batches, waiting int)
}

// Service knows all batches, and sends their commands while its process has the partition. It is safe for concurrent use.
type Service struct {
	cfg     Config
	records batch.Records

	topic *topicowner.Topic // its lock guards the rest
	fold  *batch.Fold
	sends bool // this process sends
}

// New returns a service. Run makes it work.
func New(cfg Config) *Service {
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, AnswerTimeout)
	s := &Service{cfg: cfg, records: batch.Records{Namespace: cfg.Kafka.Namespace, Source: cfg.Source}, fold: batch.NewFold()}
	topic := topicowner.Config{Kafka: cfg.Kafka, Admin: cfg.Admin, Producer: cfg.Producer, Log: cfg.Log, Topic: cfg.Kafka.Namespace.Batches(), Group: cfg.Kafka.Namespace.BatchesGroup(),
		What: "batches", NotRead: batch.ErrNotRead, Session: cfg.Session, Reset: func() { s.fold = batch.NewFold() }, Apply: func(rs []events.Record) {
			for i := range rs {
				s.fold.Apply(&rs[i])
			}
		}}
	if !cfg.ReadOnly {
		topic.Own = s.send
	}
	s.topic = topicowner.New(topic)
	return s
}

// Run follows the batches, and sends their commands while the group assigns the partition to this process. It returns when
// ctx ends. A failure doesn't end it: a console answers everything else without batches.
func (s *Service) Run(ctx context.Context) error { return s.topic.Run(ctx) }

// SetLook sets Config.Look. It is called before Run.
func (s *Service) SetLook(look func(context.Context, string) (*events.TaskView, error)) {
	s.cfg.Look = look
}

// List returns all batches, the newest first.
func (s *Service) List() ([]*batch.View, error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	if err := s.topic.Ready(); err != nil {
		return nil, err
	}
	var list []*batch.View
	for _, k := range s.fold.All() {
		list = append(list, k.View())
	}
	slices.Reverse(list)
	return list, nil
}

// Find returns a batch; nil: there is none.
func (s *Service) Find(id string) (*batch.View, error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	if err := s.topic.Ready(); err != nil {
		return nil, err
	}
	if k := s.fold.Find(id); k != nil {
		return k.View(), nil
	}
	return nil, nil
}

// Results returns at most limit results of a batch, from the task with a number on. next is the number after them; -1: there
// are no more. status selects; empty: all.
func (s *Service) Results(id string, from int, status batch.Status, limit int) (list []batch.Result, next int, err error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	k := s.fold.Find(id)
	if k == nil {
		return nil, -1, s.topic.Ready()
	}
	list, next = k.Page(from, status, limit)
	return list, next, nil
}

// Create writes a batch, and returns it as soon as this process has read it. If there is a batch with its id already, and it
// is the same command, that one is returned.
func (s *Service) Create(ctx context.Context, o batch.Order, targets []batch.Target) (v *batch.View, created bool, err error) {
	if v, err := s.existing(&o); v != nil || err != nil {
		return v, false, err
	}
	o.Draft = uuid.NewString()
	pieces, order, err := s.records.Ordered(o, targets)
	if err != nil {
		return nil, false, err
	}
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.cfg.Producer.Send(within, pieces...); err != nil {
		return nil, false, err
	}
	if err := s.topic.Write(ctx, order); err != nil {
		return nil, false, err
	}
	s.topic.Lock()
	defer s.topic.Unlock()
	k := s.fold.Find(o.ID)
	switch {
	case k == nil:
		return nil, false, fmt.Errorf("the batch %s was written, but isn't in the topic: was it deleted?", o.ID)
	case k.Draft != o.Draft && !k.Same(&o):
		return nil, false, batch.ErrOther
	}
	return k.View(), k.Draft == o.Draft, nil
}

// existing returns the batch that an order repeats; nil: there is none.
func (s *Service) existing(o *batch.Order) (*batch.View, error) {
	s.topic.Lock()
	defer s.topic.Unlock()
	if err := s.topic.Ready(); err != nil {
		return nil, err
	}
	k := s.fold.Find(o.ID)
	switch {
	case k != nil && !k.Same(o):
		return nil, batch.ErrOther
	case k != nil:
		return k.View(), nil
	case len(s.fold.Active()) >= batch.ActiveMax:
		return nil, batch.ErrTooMany
	}
	return nil, nil
}

// Stop asks to stop a batch, and returns it as soon as this process has read the request.
func (s *Service) Stop(ctx context.Context, id string, by batch.StopRequest) (*batch.View, error) {
	v, err := s.Find(id)
	switch {
	case err != nil || v == nil || v.Stop != nil:
		return v, err
	case v.Ended != nil:
		return v, batch.ErrEnded
	}
	r, err := s.records.StopRequested(id, by)
	if err == nil {
		err = s.topic.Write(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return s.Find(id)
}

// AwaitRead returns as soon as the topic was read to its end once.
func (s *Service) AwaitRead(ctx context.Context) error { return s.topic.AwaitRead(ctx) }

// Changed returns a channel that is closed at the next change of a batch.
func (s *Service) Changed() <-chan struct{} { return s.topic.Changed() }

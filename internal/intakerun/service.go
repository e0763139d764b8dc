package intakerun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/listener"
)

// Schemas decodes values of the format avro.
type Schemas interface {
	// Decode returns a value as JSON, or why it can't be used, or an error if the registry can't be asked now.
	Decode(ctx context.Context, value []byte) (json.RawMessage, *events.Unusable, error)
}

// Config configures a Service.
type Config struct {
	Kafka kafka.Config
	Admin *kafkaadmin.Admin
	// Owner is the process's unique name in the namespace.
	Owner string
	// InstanceID returns the group instance id of a member; nil, or an empty text: a dynamic member.
	InstanceID func(intake string, worker int) string
	// LeaveOnClose reports whether a static member leaves its group when it closes.
	LeaveOnClose func() bool
	// Only are the intakes to run; empty: all.
	Only []string
	// Workers is how many workers each intake has in this process; more than its topic has partitions don't help.
	Workers int
	// Schemas decodes Avro; nil: intakes of that format don't run here.
	Schemas Schemas
	// Session, Transaction and FetchMaxWait are as in schedulerworker.Config.
	Session, Transaction, FetchMaxWait time.Duration
	Log                                *slog.Logger
	// Wrap replaces the Kafka client of a worker; nil: none is replaced. Tests stop and kill processes there.
	Wrap     func(Client) Client
	Listener *Listener
}

// Listener observes a Service. Its fields may be nil. They are called from several goroutines, and must not block.
type Listener struct {
	// Committed: a transaction was committed, with the counts of its records.
	Committed func(intake string, n Counts)
	// Failed: a worker of an intake failed, and is opened again.
	Failed func(intake string, err error)
	// Alert: an operator should look at an intake.
	Alert func(intake, code, message string)
	// Running: the intakes that this process runs may have changed; their topics, by name.
	Running func(topics map[string]string)
}

// Counts are what became of the records of a transaction.
type Counts struct {
	Submissions, Signals, Skipped int
	Deadletters                   map[events.Reason]int
}

// Service runs intakes. Run makes it work.
type Service struct {
	cfg Config

	mu      sync.Mutex
	current map[string]*events.NamedDefinition
	changed chan struct{}
}

// New returns a service.
func New(cfg Config) *Service {
	cfg.Listener = listener.Complete(cfg.Listener)
	cfg.Workers = max(1, cfg.Workers)
	return &Service{cfg: cfg, current: map[string]*events.NamedDefinition{}, changed: make(chan struct{}, 1)}
}

// Run follows the definitions and runs the intakes until ctx ends. No intake starts before the definitions are read to their
// end. It fails if the definitions can't be followed.
func (s *Service) Run(ctx context.Context) error {
	watch, err := logreader.WatchDefinitions(ctx, s.cfg.Kafka, s.apply)
	if err != nil {
		return err
	}
	defer watch.Close()
	running := map[string]*consumer{}
	defer func() {
		for _, c := range running {
			c.stop()
		}
	}()
	for read := s.awaitDefinitions(ctx, watch); read; {
		s.reconcile(ctx, running)
		select {
		case <-ctx.Done():
			return nil
		case <-watch.Done():
			read = false
		case <-s.changed:
		}
	}
	if err := watch.Err(); err != nil {
		return fmt.Errorf("follow the definitions of intakes: %w", err)
	}
	return nil
}

// awaitDefinitions waits until the definitions are read to their end: a later record may pause, replace or delete the
// intake of an earlier one. read is false if the watch or ctx has ended before.
func (s *Service) awaitDefinitions(ctx context.Context, watch *logreader.Definitions) (read bool) {
	var warned time.Time
	for failures := 1; ; failures++ {
		err := watch.ReadToEndNow(ctx)
		if err == nil {
			return true
		}
		select {
		case <-watch.Done():
			return false
		default:
		}
		if ctx.Err() == nil && time.Since(warned) > warnInterval {
			warned = time.Now()
			s.cfg.Log.Warn("the definitions can't be read to their end; intakes wait, and the read is retried", "error", err)
		}
		if backoff.Sleep(ctx, backoff.After(restartWaitMin, restartWaitMax, failures)) != nil {
			return false
		}
	}
}

// apply is called with each record of the definitions.
func (s *Service) apply(r events.Record) {
	d, is, err := events.DecodeNamedDefinition(&r)
	if !is || d.Kind != events.IntakeDefinition || len(s.cfg.Only) > 0 && !slices.Contains(s.cfg.Only, d.Name) {
		return
	}
	s.mu.Lock()
	switch {
	case err != nil:
		s.cfg.Log.Error("intake can't be used; apply it again", "intake", d.Name, "error", err)
		delete(s.current, d.Name)
	case len(d.Body) == 0:
		delete(s.current, d.Name)
	default:
		s.current[d.Name] = d
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// reconcile stops and starts intakes, so that those run that are defined.
func (s *Service) reconcile(ctx context.Context, running map[string]*consumer) {
	s.mu.Lock()
	current := make(map[string]*events.NamedDefinition, len(s.current))
	for name, d := range s.current {
		current[name] = d
	}
	s.mu.Unlock()
	for name, c := range running {
		d := current[name]
		if d != nil && bytes.Equal(d.Body, c.body) {
			c.setPaused(d.Paused != nil)
			continue
		}
		c.stop()
		delete(running, name)
		s.cfg.Log.Info("intake stopped in this process", "intake", name, "changed", d != nil)
	}
	for name, d := range current {
		if running[name] != nil {
			continue
		}
		program, err := intake.ParseStored(d.Body, s.cfg.Kafka.Namespace)
		if err == nil && program.Definition.Format == intake.Avro && s.cfg.Schemas == nil {
			err = fmt.Errorf("this process has no schema registry; start it with --schema-registry")
		}
		if err != nil {
			s.cfg.Log.Error("intake doesn't run in this process", "intake", name, "error", err)
			s.cfg.Listener.Failed(name, err)
			continue
		}
		c := &consumer{s: s, program: program, body: d.Body, opened: map[int]Client{}}
		c.paused.Store(d.Paused != nil)
		running[name] = c
		c.start(ctx)
	}
	topics := make(map[string]string, len(running))
	for name, c := range running {
		topics[name] = c.program.Definition.Topic
	}
	s.cfg.Listener.Running(topics)
}

// consumer is an intake that runs in this process.
type consumer struct {
	s       *Service
	program *intake.Program
	body    json.RawMessage
	paused  atomic.Bool

	end     context.CancelFunc
	workers sync.WaitGroup

	mu        sync.Mutex
	opened    map[int]Client
	topicID   string // of the topic as a worker last met it; empty: not yet
	recreated bool   // it has changed since the intake runs here
}

func (c *consumer) start(ctx context.Context) {
	ctx, c.end = context.WithCancel(ctx)
	for i := range c.s.cfg.Workers {
		c.workers.Go(func() { c.restarting(ctx, i) })
	}
}

func (c *consumer) stop() {
	c.end()
	c.workers.Wait()
}

// setPaused pauses or resumes the workers at once.
func (c *consumer) setPaused(paused bool) {
	if c.paused.Swap(paused) == paused {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.opened {
		l.Wake()
	}
}

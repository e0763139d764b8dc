package topicowner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	restartWaitMin = 200 * time.Millisecond
	restartWaitMax = 10 * time.Second
	// warnInterval is the least time between two log lines about a failure that lasts.
	warnInterval = time.Minute
	// writeTimeout bounds the wait for the acknowledgement of records.
	writeTimeout = 15 * time.Second
	// applyTimeout bounds the wait for this process to read what it has written.
	applyTimeout = 15 * time.Second
)

// Config configures a Topic.
type Config struct {
	Kafka    kafka.Config
	Admin    *kafkaadmin.Admin
	Producer *kafka.Producer
	Log      *slog.Logger
	// Topic has one partition. Group is the consumer group that assigns it.
	Topic, Group string
	// What names what the topic has, in log lines: "batches".
	What string
	// NotRead is wrapped by the errors of a topic that isn't read to its end yet.
	NotRead error
	// Session is when the death of a process is noticed. Zero: the default.
	Session time.Duration
	// Apply applies records. Reset forgets what was applied: the topic was recreated. The lock is held.
	Apply func(rs []events.Record)
	Reset func()
	// Start returns where to begin to read the first time, and again after Reset; false: where the topic begins. nil: there,
	// too. The lock isn't held.
	Start func(ctx context.Context) (offset int64, found bool, err error)
	// Own acts until ctx ends, while this process is the owner. If it fails it is called again. nil: this process never
	// becomes the owner.
	Own func(ctx context.Context) error
}

// Topic is what this process has read of a topic. The lock guards it and what Config.Apply changes.
type Topic struct {
	sync.Mutex
	cfg      Config
	id       string        // of the topic that was read; empty: none was, or the brokers don't tell it
	position int64         // all records below it are applied
	caughtUp bool          // the end of the topic was reached once
	changed  chan struct{} // closed, and replaced, when something was applied
	failed   error         // why the topic can't be read
}

// New returns a topic. Run makes it work.
func New(cfg Config) *Topic { return &Topic{cfg: cfg, changed: make(chan struct{})} }

// Run reads the topic, and acts on it while this process is the owner. It returns when ctx ends. Failures don't end it.
func (t *Topic) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { t.Restarting(ctx, "read the topic of "+t.cfg.What, t.follow) })
	if t.cfg.Own != nil {
		parts.Go(func() { t.Restarting(ctx, "join the group of "+t.cfg.What, t.member) })
	}
	parts.Wait()
	return nil
}

// Restarting runs a loop until ctx ends, and again when it fails.
func (t *Topic) Restarting(ctx context.Context, what string, loop func(context.Context) error) {
	var warned time.Time
	failures := 0
	for {
		start := time.Now()
		err := loop(ctx)
		if ctx.Err() != nil {
			return
		}
		if failures++; time.Since(start) > restartWaitMax {
			failures = 1
		}
		if time.Since(warned) > warnInterval {
			warned = time.Now()
			t.cfg.Log.Warn(t.cfg.What+" don't run in this process; this is retried", "what", what, "error", kafka.FinalError(err))
		}
		if backoff.Sleep(ctx, backoff.After(restartWaitMin, restartWaitMax, failures)) != nil {
			return
		}
	}
}

// Ready returns why the topic isn't read to its end; nil: it is. The caller holds the lock.
func (t *Topic) Ready() error {
	switch {
	case t.caughtUp:
		return nil
	case t.failed != nil:
		return fmt.Errorf("%w: %w", t.cfg.NotRead, t.failed)
	}
	return t.cfg.NotRead
}

// follow reads the topic.
func (t *Topic) follow(ctx context.Context) error {
	err := t.followFrom(ctx)
	t.Lock()
	defer t.Unlock()
	if t.failed = err; err == nil {
		return nil
	}
	if _, is := errors.AsType[*logreader.OffsetRangeError](err); is { // another topic, or this process wasn't there for a month
		t.reset()
	}
	return err
}

// reset forgets what was read. The caller holds the lock.
func (t *Topic) reset() {
	t.position, t.caughtUp = 0, false
	t.cfg.Reset()
	t.Notify()
}

// adopt notes which topic is read. Positions in an earlier one mean nothing in it, even if it has those offsets: then
// what was read is forgotten, and the topic is opened again.
func (t *Topic) adopt(id string) error {
	t.Lock()
	defer t.Unlock()
	was := t.id
	if id == "" || was == id {
		return nil
	}
	t.id = id
	if was == "" {
		return nil
	}
	t.reset()
	return &kafka.RecreatedError{Topic: t.cfg.Topic, Was: was, Is: id}
}

func (t *Topic) followFrom(ctx context.Context) error {
	f, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: t.cfg.Kafka, Topics: []string{t.cfg.Topic}, Partitions: 1,
		Start: func(ctx context.Context, _ string, _ int32) (int64, bool, error) {
			t.Lock()
			position := t.position
			t.Unlock()
			if position == 0 && t.cfg.Start != nil {
				return t.cfg.Start(ctx)
			}
			return position, position > 0, nil
		}})
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.adopt(f.TopicID(t.cfg.Topic)); err != nil {
		return err
	}
	for {
		rs, err := f.Poll(ctx)
		if err != nil {
			return err
		}
		at, placed := f.Position(t.cfg.Topic, 0)
		end, known := f.HighWatermark(t.cfg.Topic, 0)
		t.Lock()
		t.cfg.Apply(rs)
		if placed && (at != t.position || len(rs) > 0 || !t.caughtUp && known && at >= end) {
			t.position, t.failed = at, nil
			t.caughtUp = t.caughtUp || known && at >= end
			t.Notify()
		}
		t.Unlock()
	}
}

// member is a member of the group. While it has the partition, it acts.
func (t *Topic) member(ctx context.Context) error {
	f, err := logreader.OpenFollower(ctx, logreader.FollowerConfig{Config: t.cfg.Kafka, Group: t.cfg.Group, Topics: []string{t.cfg.Topic}, Partitions: 1,
		SessionTimeout: t.cfg.Session, ReuseBuffers: true,
		Start: func(ctx context.Context, _ string, _ int32) (int64, bool, error) { // what is polled here is read elsewhere
			end, err := t.End(ctx)
			return end, err == nil, err
		},
		Listener: &logreader.FollowerListener{GroupFailed: func(err error) {
			t.cfg.Log.Warn("membership in the group of "+t.cfg.What+" ended; the process joins again", "error", kafka.FinalError(err))
		}}})
	if err != nil {
		return err
	}
	defer f.Close()
	var acting sync.WaitGroup
	stop := func() {}
	defer func() {
		stop()
		acting.Wait()
	}()
	has := uint64(0) // the assignment that it acts for; 0: none
	for {
		if _, err := f.Poll(ctx); err != nil {
			return err
		}
		number := f.Assigned()[0]
		if number == has {
			continue
		}
		stop()
		acting.Wait()
		if has = number; has == 0 {
			stop = func() {}
			continue
		}
		within, cancel := context.WithCancel(ctx)
		stop = cancel
		acting.Go(func() { t.Restarting(within, "act on "+t.cfg.What, t.own) })
	}
}

// own acts, as soon as what earlier owners have written is read.
func (t *Topic) own(ctx context.Context) error {
	end, err := t.End(ctx)
	if err == nil {
		err = t.AwaitPosition(ctx, end)
	}
	if err != nil {
		return err
	}
	return t.cfg.Own(ctx)
}

// End returns the current end of the topic.
func (t *Topic) End(ctx context.Context) (int64, error) {
	ends, err := t.cfg.Admin.KnownEndOffsets(ctx, t.cfg.Topic)
	if err != nil {
		return 0, err
	}
	end, known := ends[0]
	if !known {
		return 0, fmt.Errorf("the topic %s has no leader", t.cfg.Topic)
	}
	return end, nil
}

// Append writes records.
func (t *Topic) Append(ctx context.Context, rs ...events.Record) error {
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return t.cfg.Producer.Send(within, rs...)
}

// Write writes records, and returns as soon as this process has read them.
func (t *Topic) Write(ctx context.Context, rs ...events.Record) error {
	if err := t.Append(ctx, rs[:len(rs)-1]...); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	written, err := t.cfg.Producer.SendOne(within, rs[len(rs)-1])
	if err != nil {
		return err
	}
	within, cancel = context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return t.AwaitPosition(within, written.Offset+1)
}

// Position returns the offset below which all records are applied. The caller holds the lock.
func (t *Topic) Position() int64 { return t.position }

// AwaitPosition returns as soon as all records below an offset are applied.
func (t *Topic) AwaitPosition(ctx context.Context, offset int64) error {
	for {
		t.Lock()
		position, changed, failed := t.position, t.changed, t.failed
		t.Unlock()
		if position >= offset {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w up to offset %d (position %d): %w", t.cfg.NotRead, offset, position, errors.Join(ctx.Err(), failed))
		}
	}
}

// AwaitRead returns as soon as the topic was read to its end once.
func (t *Topic) AwaitRead(ctx context.Context) error {
	for {
		t.Lock()
		changed, err := t.changed, t.Ready()
		t.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Lock()
			defer t.Unlock()
			return errors.Join(ctx.Err(), t.Ready())
		}
	}
}

// Changed returns a channel that is closed at the next change.
func (t *Topic) Changed() <-chan struct{} {
	t.Lock()
	defer t.Unlock()
	return t.changed
}

// Notify wakes those who wait for a change. The caller holds the lock.
func (t *Topic) Notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
)

// kafkaLog is the part of console.Log that reads the topics of the log.
type kafkaLog struct {
	cfg        kafka.Config
	admin      *kafka.Admin
	reader     *kafka.Restorer
	partitions int32
}

// consoleLog implements console.Log. It also writes submissions and controls.
type consoleLog struct {
	kafkaLog
	n       *instance.Instance
	answers *controlAnswers
}

func openConsoleLog(ctx context.Context, n *instance.Instance) (*consoleLog, error) {
	reader, err := kafka.OpenRestorer(n.Kafka, nil)
	if err != nil {
		return nil, err
	}
	l := &consoleLog{kafkaLog: kafkaLog{n.Kafka, n.Admin, reader, n.Partitions}, n: n, answers: &controlAnswers{n: n, waiting: map[string][]chan *events.Answer{}}}
	if err := l.answers.start(ctx); err != nil {
		reader.Close()
		return nil, fmt.Errorf("follow the answers of schedulers: %w", err)
	}
	return l, nil
}

func (l *consoleLog) close() {
	l.answers.close()
	l.reader.Close()
}

func (l *kafkaLog) ReadAt(ctx context.Context, p int32, offsets []int64) (records []events.Record, corruption []console.Corruption, err error) {
	records, err = l.reader.ReadAt(ctx, l.cfg.Namespace.Events(), p, offsets, func(d *kafka.CorruptError) {
		corruption = append(corruption, console.Corruption{From: d.Offset, Next: d.Next, Err: d})
	})
	if _, is := errors.AsType[*kafka.UnavailableError](err); is {
		err = fmt.Errorf("%w: %w", console.ErrUnavailable, err)
	}
	return records, corruption, err
}

func (l *kafkaLog) Ends(ctx context.Context) (map[int32]int64, error) {
	return l.admin.KnownEndOffsets(ctx, l.cfg.Namespace.Events())
}

func (l *kafkaLog) Settled(ctx context.Context) (map[int32]int64, error) {
	return l.admin.KnownCommittedEndOffsets(ctx, l.cfg.Namespace.Events())
}

func (l *kafkaLog) Follow(from map[int32]int64) (console.Stream, error) {
	at := maps.Clone(from)
	for p, offset := range at {
		if offset == console.FromEnd {
			at[p] = kafka.TailEnd
		}
	}
	t, err := kafka.OpenTail(l.cfg, l.cfg.Namespace.Events(), at)
	if err != nil {
		return nil, err // an untyped nil: not a nil *Tail in an interface
	}
	return t, nil
}

func (l *kafkaLog) Alerts(ctx context.Context, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
	return l.readSince(ctx, l.cfg.Namespace.Alerts(), since, fn)
}

func (l *kafkaLog) Deadletters(ctx context.Context, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
	return l.readSince(ctx, l.cfg.Namespace.Deadletters(), since, fn)
}

// readSince reads a topic. It skips partitions without a leader, and returns them.
func (l *kafkaLog) readSince(ctx context.Context, topic string, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
	in := kafka.Range{Since: since, Unavailable: func(p int32) { unread = append(unread, p) }}
	_, err = l.reader.ReadAll(ctx, topic, in, func(rs []events.Record) error {
		for i := range rs {
			fn(&rs[i])
		}
		return nil
	}, nil)
	slices.Sort(unread)
	return unread, err
}

func (l *kafkaLog) Waiting(ctx context.Context, id string) (*console.Waiting, error) {
	return findPendingSubmission(ctx, l.admin, l.reader, l.cfg.Namespace, l.partitions, id)
}

func (l *consoleLog) Submit(ctx context.Context, r events.Record) error { return l.write(ctx, r) }

// writeTimeout bounds the wait for the acknowledgement of a record. A client waits for the response, and may
// send the same record again.
const writeTimeout = 5 * time.Second

// write appends a record to an inbox. Without an acknowledgement it returns console.ErrNotAcknowledged. The record
// may still be appended later: the client retries for DefaultDeliveryTimeout.
func (l *consoleLog) write(ctx context.Context, r events.Record) error {
	within, giveUp := context.WithTimeout(ctx, writeTimeout)
	defer giveUp()
	_, err := produceRecord(within, l.n.Producer, r)
	switch {
	case err == nil:
		return nil
	case within.Err() == nil || ctx.Err() != nil:
		return fmt.Errorf("%w: %w", console.ErrNotAcknowledged, err)
	}
	if unled := l.leaderlessError(ctx, &r); unled != nil {
		return fmt.Errorf("%w within %s: %w", console.ErrNotAcknowledged, writeTimeout, unled)
	}
	return fmt.Errorf("%w within %s", console.ErrNotAcknowledged, writeTimeout)
}

// leaderlessError returns an error if the partition of a record has no leader, else nil.
func (l *consoleLog) leaderlessError(ctx context.Context, r *events.Record) error {
	ctx, cancel := context.WithTimeout(ctx, leaderCheckTimeout)
	defer cancel()
	unled, err := l.n.Admin.LeaderlessPartitions(ctx)
	p := events.Partition(r.Key, l.n.Partitions)
	if err != nil || !slices.Contains(unled[r.Topic], p) {
		return nil // the reason is unknown; `waybill doctor` finds it
	}
	return &kafka.UnavailableError{Topic: r.Topic, Partitions: []int32{p}, Err: kafka.ErrNoLeader}
}

// leaderCheckTimeout bounds the request that finds out why a record wasn't written.
const leaderCheckTimeout = time.Second

// produceRecord appends a record, and returns it as acknowledged, with partition, offset and time.
func produceRecord(ctx context.Context, p *kafka.Producer, r events.Record) (events.Record, error) {
	type ack struct {
		r   events.Record
		err error
	}
	acks := make(chan ack, 1)
	p.SendAsync(ctx, r, func(r events.Record, err error) { acks <- ack{r, err} })
	select {
	case a := <-acks:
		return a.r, a.err
	case <-ctx.Done():
		return events.Record{}, ctx.Err()
	}
}

func (l *consoleLog) Control(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, error) {
	answer, stop := l.answers.await(x)
	defer stop()
	if err := l.write(ctx, r); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answersReopenDelay is the wait before the answers are followed again after an error.
const answersReopenDelay = time.Second

// controlAnswers follows the answers of schedulers to controls, and passes each to the requests that wait for
// it.
type controlAnswers struct {
	n    *instance.Instance
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	waiting map[string][]chan *events.Answer // by request id and task
}

// start follows the topic from its current end.
func (a *controlAnswers) start(ctx context.Context) error {
	tail, err := a.open(ctx)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan struct{})
	go a.run(life, tail)
	return nil
}

func (a *controlAnswers) open(ctx context.Context) (*kafka.Tail, error) {
	topic := a.n.Kafka.Namespace.Answers()
	ends, err := a.n.Admin.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for p := range a.n.Partitions {
		if _, known := ends[p]; !known {
			ends[p] = kafka.TailEnd // a partition without a leader gets no records meanwhile
		}
	}
	return kafka.OpenTail(a.n.Kafka, topic, ends)
}

// run reads answers until life ends. After an error it reopens the topic at its end: a request that missed its
// answer is sent again with the same request id.
func (a *controlAnswers) run(life context.Context, tail *kafka.Tail) {
	defer close(a.done)
	for {
		var err error
		for err == nil && tail != nil {
			var rs []events.Record
			if rs, err = tail.Poll(life); err == nil {
				a.deliver(rs)
			}
		}
		if tail != nil {
			tail.Close()
		}
		if life.Err() != nil {
			return
		}
		a.n.Logger().Warn("following the answers of schedulers failed; trying again", "error", err)
		select {
		case <-time.After(answersReopenDelay):
		case <-life.Done():
			return
		}
		if tail, err = a.open(life); err != nil {
			tail = nil
		}
	}
}

func (a *controlAnswers) deliver(rs []events.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rs {
		answer, err := events.DecodeAnswer(&rs[i])
		if err != nil {
			continue // not an answer
		}
		key := answerKey(answer.Control, answer.Task)
		for _, to := range a.waiting[key] {
			to <- answer // never blocks: the channel's buffer holds one answer
		}
		delete(a.waiting, key)
	}
}

func answerKey(request, task string) string { return request + "\x00" + task }

// await returns a channel that receives the answer to a control. The caller calls stop when it no longer waits.
func (a *controlAnswers) await(x *events.Control) (answer <-chan *events.Answer, stop func()) {
	key, to := answerKey(x.RequestID, x.Task), make(chan *events.Answer, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[key] = append(a.waiting[key], to)
	return to, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		left := a.waiting[key][:0]
		for _, other := range a.waiting[key] {
			if other != to {
				left = append(left, other)
			}
		}
		if a.waiting[key] = left; len(left) == 0 {
			delete(a.waiting, key)
		}
	}
}

func (a *controlAnswers) close() {
	a.stop()
	<-a.done
}

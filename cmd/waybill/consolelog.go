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

// consoleLog is the log as a console asks for it.
type consoleLog struct {
	n       *instance.Instance
	reader  *kafka.Restorer
	answers *answers
}

func openConsoleLog(ctx context.Context, n *instance.Instance) (*consoleLog, error) {
	reader, err := kafka.OpenRestorer(n.Kafka, nil)
	if err != nil {
		return nil, err
	}
	l := &consoleLog{n: n, reader: reader, answers: &answers{n: n, waiting: map[string][]chan *events.Answer{}}}
	if err := l.answers.begin(ctx); err != nil {
		reader.Close()
		return nil, fmt.Errorf("follow the answers of schedulers: %w", err)
	}
	return l, nil
}

func (l *consoleLog) close() {
	l.answers.end()
	l.reader.Close()
}

func (l *consoleLog) ReadAt(ctx context.Context, p int32, offsets []int64) (records []events.Record, damage []console.Damage, err error) {
	records, err = l.reader.ReadAt(ctx, l.n.Kafka.Namespace.Events(), p, offsets, func(d *kafka.DamagedError) {
		damage = append(damage, console.Damage{From: d.Offset, Next: d.Next, Err: d})
	})
	if _, is := errors.AsType[*kafka.UnavailableError](err); is {
		err = fmt.Errorf("%w: %w", console.ErrAway, err)
	}
	return records, damage, err
}

func (l *consoleLog) Ends(ctx context.Context) (map[int32]int64, error) {
	return l.n.Admin.KnownEndOffsets(ctx, l.n.Kafka.Namespace.Events())
}

func (l *consoleLog) Settled(ctx context.Context) (map[int32]int64, error) {
	return l.n.Admin.KnownCommittedEndOffsets(ctx, l.n.Kafka.Namespace.Events())
}

func (l *consoleLog) Follow(from map[int32]int64) (console.Stream, error) {
	at := maps.Clone(from)
	for p, offset := range at {
		if offset == console.FromEnd {
			at[p] = kafka.TailEnd
		}
	}
	t, err := kafka.OpenTail(l.n.Kafka, l.n.Kafka.Namespace.Events(), at)
	if err != nil {
		return nil, err // not a nil *Tail in an interface
	}
	return t, nil
}

func (l *consoleLog) Alerts(ctx context.Context, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
	return l.since(ctx, l.n.Kafka.Namespace.Alerts(), since, fn)
}

func (l *consoleLog) Deadletters(ctx context.Context, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
	return l.since(ctx, l.n.Kafka.Namespace.Deadletters(), since, fn)
}

// since reads a topic, but for partitions that no broker leads.
func (l *consoleLog) since(ctx context.Context, topic string, since time.Time, fn func(*events.Record)) (unread []int32, err error) {
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

func (l *consoleLog) Waiting(ctx context.Context, id string) (*console.Waiting, error) {
	return findWaiting(ctx, l.n.Admin, l.reader, l.n.Kafka.Namespace, l.n.Partitions, id)
}

func (l *consoleLog) Submit(ctx context.Context, r events.Record) error { return l.write(ctx, r) }

// writeWithin is how long a console waits for brokers to acknowledge what it writes: somebody waits for the answer, and
// may write the same again.
const writeWithin = 5 * time.Second

// write writes a record to an inbox. Where that isn't acknowledged the error is console.ErrUnwritten, for the client goes on with
// it for DefaultDeliveryTimeout.
func (l *consoleLog) write(ctx context.Context, r events.Record) error {
	within, giveUp := context.WithTimeout(ctx, writeWithin)
	defer giveUp()
	_, err := sent(within, l.n.Producer, r)
	switch {
	case err == nil:
		return nil
	case within.Err() == nil || ctx.Err() != nil:
		return fmt.Errorf("%w: %w", console.ErrUnwritten, err)
	}
	if unled := l.unled(ctx, &r); unled != nil {
		return fmt.Errorf("%w within %s: %w", console.ErrUnwritten, writeWithin, unled)
	}
	return fmt.Errorf("%w within %s", console.ErrUnwritten, writeWithin)
}

// unled says of the partition of a record, if so, that no broker leads it.
func (l *consoleLog) unled(ctx context.Context, r *events.Record) error {
	ctx, cancel := context.WithTimeout(ctx, unledWithin)
	defer cancel()
	unled, err := l.n.Admin.LeaderlessPartitions(ctx)
	p := events.Partition(r.Key, l.n.Partitions)
	if err != nil || !slices.Contains(unled[r.Topic], p) {
		return nil // what is wrong isn't known, and `waybill doctor` looks further
	}
	return &kafka.UnavailableError{Topic: r.Topic, Partitions: []int32{p}, Err: kafka.ErrNoLeader}
}

// unledWithin bounds the question why something wasn't written.
const unledWithin = time.Second

// sent writes a record, and returns what was acknowledged.
func sent(ctx context.Context, p *kafka.Producer, r events.Record) (events.Record, error) {
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

// answersAgain is how long after a tail broke the next is opened.
const answersAgain = time.Second

// answers hands the answers of schedulers to those who wait for them.
type answers struct {
	n    *instance.Instance
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	waiting map[string][]chan *events.Answer // by request id and task
}

// begin follows the topic from its end as it is now.
func (a *answers) begin(ctx context.Context) error {
	tail, err := a.open(ctx)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	a.stop, a.done = stop, make(chan struct{})
	go a.run(life, tail)
	return nil
}

func (a *answers) open(ctx context.Context) (*kafka.Tail, error) {
	topic := a.n.Kafka.Namespace.Answers()
	ends, err := a.n.Admin.KnownEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for p := range a.n.Partitions {
		if _, known := ends[p]; !known {
			ends[p] = kafka.TailEnd // of one without a leader, to which nothing is written meanwhile
		}
	}
	return kafka.OpenTail(a.n.Kafka, topic, ends)
}

// run reads until life ends. A tail that breaks is opened anew at the end: who
// waits for an answer in between asks again, by its request id.
func (a *answers) run(life context.Context, tail *kafka.Tail) {
	defer close(a.done)
	for {
		var err error
		for err == nil && tail != nil {
			var rs []events.Record
			if rs, err = tail.Poll(life); err == nil {
				a.give(rs)
			}
		}
		if tail != nil {
			tail.Close()
		}
		if life.Err() != nil {
			return
		}
		a.n.Logger().Warn("the answers of schedulers are followed anew", "error", err)
		select {
		case <-time.After(answersAgain):
		case <-life.Done():
			return
		}
		if tail, err = a.open(life); err != nil {
			tail = nil
		}
	}
}

func (a *answers) give(rs []events.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rs {
		answer, err := events.DecodeAnswer(&rs[i])
		if err != nil {
			continue // nobody waits for what is none
		}
		key := answerKey(answer.Control, answer.Task)
		for _, to := range a.waiting[key] {
			to <- answer // it has room for the one
		}
		delete(a.waiting, key)
	}
}

func answerKey(request, task string) string { return request + "\x00" + task }

// await has the answer to a control sent to a channel. stop is to be called when
// nobody waits any more.
func (a *answers) await(x *events.Control) (answer <-chan *events.Answer, stop func()) {
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

func (a *answers) end() {
	a.stop()
	<-a.done
}

package onkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/logclient"
)

// Reader is the part of console.Log that reads the topics of the log.
type Reader struct {
	Config     kafka.Config
	Admin      *kafkaadmin.Admin
	Restorer   *logreader.Restorer
	Partitions int32
}

// Log implements console.Log. It also writes submissions and controls.
type Log struct {
	Reader
	n *instance.Instance
}

// OpenLog opens the log of a running instance.
func OpenLog(n *instance.Instance) (*Log, error) {
	reader, err := logreader.OpenRestorer(n.Kafka, nil)
	if err != nil {
		return nil, err
	}
	return &Log{Reader{n.Kafka, n.Admin, reader, n.Partitions}, n}, nil
}

// Close closes its clients.
func (l *Log) Close() { l.Restorer.Close() }

func (l *Reader) ReadAt(ctx context.Context, p int32, offsets []int64) (records []events.Record, corruption []console.Corruption, err error) {
	records, err = l.Restorer.ReadAt(ctx, l.Config.Namespace.Events(), p, offsets, func(d *logreader.CorruptError) {
		corruption = append(corruption, console.Corruption{From: d.Offset, Next: d.Next, Err: d})
	})
	if _, is := errors.AsType[*logreader.UnavailableError](err); is {
		err = fmt.Errorf("%w: %w", console.ErrUnavailable, err)
	}
	return records, corruption, err
}

func (l *Reader) Ends(ctx context.Context) (map[int32]int64, error) {
	return l.Admin.KnownEndOffsets(ctx, l.Config.Namespace.Events())
}

func (l *Reader) Settled(ctx context.Context) (map[int32]int64, error) {
	return l.Admin.KnownCommittedEndOffsets(ctx, l.Config.Namespace.Events())
}

func (l *Reader) Follow(from map[int32]int64) (console.Stream, error) {
	t, err := logreader.OpenTail(l.Config, l.Config.Namespace.Events(), from)
	if err != nil {
		return nil, err // an untyped nil: not a nil *Tail in an interface
	}
	return t, nil
}

func (l *Reader) Alerts(ctx context.Context, from console.TopicPosition, fn func(*events.Record)) (console.TopicPosition, error) {
	return l.readTopic(ctx, l.Config.Namespace.Alerts(), from, fn)
}

func (l *Reader) Deadletters(ctx context.Context, from console.TopicPosition, fn func(*events.Record)) (console.TopicPosition, error) {
	return l.readTopic(ctx, l.Config.Namespace.Deadletters(), from, fn)
}

func (l *Reader) Waiting(ctx context.Context, id string) (*console.Waiting, error) {
	return FindWaiting(ctx, l.Admin, l.Restorer, l.Config.Namespace, l.Partitions, id)
}

func (l *Log) Write(ctx context.Context, rs ...events.Record) error {
	within, giveUp := context.WithTimeout(ctx, writeTimeout)
	defer giveUp()
	if err := l.n.Producer.Send(within, rs...); err != nil {
		return fmt.Errorf("%w: %w", console.ErrNotAcknowledged, err)
	}
	return nil
}

func (l *Log) Submit(ctx context.Context, r events.Record) error {
	_, err := l.write(ctx, r)
	return err
}

// writeTimeout bounds the wait for the acknowledgement of a record. A client waits for the response, and may
// send the same record again.
const writeTimeout = 5 * time.Second

// write appends a record to an inbox. Without an acknowledgement it returns console.ErrNotAcknowledged. The record
// may still be appended later: the client retries for DefaultDeliveryTimeout.
func (l *Log) write(ctx context.Context, r events.Record) (events.Record, error) {
	within, giveUp := context.WithTimeout(ctx, writeTimeout)
	defer giveUp()
	written, err := l.n.Producer.SendOne(within, r)
	switch {
	case err == nil:
		return written, nil
	case within.Err() == nil || ctx.Err() != nil:
		return r, fmt.Errorf("%w: %w", console.ErrNotAcknowledged, err)
	}
	if unled := l.leaderlessError(ctx, &r); unled != nil {
		return r, fmt.Errorf("%w within %s: %w", console.ErrNotAcknowledged, writeTimeout, unled)
	}
	return r, fmt.Errorf("%w within %s", console.ErrNotAcknowledged, writeTimeout)
}

// leaderlessError returns an error if the partition of a record has no leader, else nil.
func (l *Log) leaderlessError(ctx context.Context, r *events.Record) error {
	ctx, cancel := context.WithTimeout(ctx, leaderCheckTimeout)
	defer cancel()
	unled, err := l.n.Admin.LeaderlessPartitions(ctx)
	p := events.Partition(r.Key, l.n.Partitions)
	if err != nil || !slices.Contains(unled[r.Topic], p) {
		return nil // the reason is unknown; `waybill doctor` finds it
	}
	return &logreader.UnavailableError{Topic: r.Topic, Partitions: []int32{p}, Err: logreader.ErrNoLeader}
}

// leaderCheckTimeout bounds the request that finds out why a record wasn't written.
const leaderCheckTimeout = time.Second

func (l *Log) Control(ctx context.Context, x *events.Control, r events.Record) (*events.Answer, error) {
	log := &logclient.KafkaLog{Namespace: l.n.Kafka.Namespace, Admin: l.n.Admin, Reader: l.Restorer}
	answer, written, err := logclient.SendCommand(ctx, log, l.n.Kafka.Namespace, l.write, x, r)
	if err != nil && !written && !errors.Is(err, console.ErrNotAcknowledged) {
		err = fmt.Errorf("%w: %w", console.ErrNotAcknowledged, err)
	}
	return answer, err
}

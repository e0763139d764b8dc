package waybill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// brokerSilenceMax is how long brokers that have answered before may be silent before a call
	// fails. A fail-over or a restart takes less.
	brokerSilenceMax = time.Minute
	// clockSkewMax is the most that the clocks of two brokers are assumed to differ.
	clockSkewMax = time.Minute
)

// eventLog reads committed records. kafkaLog implements it; tests use a log in memory.
type eventLog interface {
	// endOffsets returns the offset after the last committed record of each partition of a topic. It
	// omits partitions whose end is unknown, such as one without a leader, and fails if all are.
	endOffsets(ctx context.Context, topic string) (map[int32]int64, error)
	// read calls fn with the records that a partition has as of the call, in order. It leaves out those
	// below offset from, and those older than since unless that is zero. It returns the offset it reached.
	read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (next int64, err error)
	// consumedOffsets returns the offset that schedulers have committed for each partition of
	// `waybill.tasks`. It omits partitions without a commit.
	consumedOffsets(ctx context.Context) (map[int32]int64, error)
}

// kafkaLog is the eventLog of a namespace.
type kafkaLog struct {
	ns     events.Namespace
	admin  *kafka.Admin
	reader *kafka.Restorer
}

func (l *kafkaLog) endOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, brokerSilenceMax)
	defer cancel()
	ends, err := l.admin.KnownCommittedEndOffsets(within, topic)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = unreachableError(err)
	}
	return ends, err
}

// read fails once the brokers are silent for brokerSilenceMax. The reader itself would retry for
// as long as ctx lasts.
func (l *kafkaLog) read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (int64, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(brokerSilenceMax, func() { cancel(ErrUnreachable) })
	defer watchdog.Stop()
	reached, err := l.reader.ReadAll(within, topic, kafka.Range{Partitions: []int32{p}, From: from, Since: since}, func(rs []events.Record) error {
		watchdog.Reset(brokerSilenceMax)
		return fn(rs)
	}, nil)
	if err != nil && errors.Is(context.Cause(within), ErrUnreachable) {
		err = unreachableError(err)
	}
	return reached[p], err
}

// unreachableError wraps an error of brokers that have stopped answering.
func unreachableError(err error) error {
	return fmt.Errorf("%w, no answer for %s (%w); check that the brokers are up", ErrUnreachable, brokerSilenceMax, err)
}

// persistentError wraps an error that has lasted for brokerSilenceMax. It wraps ErrUnreachable too,
// unless the brokers answered with the error.
func persistentError(err error) error {
	switch {
	case errors.Is(err, ErrUnreachable):
		return err // a single call got no answer for that long
	case isNoAnswer(err):
		return unreachableError(err)
	}
	return fmt.Errorf("the log could not be read for %s: %w", brokerSilenceMax, err)
}

// isNoAnswer reports whether an error means that a broker didn't answer.
func isNoAnswer(err error) bool {
	var network net.Error // a timeout is one too
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, kafka.ErrNotAcknowledged)
}

func (l *kafkaLog) readAll(ctx context.Context, topic string, p int32, fn func([]events.Record) error) (int64, error) {
	return l.read(ctx, topic, p, 0, time.Time{}, fn)
}

func (l *kafkaLog) consumedOffsets(ctx context.Context) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	commits, err := l.admin.Commits(within, l.ns.SchedulerGroup())
	return commits[l.ns.Inbox(events.Tasks)], err
}

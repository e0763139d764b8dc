package logclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

const (
	// BrokerSilenceMax is how long brokers that have answered before may be silent before a call
	// fails, by default. A fail-over or a restart takes less.
	BrokerSilenceMax = time.Minute
	// consumedTimeout bounds a read of the schedulers' committed offsets.
	consumedTimeout = 5 * time.Second
	// clockSkewMax is the most that the clocks of two brokers are assumed to differ.
	clockSkewMax = time.Minute
)

// Log reads committed records. KafkaLog implements it; tests use a log in memory.
type Log interface {
	// EndOffsets returns the offset after the last committed record of each partition of a topic. It
	// omits partitions whose end is unknown, such as one without a leader, and fails if all are.
	EndOffsets(ctx context.Context, topic string) (map[int32]int64, error)
	// Read calls fn with the records that a partition has as of the call, in order. It leaves out those
	// below offset from, and those older than since unless that is zero. It returns the offset it reached.
	Read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (next int64, err error)
	// ConsumedOffsets returns the offset that schedulers have committed for each partition of
	// `waybill.tasks`. It omits partitions without a commit.
	ConsumedOffsets(ctx context.Context) (map[int32]int64, error)
}

// KafkaLog is the Log of a namespace.
type KafkaLog struct {
	Namespace events.Namespace
	Admin     *kafkaadmin.Admin
	Reader    *logreader.Restorer
	// SilenceMax is how long brokers may be silent before a call fails. Zero: BrokerSilenceMax.
	SilenceMax time.Duration
}

func (l *KafkaLog) silenceMax() time.Duration { return cmp.Or(l.SilenceMax, BrokerSilenceMax) }

func (l *KafkaLog) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, l.silenceMax())
	defer cancel()
	ends, err := l.Admin.KnownCommittedEndOffsets(within, topic)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = unreachableError(err, l.silenceMax())
	}
	return ends, err
}

// Read fails once the brokers are silent for SilenceMax. The reader itself would retry for
// as long as ctx lasts.
func (l *KafkaLog) Read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (int64, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(l.silenceMax(), func() { cancel(ErrUnreachable) })
	defer watchdog.Stop()
	reached, err := l.Reader.ReadAll(within, topic, logreader.Range{Partitions: []int32{p}, From: from, Since: since}, func(rs []events.Record) error {
		watchdog.Reset(l.silenceMax())
		return fn(rs)
	}, nil)
	if err != nil && errors.Is(context.Cause(within), ErrUnreachable) {
		err = unreachableError(err, l.silenceMax())
	}
	return reached[p], err
}

// unreachableError wraps an error of brokers that have not answered for a time.
func unreachableError(err error, silence time.Duration) error {
	return fmt.Errorf("%w, no answer for %s (%w); check that the brokers are up", ErrUnreachable, silence, err)
}

// persistentError wraps an error that has lasted for a time. It wraps ErrUnreachable too, unless the brokers
// answered with the error.
func persistentError(err error, silence time.Duration) error {
	switch {
	case errors.Is(err, ErrUnreachable):
		return err // a single call got no answer for that long
	case IsNoAnswer(err):
		return unreachableError(err, silence)
	}
	return fmt.Errorf("the log could not be read for %s: %w", silence, err)
}

// IsNoAnswer reports whether an error means that a broker didn't answer.
func IsNoAnswer(err error) bool {
	var network net.Error // a timeout is one too
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, kafka.ErrNotAcknowledged)
}

func (l *KafkaLog) ConsumedOffsets(ctx context.Context) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, consumedTimeout)
	defer cancel()
	commits, err := l.Admin.Commits(within, l.Namespace.SchedulerGroup())
	return commits[l.Namespace.Inbox(events.Tasks)], err
}

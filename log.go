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
	// patience is how long brokers that have answered before may be silent:
	// longer than a fail-over or a restart takes.
	patience = time.Minute
	// clockSpread is by how much the clocks of brokers may differ.
	clockSpread = time.Minute
)

// records is the log as it is read here: committed records only.
type records interface {
	// ends is the offset after the last record of each partition of a topic, as far as it is
	// known: one that has no leader is left out. It fails if none is.
	ends(ctx context.Context, topic string) (map[int32]int64, error)
	// read gives fn what a partition holds, as of the call, in order, without what lies below
	// an offset, and what is older than since (zero: none is). It returns the offset that it reached.
	read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (next int64, err error)
	// consumed is below which offset schedulers have consumed each partition of the orders, as far as
	// it is known.
	consumed(ctx context.Context) (map[int32]int64, error)
}

// logReader is the log on Kafka.
type logReader struct {
	ns     events.Namespace
	admin  *kafka.Admin
	reader *kafka.Restorer
}

func (l *logReader) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ends, err := l.admin.KnownCommittedEndOffsets(within, topic)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = silent(err)
	}
	return ends, err
}

// read ends when the brokers are silent for too long: below, it would go on
// trying for as long as ctx lasts.
func (l *logReader) read(ctx context.Context, topic string, p int32, from int64, since time.Time, fn func([]events.Record) error) (int64, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(patience, func() { cancel(ErrUnreachable) })
	defer watchdog.Stop()
	reached, err := l.reader.ReadAll(within, topic, kafka.Range{Partitions: []int32{p}, From: from, Since: since}, func(rs []events.Record) error {
		watchdog.Reset(patience)
		return fn(rs)
	}, nil)
	if err != nil && errors.Is(context.Cause(within), ErrUnreachable) {
		err = silent(err)
	}
	return reached[p], err
}

// silent says that brokers that had answered don't any more.
func silent(err error) error {
	return fmt.Errorf("%w, no answer for %s (%w); check that the brokers are up", ErrUnreachable, patience, err)
}

// lasting says that an error lasted for longer than there is patience. It wraps
// ErrUnreachable, unless the brokers answered with it.
func lasting(err error) error {
	switch {
	case errors.Is(err, ErrUnreachable):
		return err // one call was without an answer for as long
	case away(err):
		return silent(err)
	}
	return fmt.Errorf("the log could not be read for %s: %w", patience, err)
}

// away reports whether an error is that of a broker that didn't answer.
func away(err error) bool {
	var network net.Error // a time that ran out is one, too
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, kafka.ErrNotAcknowledged)
}

func (l *logReader) all(ctx context.Context, topic string, p int32, fn func([]events.Record) error) (int64, error) {
	return l.read(ctx, topic, p, 0, time.Time{}, fn)
}

func (l *logReader) consumed(ctx context.Context) (map[int32]int64, error) {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	commits, err := l.admin.Commits(within, l.ns.SchedulerGroup())
	return commits[l.ns.Inbox(events.Tasks)], err
}

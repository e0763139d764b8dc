package logclient

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

// WriteFunc appends a record, and returns it as acknowledged, with its time (kafka.Producer.SendOne).
type WriteFunc func(context.Context, events.Record) (events.Record, error)

// CommandRecord returns a command's record, or an error if schedulers can't use it: it decodes it as they do.
func CommandRecord(ns events.Namespace, source string, x *events.Control) (events.Record, error) {
	if err := x.Check(); err != nil {
		return events.Record{}, err
	}
	r := x.Record(ns, source)
	_, _, err := events.DecodeInput(events.Controls, &r)
	return r, err
}

// SendCommand writes an operator's command, as its record, and waits for the scheduler's answer. written reports whether the command
// was acknowledged: if not, it may still be written later. It can be sent again with the same request id, which has
// no second effect and returns the same answer.
func SendCommand(ctx context.Context, log Log, ns events.Namespace, write WriteFunc, x *events.Control, r events.Record) (answer *events.Answer, written bool, err error) {
	// Read before the command is written, so that its answer lies at or after these offsets.
	ends, err := log.EndOffsets(ctx, ns.Answers())
	if err != nil {
		return nil, false, err
	}
	ack, err := write(ctx, r)
	if err != nil {
		return nil, false, err
	}
	a := answerReader{log: log, topic: ns.Answers(), next: ends, since: ack.Time.Add(-clockSkewMax), command: x}
	answer, err = a.await(ctx)
	return answer, true, err
}

// answerReader reads the answers of schedulers until it finds the one to a command. It reads all partitions: partitions may have been
// added to the topic, or to the inbox of the command.
type answerReader struct {
	log   Log
	topic string
	// next are the offsets to read. A partition without one had no leader: its answer is written after the command, and
	// isn't older than since.
	next    map[int32]int64
	since   time.Time
	command *events.Control
	found   *events.Answer
}

// await polls. It retries errors for BrokerSilenceMax, because the command is already written.
func (a *answerReader) await(ctx context.Context) (*events.Answer, error) {
	good := time.Now()
	for pause := pollPauseMin; ; pause = min(2*pause, pollPauseMax) {
		err := a.poll(ctx)
		switch {
		case a.found != nil:
			return a.found, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("the command was written, but not answered in time; check that a scheduler runs: %w", ctx.Err())
		case err == nil:
			good = time.Now()
		case time.Since(good) > BrokerSilenceMax:
			return nil, fmt.Errorf("the command was written, but its answer can't be read: %w", persistentError(err, BrokerSilenceMax))
		}
		_ = backoff.Sleep(ctx, pause)
	}
}

// poll reads the answers that are there.
func (a *answerReader) poll(ctx context.Context) error {
	ends, err := a.log.EndOffsets(ctx, a.topic)
	for p, end := range ends {
		if err == nil && a.found == nil && end > a.next[p] {
			err = a.read(ctx, p)
		}
	}
	return err
}

// read reads the answers of a partition.
func (a *answerReader) read(ctx context.Context, p int32) error {
	from, known := a.next[p]
	var since time.Time
	if !known {
		since = a.since
	}
	next, err := a.log.Read(ctx, a.topic, p, from, since, func(rs []events.Record) error {
		for i := range rs {
			answer, err := events.DecodeAnswer(&rs[i])
			if err == nil && a.found == nil && answer.Control == a.command.RequestID && answer.Task == a.command.Task {
				a.found = answer
			}
		}
		return nil
	})
	if err == nil {
		a.next[p] = max(from, next)
	}
	return err
}
